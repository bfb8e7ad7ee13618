"""Batch and stream sinks: record batches made from Arrow columns on the executors, every acknowledgement checked before a task succeeds.

    driver     Sink columns checked against the frame's schema, before anything runs
    executor   Arrow batch -> rows by topic -> columns kernel (partitioned, encoded) -> BatchWriter -> flush -> TaskWritten
    driver     commit(messages): nothing is left to do; this is where transactions will be decided

Records are written at least once: a task that Spark runs again writes again. An empty task opens no connection.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.client.settings import ClientSettings
from sparklog.client.writer import BatchWriter
from sparklog.record import columns as columns_module
from sparklog.record.columns import write_batches
from sparklog.record.compression import Codec
from sparklog.spark.arrow import binary_column, fixed_column, headers_column
from sparklog.spark.options import Options
from sparklog.spark.rows import RowRefused, TopicRows, check_frame, check_partitions, frame_arrow_schema, rows_by_topic

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        DataSourceStreamArrowWriter = DataSourceStreamWriter

STREAMS_GIVE_ROWS = DataSourceStreamArrowWriter is DataSourceStreamWriter
"""Spark 4.0 knows no Arrow writer for streams."""

ROWS_PER_BATCH = 10_000


@dataclass
class TaskWritten(WriterCommitMessage):
    """What one task wrote, all of it acknowledged."""

    record_count: int


class BatchSink(DataSourceArrowWriter):
    """Appends a DataFrame."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_frame(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: what tasks reported is acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back: what failed tasks wrote stays in the log."""


class StreamSink(DataSourceStreamArrowWriter):
    """Appends each micro-batch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_frame(schema, options)
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = batches_of_rows(iterator, self._schema) if STREAMS_GIVE_ROWS else iterator
        return write_task(self._options, batches)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: what tasks reported is acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back: what failed tasks wrote stays in the log, and the replayed micro-batch is written again."""


def write_task(options: Options, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
    """Writes every row and returns when all are acknowledged; raises what made a row or a batch fail."""
    written = 0
    with ExitStack() as stack:
        writer: TopicWriter | None = None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:
                writer = TopicWriter(stack.enter_context(BatchWriter(options.client)), options.client)
            for rows in rows_by_topic(batch, options.topic, rows_before=written):
                writer.write(rows, rows_before=written)
            written += batch.num_rows
        if writer is not None:
            writer.flush()
    return TaskWritten(written)


class TopicWriter:
    """Makes record batches of rows and hands them to the client; knows how many partitions each topic has."""

    def __init__(self, client: BatchWriter, settings: ClientSettings) -> None:
        self._client = client
        self._codec = Codec[settings.compression_type.upper()]
        self._level = settings.compression_level
        self._partition_counts: dict[str, int] = {}
        self._sticky: dict[str, int] = {}

    def write(self, rows: TopicRows, *, rows_before: int) -> None:
        """Sends the rows off; `rows_before` tells where they stand in their task, for errors."""
        count = self._partition_counts.get(rows.topic)
        if count is None:
            count = self._partition_counts[rows.topic] = self._client.partition_count(rows.topic)
            self._sticky[rows.topic] = _task_number() % count
        check_partitions(rows, count, rows_before=rows_before)
        columns = {name: rows.rows.column(name) for name in rows.rows.schema.names}
        try:
            batches, self._sticky[rows.topic] = write_batches(
                rows.rows.num_rows,
                value=binary_column(columns["value"]),
                key=binary_column(columns["key"]) if "key" in columns else None,
                headers=headers_column(columns["headers"]) if "headers" in columns else None,
                partitions=fixed_column(columns["partition"]) if "partition" in columns else None,
                timestamp_ms=time.time_ns() // 1_000_000,
                partition_count=count,
                sticky_partition=self._sticky[rows.topic],
                codec=self._codec,
                compression_level=self._level,
            )
        except columns_module.RowRefused as refused:
            raise RowRefused(f"row {rows.number_of(refused.row, rows_before)} of its task: {refused.reason}") from refused
        for built in batches:
            self._client.add(rows.topic, built.partition, built.batch, built.record_count)

    def flush(self) -> None:
        """Returns when everything is acknowledged."""
        self._client.flush()


def batches_of_rows(rows: Iterator[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches, for a Spark whose streams hand over rows."""
    arrow = frame_arrow_schema(schema)
    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist(
            [{name: row[name] for name in arrow.names} for row in (r.asDict(True) for r in chunk)], schema=arrow
        )


def _task_number() -> int:
    """Tasks without keys begin with different partitions."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
