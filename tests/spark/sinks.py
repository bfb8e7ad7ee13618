"""Exactly-once sinks driven as plain calls, in place of Spark: tasks that write, a driver that commits,
dies, pauses or comes twice.

A `Driver` is what one driver process has: its own connections, and a memory that ends with it. What Spark
gives is in the arguments: the query's id, the batch and the messages of its tasks.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from sparklog import Admin
from sparklog.client.clock import instant
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.exactly_once.committer import Committer
from sparklog.client.exactly_once.decision_log import DecisionLog
from sparklog.client.exactly_once.decisions import prefix_of, sink_name
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.client.settings import ClientSettings
from sparklog.errors import ErrorCode
from sparklog.model import TopicPartition
from sparklog.record.batch import build_batch, decode_records
from sparklog.spark.delivery import Task
from sparklog.spark.exactly_once import ExactlyOnce, Job, SinkWritten

STEPS = ("fence", "last_decision", "check", "decide", "first end", "end_all", "sweep")
QUERY = "0c2b7e1c-query"


class Died(Exception):
    """The driver is no more."""


class Watched(Committer):
    """Tells each step, also the first of several ends, and "abort" before anything is aborted."""

    def __init__(
        self, log: DecisionLog, identity: str, told: Callable[[str], None], *, former: str = ""
    ) -> None:
        super().__init__(log, identity, former=former)
        self._told = told

    def at(self, step: str) -> None:
        self._told(step)

    def end(self, identities: Sequence[ProducerIdentity], *, is_commit: bool) -> dict[str, ErrorCode]:
        if is_commit and identities:
            super().end(identities[:1], is_commit=True)
            self._told("first end")
        elif identities:
            self._told("abort")
        return super().end(identities, is_commit=is_commit)


class Driver(ExactlyOnce):
    """The sink as one process of a driver has it; `told` hears of each step of a commit."""

    def __init__(
        self,
        servers: str,
        *,
        identity: str = "",
        checkpoint: str = "",
        job: Job | None = None,
        told: Callable[[str], None] = lambda _: None,
        timeout_ms: int = 60_000,
    ) -> None:
        settings = ClientSettings.from_kafka(
            {"bootstrap.servers": servers, "transaction.timeout.ms": str(timeout_ms)}
        )
        super().__init__(settings, identity=identity, checkpoint=checkpoint, job=job)
        self.log = DecisionLog(settings)
        self._told = told

    def committer(self, identity: str, former: str = "") -> Committer:
        return Watched(self.log, identity, self._told, former=former)

    def run_tasks(
        self, topic: str, batch: int, tasks: Sequence[Sequence[str]], *, query: str = QUERY, run: str = ""
    ) -> list[SinkWritten]:
        """The messages of tasks that each wrote these values."""
        return [
            self.run_task(topic, Task(number, 0, query, batch, run), values)
            for number, values in enumerate(tasks)
        ]

    def run_task(self, topic: str, task: Task, values: Sequence[str]) -> SinkWritten:
        """One attempt of one task: its values go to the partitions in turn."""
        if not values:
            return self.nothing_written(task)
        writer = self.open(task)
        count = writer.partition_count(topic)
        for place, value in enumerate(values):
            writer.add(
                topic,
                (task.partition + place) % count,
                build_batch([(None, value.encode(), (), instant().wall_ms)]),
                1,
            )
        return writer.finish()

    def run_batch(
        self, topic: str, batch: int, tasks: Sequence[Sequence[str]], *, query: str = QUERY, run: str = ""
    ) -> None:
        """A whole micro-batch, as Spark runs it: where `commit` raises, `abort` is called with the same
        messages.
        """
        messages = self.run_tasks(topic, batch, tasks, query=query, run=run)
        try:
            self.commit(messages, batch)
        except Died:
            raise
        except Exception:
            self.abort(messages, batch)
            raise

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()


def dies_at(step: str) -> Callable[[str], None]:
    """A `told` that ends the driver after a step, as far as a test can in its own process."""

    def told(done: str) -> None:
        if done == step:
            raise Died(step)

    return told


@contextmanager
def child(body: Callable[[], None]) -> Iterator[int]:
    """Runs `body` in a child process that ends with it; whoever leaves the context knows that the child is
    gone.
    """
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.waitpid(pid, 0)


def killed_at(step: str) -> Callable[[str], None]:
    """A `told` that kills the process it is called in."""

    def told(done: str) -> None:
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return told


def committed(servers: str, topic: str, *, may_hang: bool = False) -> list[str]:
    """The values that a read-committed reader finds, in their order by partition; nothing may be left
    open, unless `may_hang`.

    What is open is waited for, since markers come a moment after the word of the coordinator;
    RequestTimeout if it stays open.
    """
    settings = ClientSettings.from_kafka({"bootstrap.servers": servers, "default.api.timeout.ms": "10000"})
    values: list[str] = []
    with (
        Admin(bootstrap_servers=servers) as admin,
        RangeReader(settings, isolation_level="read_committed") as reader,
    ):
        count = len(admin.describe_topics([topic])[topic].partitions)
        for partition in range(count):
            at = TopicPartition(topic, partition)
            end = admin.list_offsets(
                {at: -1}, isolation_level="read_committed" if may_hang else "read_uncommitted"
            )[at].offset
            for view in reader.read(topic, partition, 0, end):
                values += [bytes(record.value or b"").decode() for record in decode_records(view)]
    return values


def names(batch: int, tasks: int, rows: int = 3) -> list[list[str]]:
    """What the tasks of a batch write: unique values, the same each time the batch is run."""
    return [[f"b{batch}.t{task}.r{row}" for row in range(rows)] for task in range(tasks)]


def flat(batches: Iterable[Sequence[Sequence[str]]]) -> list[str]:
    """All values of these batches, sorted."""
    return sorted(value for tasks in batches for values in tasks for value in values)


BATCHES = [names(batch, tasks=3) for batch in range(3)]


def open_ids(admin: Admin, identity: str) -> list[str]:
    """The transactional ids of a sink whose transaction is ongoing."""
    return [
        one.transactional_id
        for one in admin.list_transactions(states=["Ongoing"], prefix=prefix_of(sink_name(identity)))
    ]
