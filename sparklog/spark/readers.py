"""What executors do: read ranges of offsets as Arrow.

driver     SubscribedTopics (where logs start and end) -> plan -> InputPartitions, each with some ranges of offsets
executor   RangeReader (whole batches) -> columns -> pyarrow.RecordBatch, the very buffers the kernel filled
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from sparklog.client.failures import OffsetOutOfRange
from sparklog.client.ranges import RangeReader
from sparklog.model import Offset
from sparklog.spark import plan
from sparklog.spark.arrow import ArrowColumns
from sparklog.spark.loss import report_loss
from sparklog.spark.options import Options
from sparklog.spark.plan import OffsetRange


def record_batches(options: Options, schema: StructType, pieces: Sequence[OffsetRange] | None) -> Iterator[pa.RecordBatch]:
    """The records of some ranges as Arrow, each range in order of offset; offsets missing in between are normal.

    Spark makes a read without ranges into one task without any: `pieces` is None.
    """
    if pieces is None:
        return
    with RangeReader(options.client) as reader:
        for piece in pieces:
            yield from _of_range(reader, options, schema, piece)


def _of_range(reader: RangeReader, options: Options, schema: StructType, piece: OffsetRange) -> Iterator[pa.RecordBatch]:
    columns = ArrowColumns(schema, piece.partition, check_crcs=options.client.check_crcs)
    start = piece.start
    while start < piece.limit:
        try:
            for batches in reader.read(piece.partition.topic, piece.partition.partition, start, piece.limit):
                for rows, next_offset in columns.record_batches(batches, start, piece.limit):
                    if rows.num_rows:
                        yield rows
                    start = next_offset
                del batches  # else their buffer could not be used again
            return
        except OffsetOutOfRange as error:
            log_start = Offset(error.log_start_offset)
            if not start < log_start:
                raise
            left = OffsetRange(piece.partition, start, piece.limit)
            report_loss(plan.lost([left], {piece.partition: log_start}), options)
            start = log_start
