"""Batch and stream sinks: executors build record batches from Arrow columns and check every acknowledgement.

    driver     Sink: checks the columns of the frame's schema before any task runs
    executor   Arrow batch -> rows by topic -> columns kernel (partitioned, encoded) -> TaskWriter -> message
    driver     commit(messages), according to `delivery`

`rows` maps rows to records and `delivery` commits them; this module combines the two.
"""

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.client.failures import BatchRefused, RecordTooLarge
from sparklog.client.settings import ClientSettings
from sparklog.errors import SparklogError
from sparklog.record import columns as columns_module
from sparklog.record.arrow import binary_column, fixed_column, headers_column
from sparklog.record.columns import BATCH_BYTES_MAX, PartitionBatch, write_batches
from sparklog.record.compression import Codec
from sparklog.spark.delivery import NO_BATCH, Delivery, Task, TaskWriter
from sparklog.spark.exactly_once import delivery_for_batch, delivery_for_stream
from sparklog.spark.options import Options
from sparklog.spark.rows import (
    RowRefused,
    TopicRows,
    WrittenRows,
    check_frame,
    check_partitions,
    check_timestamps,
    frame_arrow_schema,
    rows_by_topic,
    written_columns,
)
from sparklog.spark.shipping import Portable
from sparklog.spark.workers import settle

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        DataSourceStreamArrowWriter = DataSourceStreamWriter

STREAMS_GIVE_ROWS = DataSourceStreamArrowWriter is DataSourceStreamWriter
"""Spark 4.0 has no Arrow writer for streams."""

ROWS_PER_BATCH = 10_000
_INT_MAX = 2**31 - 1


class BatchSink(Portable, DataSourceArrowWriter):
    """Appends a DataFrame."""

    def __init__(self, options: Options, schema: StructType, delivery: Delivery | None = None) -> None:
        check_frame(schema, options)
        self._options = options
        self._delivery = delivery_for_batch(options) if delivery is None else delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(self._options, self._delivery, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._delivery.commit(messages, NO_BATCH)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._delivery.abort(messages, NO_BATCH)


class StreamSink(Portable, DataSourceStreamArrowWriter):
    """Appends each micro-batch."""

    def __init__(self, options: Options, schema: StructType, delivery: Delivery | None = None) -> None:
        check_frame(schema, options)
        self._options = options
        self._schema = schema
        self._delivery = delivery_for_stream(options) if delivery is None else delivery

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = batches_of_rows(iterator, self._schema) if STREAMS_GIVE_ROWS else iterator
        return write_task(self._options, self._delivery, batches)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._delivery.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._delivery.abort(messages, batchId)


def write_task(
    options: Options, delivery: Delivery, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    """Writes every row and returns when all are acknowledged; raises the error of a row, of a batch, or of
    the rows' source.
    """
    task = Task.current()
    writer: TaskWriter | None = None
    records: RecordMaker | None = None
    written = 0
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None or records is None:
                writer = delivery.open(task)
                records = RecordMaker(writer, options.client, first_partition=task.partition)
            for rows in rows_by_topic(written_columns(batch), options.topic, rows_before=written):
                records.write(rows, rows_before=written, now_ms=time.time_ns() // 1_000_000)
            written += batch.num_rows
        message = delivery.nothing_written(task) if writer is None else writer.finish()
    except BaseException as error:
        if writer is not None:
            writer.abort()
        if records is not None and isinstance(error, BatchRefused):
            raise records.refused(error) from error
        raise
    settle()
    return message


class TopicLimits(NamedTuple):
    """The limits of a topic: partitions `[0, partition_count)`, and the maximum size of a batch in bytes."""

    partition_count: int
    message_bytes_max: int


class RecordMaker:
    """Builds record batches from rows for a writer, up to the size that each topic accepts."""

    def __init__(self, writer: TaskWriter, settings: ClientSettings, *, first_partition: int) -> None:
        """Rows without keys begin with partition `first_partition` modulo the number of partitions, so that
        tasks spread.
        """
        self._writer = writer
        self._codec = Codec[settings.compression_type.upper()]
        self._level = settings.compression_level
        self._first_partition = first_partition
        self._topics: dict[str, TopicLimits] = {}
        self._sticky: dict[str, int] = {}
        self._written = WrittenRows()

    def write(self, rows: TopicRows, *, rows_before: int, now_ms: int) -> None:
        """Sends the rows; `rows_before` is their position in the task, for errors; `now_ms` is the
        timestamp of rows without one.
        """
        limits = self._limits(rows.topic)
        check_partitions(rows, limits.partition_count, rows_before=rows_before)
        check_timestamps(rows, rows_before=rows_before)
        self._written.add(rows, rows_before=rows_before)
        for built in self._built(rows, limits, rows_before=rows_before, now_ms=now_ms):
            number = rows.number_of(built.first_row, rows_before)
            if built.record_count == 1 and len(built.batch) > limits.message_bytes_max:
                raise RowRefused(
                    f"row {number} of its task is too large: {len(built.batch)} bytes as a record,"
                    f" where topic {rows.topic!r} has max.message.bytes={limits.message_bytes_max}"
                )
            try:
                self._writer.add(rows.topic, built.partition, built.batch, built.record_count)
            except RecordTooLarge as refused:
                if refused.topic_partition is not None:
                    raise  # of a row before
                raise RowRefused(
                    f"row {number} of its task: {refused}; raise kafka.buffer.memory"
                ) from refused

    def refused(self, error: BatchRefused) -> SparklogError:
        """The error with the row that caused it, if that is known."""
        return self._written.refused(error, now_ms=time.time_ns() // 1_000_000)

    def _limits(self, topic: str) -> TopicLimits:
        """The limits of the topic, fetched once per task."""
        limits = self._topics.get(topic)
        if limits is None:
            count, bytes_max = self._writer.partition_count(topic), self._writer.message_bytes_max(topic)
            limits = self._topics[topic] = TopicLimits(count, _INT_MAX if bytes_max is None else bytes_max)
            self._sticky[topic] = self._first_partition % count
        return limits

    def _built(
        self, rows: TopicRows, limits: TopicLimits, *, rows_before: int, now_ms: int
    ) -> list[PartitionBatch]:
        columns = {name: rows.rows.column(name) for name in rows.rows.schema.names}
        try:
            batches, self._sticky[rows.topic] = write_batches(
                rows.rows.num_rows,
                value=binary_column(columns["value"]),
                key=binary_column(columns["key"]) if "key" in columns else None,
                headers=headers_column(columns["headers"]) if "headers" in columns else None,
                partitions=fixed_column(columns["partition"]) if "partition" in columns else None,
                timestamps=fixed_column(columns["timestamp"]) if "timestamp" in columns else None,
                timestamp_ms=now_ms,
                partition_count=limits.partition_count,
                sticky_partition=self._sticky[rows.topic],
                batch_bytes_max=min(BATCH_BYTES_MAX, limits.message_bytes_max),
                codec=self._codec,
                compression_level=self._level,
            )
        except columns_module.RowRefused as refused:
            raise RowRefused(
                f"row {rows.number_of(refused.row, rows_before)} of its task: {refused.reason}"
            ) from refused
        return batches


def batches_of_rows(rows: Iterator[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches, for a Spark whose streams pass rows."""
    arrow = frame_arrow_schema(schema)
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist(
            [{name: row[name] for name in arrow.names} for row in (r.asDict(True) for r in chunk)],
            schema=arrow,
        )
