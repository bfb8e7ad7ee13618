"""What executors do: read ranges of offsets as Arrow.

driver     SubscribedTopics (log start and end offsets) -> plan -> InputPartitions with ranges of offsets
executor   `sparklog.arrow.reading`, by a reader whose connections are kept between tasks
"""

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from sparklog.arrow.columns import ArrowColumns
from sparklog.arrow.decoding import Decoding
from sparklog.arrow.formats.names import Mode
from sparklog.arrow.ranges import OffsetRange
from sparklog.arrow.reading import gathered, range_batches
from sparklog.client.consumer.ranges import RangeReader
from sparklog.spark.connections import range_reader
from sparklog.spark.loss import report_loss
from sparklog.spark.options import Options
from sparklog.spark.schema import arrow_schema, parts_of
from sparklog.spark.workers import settle


def record_batches(
    options: Options, schema: StructType, pieces: Sequence[OffsetRange] | None
) -> Iterator[pa.RecordBatch]:
    """The records of some ranges as Arrow, each range in order of offset; missing offsets in between are
    normal.

    Spark runs a read without ranges as one task; its `pieces` is None.
    """
    if pieces is None:
        return
    columns = arrow_schema(schema)
    decoding = Decoding.of(parts_of(options), columns, is_failfast=options.mode is Mode.FAILFAST)
    with range_reader(options.client) as reader:
        reader.expect(piece.partition.topic for piece in pieces)
        yield from gathered(
            rows for piece in pieces for rows in _of_range(reader, options, columns, decoding, piece)
        )
    settle()


def _of_range(
    reader: RangeReader, options: Options, schema: pa.Schema, decoding: Decoding, piece: OffsetRange
) -> Iterator[pa.RecordBatch]:
    columns = ArrowColumns(schema, piece.partition, decoding=decoding, check_crcs=options.client.check_crcs)
    return range_batches(reader, columns, piece, partial(report_loss, options=options))
