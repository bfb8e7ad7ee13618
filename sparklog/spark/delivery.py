"""How written records become final: the interface between building record batches and committing them.

    executor   Delivery.open(task) -> TaskWriter    at the first row; an empty task opens no connection
                 add(batch) …
                 finish() -> message                once every record is acknowledged
                 abort()                            after an error in the task or before it
    driver     Delivery.commit(messages)            or abort(messages); None for a task without a message

Spark pickles a `Delivery` to the tasks. In a batch write the same object commits on the driver. In a stream,
another object commits, made from the same options in another process, so the messages are all that it has
from the tasks. A task may run twice, also concurrently, and the attempt that lost is not notified.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings

NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt of one task. Outside a stream, the ids of the query are empty and `batch_id` is `NO_BATCH`.

    `query_id` is in the checkpoint; `run_id` is new each time the query starts.
    """

    partition: int
    attempt: int
    query_id: str
    batch_id: int
    run_id: str = ""

    @classmethod
    def current(cls) -> "Task":
        """The task that this process runs; outside Spark, a task of no query."""
        context = TaskContext.get()
        if context is None:
            return cls(0, 0, "", NO_BATCH)
        batch = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            context.partitionId(),
            context.attemptNumber(),
            context.getLocalProperty("sql.streaming.queryId") or "",
            NO_BATCH if batch is None else int(batch),
            "" if batch is None else context.getLocalProperty("spark.jobGroup.id") or "",
        )


@dataclass
class TaskWritten(WriterCommitMessage):
    """The records written by one attempt of a task, all acknowledged."""

    task: Task
    record_count: int


class TaskWriter(Protocol):
    """Writes the records of one attempt. After an error, only `abort` may be called; after `finish` or
    `abort`, nothing.
    """

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic; raises UnknownTopic if the cluster has no such topic."""

    def message_bytes_max(self, topic: str) -> int | None:
        """The largest batch in bytes that the topic accepts; None if the broker does not report it."""

    def add(self, topic: str, partition: int, batch: bytearray, record_count: int) -> None:
        """Takes ownership of a whole batch; raises as soon as an earlier batch has failed."""

    def finish(self) -> WriterCommitMessage:
        """The message for the driver, once every batch is acknowledged; raises if a batch failed."""

    def abort(self) -> None:
        """Undoes what can be undone, and raises nothing, because an error is already propagating."""


class Delivery(Protocol):
    """A delivery guarantee: how written records become visible and final."""

    def open(self, task: Task) -> TaskWriter:
        """A writer for the rows of this attempt."""

    def nothing_written(self, task: Task) -> WriterCommitMessage:
        """The message of a task without rows."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Commits the records of the messages; `batch_id` is `NO_BATCH` outside a stream. It may be called
        again for the same batch.
        """

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Discards the records, unless they were committed: Spark calls this with the same messages if
        `commit` raised.
        """


class AtLeastOnce:
    """At least once: records are final when the broker acknowledges them, so a task that runs again writes
    duplicates.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings

    def open(self, task: Task) -> "IdempotentWriter":
        return IdempotentWriter(self._settings, task)

    def nothing_written(self, task: Task) -> TaskWritten:
        return TaskWritten(task, 0)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """No effect: the records are already final."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """No effect: the records of failed tasks stay in the log."""


class IdempotentWriter:
    """Writes with an idempotent producer, so that retries of the client write no duplicates."""

    def __init__(self, settings: ClientSettings, task: Task) -> None:
        self._client = BatchWriter(settings)
        self._task = task
        self._record_count = 0

    def partition_count(self, topic: str) -> int:
        return self._client.partition_count(topic)

    def message_bytes_max(self, topic: str) -> int | None:
        return self._client.message_bytes_max(topic)

    def add(self, topic: str, partition: int, batch: bytearray, record_count: int) -> None:
        self._client.add(topic, partition, batch, record_count)
        self._record_count += record_count

    def finish(self) -> TaskWritten:
        self._client.flush()
        self._client.close()
        return TaskWritten(self._task, self._record_count)

    def abort(self) -> None:
        self._client.close()
