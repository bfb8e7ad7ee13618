"""A batch read: planned on the driver, once for a DataFrame and all derived from it."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.errors import SettingsError
from sparklog.spark import plan
from sparklog.spark.loss import still_there
from sparklog.spark.options import Options, Place, Position
from sparklog.spark.readers import record_batches
from sparklog.spark.topics import SubscribedTopics


class BatchReader(DataSourceReader):
    """The ranges of offsets of one DataFrame; Spark plans them once and keeps them for all frames derived from it."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with SubscribedTopics(self._options) as topics:
            partitions = topics.partitions()
            earliest, latest = topics.earliest(partitions), topics.latest(partitions)
        start_position = self._options.starting_offsets or Position(Place.EARLIEST)
        end_position = self._options.ending_offsets or Position(Place.LATEST)
        start = plan.resolve(start_position, option="startingOffsets", earliest=earliest, latest=latest)
        end = plan.resolve(end_position, option="endingOffsets", earliest=earliest, latest=latest)
        beyond = [f"{tp} ends at offset {latest[tp]}, not {end[tp]}" for tp in sorted(end) if end[tp] > latest[tp]]
        if beyond:
            raise SettingsError(f"option 'endingOffsets' lies beyond the end of the log: {'; '.join(beyond)}")
        ranges = still_there(plan.ranges_of(start, end), earliest, self._options)
        return [InputPartition((piece,)) for piece in plan.split(ranges, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return record_batches(self._options, self._schema, partition.value)
