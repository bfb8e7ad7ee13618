"""How what tasks write is made to last: the seam between making record batches and deciding which of them
count.

    executor   Delivery.open(task) -> TaskWriter     with the first row of a task: an empty task opens no connection
               add(batch) …  finish() -> message     every record is acknowledged by then
               abort()                               whatever went wrong, in the task or before it
    driver     Delivery.commit(messages) | abort(messages)    None stands where a task told nothing

A `Delivery` is pickled to the tasks. In a batch write the very same object decides on the driver; in a
stream another one does, made from the same options in another process, so that nothing but messages leads
from the tasks to the decision. A task may run twice, also at the same time, and the attempt that lost is
not told.
"""  # noqa: E501

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from sparklog.client.settings import ClientSettings
from sparklog.client.writer import BatchWriter

NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt of one task; outside a stream `query_id` is empty and `batch_id` is `NO_BATCH`."""

    partition: int
    attempt: int
    query_id: str
    batch_id: int

    @classmethod
    def current(cls) -> "Task":
        """The task that this process works on; the first of no query where there is none."""
        context = TaskContext.get()
        if context is None:
            return cls(0, 0, "", NO_BATCH)
        batch = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            context.partitionId(),
            context.attemptNumber(),
            context.getLocalProperty("sql.streaming.queryId") or "",
            NO_BATCH if batch is None else int(batch),
        )


@dataclass
class TaskWritten(WriterCommitMessage):
    """The records written by one attempt of a task, all acknowledged."""

    task: Task
    record_count: int


class TaskWriter(Protocol):
    """The way of one attempt's records into the log. After an error only `abort` may follow; after
    `finish` or `abort` nothing.
    """

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic; raises UnknownTopic if the cluster has none of that name."""

    def message_bytes_max(self, topic: str) -> int | None:
        """The largest batch in bytes that the topic takes; None where the broker does not tell."""

    def add(self, topic: str, partition: int, batch: bytearray, record_count: int) -> None:
        """Take a whole batch, which belongs to the writer from here on; raises as soon as an earlier one
        is known to have failed.
        """

    def finish(self) -> WriterCommitMessage:
        """The message for the driver, once every batch is acknowledged; raises if one was not."""

    def abort(self) -> None:
        """Abort: undo what can be undone, and raise nothing, since an error is already propagating."""


class Delivery(Protocol):
    """One way to make writes last."""

    def open(self, task: Task) -> TaskWriter:
        """A writer for the rows of this attempt."""

    def nothing_written(self, task: Task) -> WriterCommitMessage:
        """The message of a task without rows."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Commit the records that the messages describe; `batch_id` is `NO_BATCH` outside a stream.
        May be called again for the same batch.
        """

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Make it not count, unless it was committed: Spark calls this with the same messages when
        `commit` raised.
        """


class AtLeastOnce:
    """Records are final once the broker acknowledges them, so a task that runs again writes duplicates."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings

    def open(self, task: Task) -> "IdempotentWriter":
        return IdempotentWriter(self._settings, task)

    def nothing_written(self, task: Task) -> TaskWritten:
        return TaskWritten(task, 0)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """No effect: records of failed tasks stay in the log."""


class IdempotentWriter:
    """Writes with a producer id of its own, so that no retry of the client writes twice."""

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
