"""The course of one task: its writer's calls in order. No Spark session and no broker here, but a
writer that remembers.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from sparklog.client.failures import RecordTooLarge
from sparklog.errors import BrokerError, ErrorCode, SettingsError
from sparklog.record.batch import decode_records
from sparklog.spark.delivery import NO_BATCH, Task, TaskWritten
from sparklog.spark.options import Options
from sparklog.spark.rows import RowRefused
from sparklog.spark.writers import BatchSink, write_task

OPTIONS = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})


class Remembering:
    """A delivery whose writers keep what they are told; `fails_on` is the call that raises."""

    def __init__(
        self, *, fails_on: str = "", error: Exception | None = None, bytes_max: int | None = None
    ) -> None:
        self.bytes_max = bytes_max
        self.told: list[str] = []
        self.batches: list[tuple[str, int, bytes]] = []
        self._fails_on = fails_on
        self._error = error or BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")

    def open(self, task: Task) -> "Remembering":
        self._tell("open")
        return self

    def nothing_written(self, task: Task) -> WriterCommitMessage:
        self._tell("nothing_written")
        return TaskWritten(task, 0)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        raise AssertionError("a task decides nothing")

    def partition_count(self, topic: str) -> int:
        return 2

    def message_bytes_max(self, topic: str) -> int | None:
        return self.bytes_max

    def add(self, topic: str, partition: int, batch: bytearray, record_count: int) -> None:
        self._tell("add")
        self.batches.append((topic, partition, bytes(batch)))

    def finish(self) -> WriterCommitMessage:
        self._tell("finish")
        return TaskWritten(Task.current(), len(self.batches))

    def abort(self, messages: object = None, batch_id: int = NO_BATCH) -> None:
        self._tell("abort")

    def _tell(self, call: str) -> None:
        self.told.append(call)
        if call == self._fails_on:
            raise self._error


def rows(*values: str | None, **columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string()), **columns})


def test_a_task_without_rows_opens_nothing() -> None:
    delivery = Remembering()
    write_task(OPTIONS, delivery, iter([rows(), rows()]))
    assert delivery.told == ["nothing_written"]


def test_a_task_tells_its_message_after_everything_was_acknowledged() -> None:
    delivery = Remembering()
    write_task(OPTIONS, delivery, iter([rows(), rows("a"), rows("b", "c")]))
    assert delivery.told == ["open", "add", "add", "finish"]


@pytest.mark.parametrize("call", ["add", "finish"])
def test_a_writer_that_fails_is_aborted_and_its_error_fails_the_task(call: str) -> None:
    delivery = Remembering(fails_on=call)
    with pytest.raises(BrokerError, match="moved"):
        write_task(OPTIONS, delivery, iter([rows("a")]))
    assert delivery.told[-2:] == [call, "abort"]


def test_rows_that_cannot_be_made_abort_what_was_written_of_the_task() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows("a")
        raise ValueError("the frame could not be computed")

    delivery = Remembering()
    with pytest.raises(ValueError, match="could not be computed"):
        write_task(OPTIONS, delivery, failing())
    assert delivery.told == ["open", "add", "abort"]


def test_a_record_too_large_for_the_client_is_told_with_its_row() -> None:
    delivery = Remembering(
        fails_on="add", error=RecordTooLarge("a batch of 9 bytes, where buffer.memory is 5")
    )
    with pytest.raises(RowRefused, match=r"row 0 of its task: a batch of 9 bytes.*raise kafka.buffer.memory"):
        write_task(OPTIONS, delivery, iter([rows("a")]))
    assert delivery.told[-1] == "abort"


def test_a_record_has_the_time_of_its_row() -> None:
    delivery = Remembering()
    times = pa.array([1_700_000_000_123_456, None], pa.timestamp("us", tz="UTC"))
    write_task(OPTIONS, delivery, iter([rows("told", "now", timestamp=times)]))
    written = {
        record.value: record.timestamp
        for _, _, content in delivery.batches
        for record in decode_records(content)
    }
    assert written[b"told"] == 1_700_000_000_123
    assert written[b"now"] > 1_700_000_000_123


def test_other_columns_are_left_out() -> None:
    delivery = Remembering()
    write_task(OPTIONS, delivery, iter([rows("a", offset=pa.array([7]), note=pa.array(["x"]))]))
    assert delivery.told == ["open", "add", "finish"]


def test_batches_are_no_larger_than_the_topic_takes_them() -> None:
    delivery = Remembering(bytes_max=2000)
    write_task(OPTIONS, delivery, iter([rows(*["v" * 100] * 200)]))
    assert len(delivery.batches) > 10
    assert all(len(content) <= 2000 for _, _, content in delivery.batches)


def test_a_record_too_large_for_its_topic_is_told_with_its_row_and_the_limit() -> None:
    delivery = Remembering(bytes_max=2000)
    with pytest.raises(
        RowRefused,
        match=r"row 4 of its task is too large: \d+ bytes as a record, where topic 't' has max.message.bytes=2000",  # noqa: E501
    ):
        write_task(OPTIONS, delivery, iter([rows("a", "b"), rows("c", "d", "e" * 2000, "f")]))
    assert delivery.told[-1] == "abort"


def test_a_transactional_id_of_the_users_own_is_refused() -> None:
    options = Options.parse(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.transactional.id": "mine"}
    )
    with pytest.raises(SettingsError, match=r"'kafka\.transactional\.id' cannot be set"):
        BatchSink(options, StructType([StructField("value", StringType())]))
