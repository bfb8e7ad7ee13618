"""Reads ranges of offsets as Arrow: `RangeReader` (whole batches) -> columns -> decoded keys and values ->
pyarrow.RecordBatch, over the buffers that the kernel filled.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from sparklog.arrow.columns import ArrowColumns
from sparklog.arrow.ranges import OffsetRange, lost
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.failures import OffsetOutOfRange, UnknownTopic
from sparklog.model import Offset

FEW_ROWS: Final = 4096
"""Smaller record batches are combined: each costs its reader some hundred microseconds, regardless of its
size."""
FEW_BYTES: Final = 4 << 20
"""A record batch of this size is not combined: its fixed cost is small by comparison."""

ReportLoss = Callable[[Sequence[str]], None]
"""Takes a sentence for each loss; returns if the read continues without the lost records."""


def range_batches(
    reader: RangeReader, columns: ArrowColumns, piece: OffsetRange, report_loss: ReportLoss
) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order of offset; missing offsets in between are normal. `columns` are those
    of its partition.
    """
    start, partition = piece.start, piece.partition
    while start < piece.limit:
        try:
            for batches in reader.read(
                partition.topic, partition.partition, start, piece.limit, topic_id=piece.topic_id
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
            report_loss(lost([piece.between(start, piece.limit)], {partition: log_start}))
            start = log_start
        except UnknownTopic as error:
            report_loss([f"{error}; offsets {start} to {piece.limit - 1} of {partition} are gone with it"])
            return


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
