"""What executors do: read ranges of offsets as Arrow.

driver     SubscribedTopics (log start and end offsets) -> plan -> InputPartitions with ranges of offsets
executor   RangeReader (whole batches) -> columns -> decoded keys and values -> pyarrow.RecordBatch,
             over the buffers that the kernel filled
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from sparklog.client.failures import OffsetOutOfRange, UnknownTopic
from sparklog.client.ranges import RangeReader
from sparklog.model import Offset
from sparklog.spark import plan
from sparklog.spark.arrow import ArrowColumns
from sparklog.spark.connections import range_reader
from sparklog.spark.decoding import Decoding
from sparklog.spark.loss import report_loss
from sparklog.spark.options import Options
from sparklog.spark.plan import OffsetRange
from sparklog.spark.workers import settle

FEW_ROWS: Final = 4096
"""Smaller record batches are combined: each costs Spark some hundred microseconds, regardless of its size."""
FEW_BYTES: Final = 4 << 20
"""A record batch of this size is not combined: its fixed cost in Spark is small by comparison."""


def record_batches(
    options: Options, schema: StructType, pieces: Sequence[OffsetRange] | None
) -> Iterator[pa.RecordBatch]:
    """The records of some ranges as Arrow, each range in order of offset; missing offsets in between are
    normal.

    Spark runs a read without ranges as one task; its `pieces` is None.
    """
    if pieces is None:
        return
    decoding = Decoding.of(options, schema)
    with range_reader(options.client) as reader:
        yield from gathered(
            rows for piece in pieces for rows in _of_range(reader, options, schema, decoding, piece)
        )
    settle()


def gathered(
    batches: Iterable[pa.RecordBatch], rows_min: int = FEW_ROWS, bytes_min: int = FEW_BYTES
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, with batches below `rows_min` rows combined until they have
    `rows_min` rows or `bytes_min` bytes.
    """
    few: list[pa.RecordBatch] = []
    row_count = byte_count = 0
    for batch in batches:
        if batch.num_rows < rows_min:
            few.append(batch)
            row_count += batch.num_rows
            byte_count += batch.nbytes
            if row_count < rows_min and byte_count < bytes_min:
                continue
            batch = None
        yield from _together(few)
        few, row_count, byte_count = [], 0, 0
        if batch is not None:
            yield batch
    yield from _together(few)


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch, or several if the text or bytes of one column exceed 2 GiB."""
    return batches if len(batches) < 2 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _of_range(
    reader: RangeReader, options: Options, schema: StructType, decoding: Decoding, piece: OffsetRange
) -> Iterator[pa.RecordBatch]:
    columns = ArrowColumns(schema, piece.partition, decoding=decoding, check_crcs=options.client.check_crcs)
    start = piece.start
    while start < piece.limit:
        try:
            for batches in reader.read(
                piece.partition.topic, piece.partition.partition, start, piece.limit, topic_id=piece.topic_id
            ):
                for rows, next_offset in columns.record_batches(batches, start, piece.limit):
                    if rows.num_rows:
                        yield rows
                    start = next_offset
                del batches  # frees the buffer for the next reply
            return
        except OffsetOutOfRange as error:
            log_start = Offset(error.log_start_offset)
            if not start < log_start:
                raise
            report_loss(plan.lost([piece.between(start, piece.limit)], {piece.partition: log_start}), options)
            start = log_start
        except UnknownTopic as error:
            report_loss(
                [f"{error}; offsets {start} to {piece.limit - 1} of {piece.partition} are gone with it"],
                options,
            )
            return
