"""A broker, a driver and a referee: one query after another is struck, started again until it ends, and
its table counted.
"""

import importlib.util
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from sparklog import Admin, Producer
from tests.daemon.broker_process import BrokerProcess
from tests.spark.restarts.referee import Referee, Strike
from tests.tools import DELTA_JARS, PROJECT, require_command

ANSWER_S_MAX = 400
"""More than the driver gives a query: an answer that comes later would be taken for the next one."""
RUNS_MAX = 4
PARTITIONS = 2


def require_delta() -> None:
    """Java, Spark and the Delta jars, or no test."""
    require_command("java")
    if importlib.util.find_spec("pyspark") is None or not any(DELTA_JARS.glob("delta-spark_*.jar")):
        pytest.skip(f"no Delta JARs in {DELTA_JARS}: `make jars` fetches them with Maven")


class Driver:
    """A process of `job`; what it asks and answers goes over its pipes."""

    def __init__(self, log: Path) -> None:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.restarts.job"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=PROJECT,
                env={**inherited, "PYTHONPATH": str(PROJECT)},
                start_new_session=True,
            )
        self._received = b""
        started = self._answer()
        assert isinstance(started, dict), f"the driver did not start: {log.read_text()[-4000:]}"
        self.pid: int = started["driver"]

    def ask(self, **request: object) -> Any:
        """The answer; None if the driver is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        return self._answer()

    def close(self) -> None:
        """End it and its child processes."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        deadline_s = time.monotonic() + ANSWER_S_MAX
        while True:
            line, newline, rest = self._received.partition(b"\n")
            if newline:
                self._received = rest
                if line.startswith(b"answer "):
                    return json.loads(line.removeprefix(b"answer "))
                continue
            readable, _, _ = select.select(
                [self._process.stdout], [], [], max(0.0, deadline_s - time.monotonic())
            )
            assert readable, f"the driver said nothing for {ANSWER_S_MAX} s"
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                return None
            self._received += more


class Restarts:
    """Strikes one query after another; each has a topic, a checkpoint and a table of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self._broker = BrokerProcess("--data-dir", str(directory / "broker"), "--listen", "127.0.0.1:0")
        host, self._port = self._broker.address()
        self._servers = f"{host}:{self._port}"
        self._referee = Referee(self._restart_broker)
        self._driver: Driver | None = None
        self._stack = ExitStack()

    def rows_after(
        self, strike: Strike, *, tasks: int = PARTITIONS
    ) -> tuple[list[list[object]], list[list[object]]]:
        """What the table holds after a query was struck so and started again until it came to its end, and
        what it should hold.
        """
        number = next(self._numbers)
        topic, place = f"struck-{number}", self._directory / str(number)
        with Admin(bootstrap_servers=self._servers) as admin:
            admin.create_topics({topic: PARTITIONS})
        self._send(topic, range(30))
        request = {
            "run": topic,
            "checkpoint": f"{place}/checkpoint",
            "table": f"{place}/table",
            "options": {
                "kafka.bootstrap.servers": self._servers,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "30",
                **({"minPartitions": str(tasks)} if tasks > 1 else {}),
                "groupId": f"group-of-{topic}",
                "referee": self._referee.address,
            },
        }
        told = []
        driver = self._started()
        self._referee.name(strike)
        for run in range(RUNS_MAX):
            answer = driver.ask(**request)
            told.append(answer)
            if run == 0:
                assert self._referee.has_struck.wait(ANSWER_S_MAX), (
                    f"nothing was struck; the query said {answer}"
                )
                self._send(topic, range(30, 40))
            elif answer == "done":
                break
            if strike.target == "driver" and run == 0:
                driver = self._started(anew=True)
        assert told[-1] == "done", told
        rows = driver.ask(rows=f"{place}/table")
        return sorted(rows), [
            [partition, offset, f"{partition}:{offset}"]
            for partition in range(PARTITIONS)
            for offset in range(40)
        ]

    def __enter__(self) -> Self:
        self._stack.enter_context(self._referee)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._driver is not None:
            self._driver.close()
        self._stack.close()
        self._broker.__exit__(None, None, None)

    def _started(self, *, anew: bool = False) -> Driver:
        if anew and self._driver is not None:
            self._driver.close()
            self._driver = None
        if self._driver is None:
            self._driver = Driver(self._directory / "driver.log")
            self._referee.driver_pid = self._driver.pid
        return self._driver

    def _send(self, topic: str, offsets: range) -> None:
        with Producer(bootstrap_servers=self._servers) as producer:
            for offset in offsets:
                for partition in range(PARTITIONS):
                    producer.send(topic, value=f"{partition}:{offset}".encode(), partition=partition)

    def _restart_broker(self, when_gone: Callable[[], None]) -> None:
        self._broker.__exit__(None, None, None)
        when_gone()
        self._broker = BrokerProcess(
            "--data-dir", str(self._directory / "broker"), "--listen", f"127.0.0.1:{self._port}"
        )
        self._broker.address()
