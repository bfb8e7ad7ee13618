"""The parts of the tests: a broker that can be killed, a Spark that can be killed, a query from
topic to topic, and the count.
"""

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

from sparklog import Admin, Consumer, Producer
from sparklog.model import TopicPartition
from tests.spark.kill_points.points import EXIT, GO, Point, Points
from tests.tools import PROJECT

START_S_MAX = 120.0
RUN_S_MAX = 180.0
COUNT = 72
PER_BATCH = 18
PARTITIONS = TASKS = 2
NUMBERS = itertools.count(1)
ATTEMPTS_MAX = 4
"""Runs of a query until one ends by itself; more than any test needs."""
TOO_BUSY = "Python worker failed to connect back"
"""Spark gives a new worker ten seconds, which no setting prolongs: this says nothing but that the machine
has more to do.
"""


class KillableBroker:
    """`sparklog start` on a port and a directory that stay the same from one life to the next."""

    def __init__(self, directory: Path, port: int) -> None:
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._directory = directory
        self._child: subprocess.Popen[bytes] | None = None
        self.restarts = 0
        self.start()

    def start(self) -> None:
        """Start it, and do not wait: its users retry until it is there."""
        program = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"
        command = [
            sys.executable,
            "-c",
            program,
            "start",
            "--data-dir",
            str(self._directory / "data"),
            "--listen",
            self.bootstrap_servers,
        ]
        command += [
            "--set",
            "transaction.state.log.num.partitions=2",
            "--set",
            "offsets.topic.num.partitions=2",
        ]
        command += ["--set", "group.initial.rebalance.delay.ms=0", "--owner-pid", str(os.getpid())]
        with (self._directory / "broker.log").open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=PROJECT, start_new_session=True
            )

    def kill(self) -> None:
        """As a crash would."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()
        assert self._child.stdin is not None
        self._child.stdin.close()

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.restarts += 1
        self.start()

    def check(self) -> None:
        """It has not ended of itself."""
        assert self._child is not None
        assert self._child.poll() is None, (self._directory / "broker.log").read_text(errors="replace")[
            -6000:
        ]


@dataclass(frozen=True)
class Query:
    """A stream from `source` to `target`, which goes on where its checkpoint is."""

    servers: str
    source: str
    target: str
    checkpoint: Path
    options: dict[str, str] = field(default_factory=dict)
    kind: str = "stream"

    def told(self) -> dict[str, Any]:
        """As the program wants it."""
        broker = {"kafka.bootstrap.servers": self.servers}
        read = broker | {"subscribe": self.source, "startingOffsets": "earliest"}
        # As few as these would be read by one task otherwise.
        read |= {"maxOffsetsPerTrigger": str(PER_BATCH), "maxRecordsPerPartition": str(PER_BATCH // TASKS)}
        write = broker | {"topic": self.target} | self.options
        return {"read": read, "write": write, "checkpoint": str(self.checkpoint), "kind": self.kind}


class Spark:
    """`program.py` in a process group of its own; `kill` and the end of the `with` block leave nothing of
    it.
    """

    def __init__(
        self, points: Points, directory: Path, *, master: str = "local[2,3]", **settings: str
    ) -> None:
        given = json.dumps({"points": points.address, "master": master, "settings": settings})
        self._log = directory / f"spark-{next(NUMBERS)}.log"
        self._paused: tuple[int, ...] | None = None  # the workers, while all is
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kill_points.program", given],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=PROJECT,
                env=os.environ | {"PYTHONPATH": str(PROJECT)},
                start_new_session=True,
                bufsize=0,
            )
        self._received = b""
        self._told: dict[int, dict[str, Any]] = {}
        self.is_alive = True
        told = self._said(START_S_MAX)
        assert told is not None, self.log()
        self.jvm_pid: int = told["jvm"]

    def start(self, query: Query) -> int:
        """Start a query; its number."""
        number = next(NUMBERS)
        self._write({"id": number} | query.told())
        return number

    def ended(self, number: int) -> str | None:
        """Wait for the end of a query: None if it ended by itself, else its error, or that this Spark
        died.
        """
        told = self._told_of(number)
        if told is None:
            return "this Spark died"
        error: str | None = told["error"]
        return error

    def numbers_in(self, delta_table: Path) -> list[int]:
        """The rows of a Delta table, sorted."""
        number = next(NUMBERS)
        self._write({"id": number, "numbers": str(delta_table)})
        told = self._told_of(number)
        assert told is not None
        return sorted(told["numbers"])

    def run(self, query: Query) -> str | None:
        """Start a query and wait for its end."""
        return self.ended(self.start(query))

    def stop_queries(self) -> None:
        """As `query.stop()`; does not wait."""
        self._write({"stop": True})

    def kill(self, *workers: int) -> None:
        """kill -9 to the JVM, to the program that started it, and to these workers."""
        self.is_alive = False
        self._signal(signal.SIGKILL, *workers, *(self._paused or ()))

    def pause(self, *workers: int) -> None:
        """As a machine that hangs: SIGSTOP to the JVM, the program and these workers."""
        self._paused = workers
        self._signal(signal.SIGSTOP, *workers)

    def wake(self, *workers: int) -> None:
        """SIGCONT to the paused processes."""
        self._paused = None
        self._signal(signal.SIGCONT, *workers)

    def kill_if_paused(self) -> None:
        """A process that a failed test left paused must not delay the next test."""
        if self._paused is not None:
            self.kill()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def close(self) -> None:
        if self._child.poll() is None:
            self.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def _told_of(self, number: int) -> dict[str, Any] | None:
        """The reply to this query or question; None if there will be none."""
        deadline = time.monotonic() + RUN_S_MAX
        while number not in self._told:
            said = self._said(max(0.0, deadline - time.monotonic()))
            if said is None:
                self.kill()
                return None
            self._told[said["id"]] = said
        return self._told.pop(number)

    def _signal(self, number: signal.Signals, *workers: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, number)

    def _write(self, said: dict[str, Any]) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(said).encode() + b"\n")

    def _said(self, patience_s: float) -> dict[str, Any] | None:
        """The next line; None if there will be none."""
        output: IO[bytes] | None = self._child.stdout
        assert output is not None
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._received:
            readable, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"Spark says nothing: {self.log()}"
            part = output.read(4096)
            if not part:
                return None
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Harness:
    """One broker, and one Spark at a time, which is started anew when it was killed."""

    def __init__(self, broker: KillableBroker, points: Points, directory: Path, **settings: str) -> None:
        """`settings` are of Spark's, for every Spark that is started here."""
        self.broker = broker
        self.points = points
        self._settings = settings
        self._directory = directory
        self._spark: Spark | None = None

    @property
    def spark(self) -> Spark:
        """The living one."""
        if self._spark is not None and not self._spark.is_alive:
            self._spark.close()
            self._spark = None
        if self._spark is None:
            self._spark = self.another_spark()
        return self._spark

    def another_spark(self, **settings: Any) -> Spark:
        """One more, which the caller closes."""
        return Spark(self.points, self._directory, **(self._settings | settings))

    def query(self, *, servers: str | None = None, kind: str = "stream", **options: str) -> Query:
        """A query whose source has `COUNT` numbers, for `COUNT / PER_BATCH` micro-batches, on two
        partitions, and a new target.
        """
        number = next(NUMBERS)
        servers = servers or self.broker.bootstrap_servers
        source, target = f"source-{number}", f"target-{number}"
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({source: PARTITIONS, target: PARTITIONS})
        with Producer(bootstrap_servers=servers) as producer:
            for value in range(COUNT):
                producer.send(source, str(value), key=str(value), partition=value % PARTITIONS)
        checkpoint = self._directory / f"checkpoint-{number}"
        return Query(servers, source, target, checkpoint, {"delivery": "exactly_once"} | options, kind)

    def sibling(self, query: Query, **options: str) -> Query:
        """Another query with the same source, and its own target and checkpoint."""
        number = next(NUMBERS)
        target = f"target-{number}"
        with Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            admin.create_topics({target: PARTITIONS})
        return replace(
            query,
            target=target,
            checkpoint=self._directory / f"checkpoint-{number}",
            options=query.options | options,
        )

    def kill_spark(self, point: Point) -> str:
        """An answer: kill -9 to the JVM, and the worker is gone too."""
        assert self._spark is not None
        self._spark.kill()
        return EXIT

    def restart_broker(self, point: Point) -> str:
        """An answer: kill -9 to the broker, which comes back while the worker goes on."""
        self.broker.restart()
        return GO

    def run_to_the_end(self, query: Query, *, failures: int | None) -> list[str]:
        """Run the query again and again until it ends by itself; it must have failed so many times before,
        None for any number.
        """
        raised: list[str] = []
        while (error := self.spark.run(query)) is not None:
            self.broker.check()
            raised.append(error)
            assert len(raised) < ATTEMPTS_MAX, raised
        raised = [error for error in raised if TOO_BUSY not in error]
        assert failures in (None, len(raised)), raised
        return raised

    def close(self) -> None:
        if self._spark is not None:
            self._spark.close()


def committed_numbers(servers: str, topic: str) -> list[int]:
    """The records of a read_committed reader of the whole topic, sorted; waits for every transaction that is
    still open.
    """
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: list[int] = []
    with (
        Consumer(
            bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer,
        Consumer(bootstrap_servers=servers) as uncommitted,
    ):
        ends = uncommitted.end_offsets(parts)
        consumer.assign(parts)
        deadline = time.monotonic() + 60
        while any(consumer.position(part) < ends[part] for part in parts):
            assert time.monotonic() < deadline, (
                f"an open transaction: {[(consumer.position(part), ends[part]) for part in parts]}"
            )
            found += [int(record.value or b"") for record in consumer.poll(200)]
    return sorted(found)


def wrong(found: list[int]) -> dict[str, list[int]]:
    """The lost numbers and the duplicates; empty when every number is there once."""
    counts = Counter(found)
    told = {
        "lost": [n for n in range(COUNT) if n not in counts],
        "twice": [n for n in sorted(counts) if counts[n] > 1],
    }
    return {what: numbers for what, numbers in told.items() if numbers}


def is_exact(query: Query) -> bool:
    """Every number is there once; else the error lists the differences."""
    found = wrong(committed_numbers(query.servers, query.target))
    assert not found, found
    return True
