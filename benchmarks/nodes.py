"""A cluster of several nodes on this machine, for the benchmarks of clusters."""

import argparse
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psutil

from benchmarks import harness

COUNT = 3


@dataclass
class Cluster:
    """A running cluster: when its start began, by `time.perf_counter`, and the processes of its nodes, in
    order of their ids. Kafka has no supervisor.
    """

    name: str
    began_s: float
    bootstrap_servers: str
    nodes: list[psutil.Process]
    supervisor: psutil.Process | None = None

    def running(self) -> list[psutil.Process]:
        """The processes of the nodes that have not ended."""
        return self.nodes if self.supervisor is None else self.supervisor.children()

    @property
    def processes(self) -> list[psutil.Process]:
        """All processes of the cluster."""
        return self.nodes if self.supervisor is None else [self.supervisor, *self.nodes]

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
            running = [psutil.Process(int(pid)) for pid in words["pids"].split(",")]
            yield Cluster("sparklog", began_s, words["listen"], running, psutil.Process(child.pid))
        finally:
            child.terminate()
            child.wait(timeout=harness.STOP_TIMEOUT_S)


@contextmanager
def kafka_cluster() -> Iterator[Cluster]:
    """Start three combined nodes of a real Kafka. Their directories are formatted before the start begins."""
    with ExitStack() as stack:
        root = Path(
            stack.enter_context(TemporaryDirectory(prefix="kafka-bench-", ignore_cleanup_errors=True))
        )
        brokers = [harness.free_port() for _ in range(COUNT)]
        controllers = [harness.free_port() for _ in range(COUNT)]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers, 1))
        commands = []
        for node, (broker, controller) in enumerate(zip(brokers, controllers, strict=True), 1):
            directory = root / str(node)
            directory.mkdir()
            properties = {
                "process.roles": "broker,controller",
                "node.id": str(node),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(directory / "data"),
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
            }
            commands.append(harness.formatted_kafka(directory, properties))
        began_s = time.perf_counter()
        children = []
        for command in commands:
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(child.wait)
            stack.callback(child.kill)
            children.append(child)
        for child, port in zip(children, brokers, strict=True):
            harness.wait_for_metadata("127.0.0.1", port, child)
        servers = ",".join(f"127.0.0.1:{port}" for port in brokers)
        yield Cluster("kafka", began_s, servers, [psutil.Process(child.pid) for child in children])


def starts(options: argparse.Namespace) -> list[Callable[[], AbstractContextManager[Cluster]]]:
    """How to start the clusters that are measured: ours and, with `--against kafka`, a real Kafka."""
    return [cluster, kafka_cluster] if options.against == "kafka" else [cluster]
