"""A cluster of several nodes on this machine, for the benchmarks of clusters."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil

from benchmarks import harness

COUNT = 3


@dataclass
class Cluster:
    """A running cluster: when its start began, by `time.perf_counter`, and its processes, the supervisor
    first.
    """

    began_s: float
    bootstrap_servers: str
    processes: list[psutil.Process]

    def running(self) -> list[psutil.Process]:
        """The processes of the nodes that have not ended."""
        return self.processes[0].children()

    @property
    def links(self) -> Mapping[str, Callable[[Random], Callable[[], None]]]:
        """Faults of links: the nodes share one network, so there are none."""
        return {}

    def revive(self) -> None:
        """The supervisor starts the nodes again that have ended."""


@contextmanager
def cluster(nodes: int = COUNT, *, data_dir: Path | None = None) -> Iterator[Cluster]:
    """Start a cluster from nothing, in a temporary directory if none is given."""
    began_s = time.perf_counter()
    where = [] if data_dir is None else ["--data-dir", str(data_dir)]
    child = subprocess.Popen(
        [*harness.sparklog_command(), "cluster", "start", "--nodes", str(nodes), "--base-port", "0", *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=harness.ENVIRONMENT,
    )
    with child:
        try:
            assert child.stdout is not None
            words = dict(word.split("=", 1) for word in child.stdout.readline().split()[1:])
            pids = [child.pid, *map(int, words["pids"].split(","))]
            yield Cluster(began_s, words["listen"], [psutil.Process(pid) for pid in pids])
        finally:
            child.terminate()
            child.wait(timeout=harness.STOP_TIMEOUT_S)
