"""A batch read, planned on the driver once for a DataFrame and all frames derived from it.

With `lateBinding`, only the partitions are planned, and each task looks up the start and end of its
partition.
"""

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.arrow.ranges import OffsetRange
from sparklog.errors import SettingsError
from sparklog.model import ZERO_UUID, Offset, TopicPartition
from sparklog.spark import plan, positions
from sparklog.spark.loss import still_there
from sparklog.spark.offsets import PartitionOffsets
from sparklog.spark.options import Options
from sparklog.spark.plan import TINY_BYTES
from sparklog.spark.positions import EARLIEST, LATEST, Landmark
from sparklog.spark.shipping import Portable
from sparklog.spark.sizes import Observed, SizeEstimates
from sparklog.spark.task_clients import input_partition, options_of_pickle, options_of_task
from sparklog.spark.topics import SubscribedTopics


class BatchReader(Portable, DataSourceReader):
    """Plans the offset ranges of one DataFrame. Spark calls it once for all frames derived from that one."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with SubscribedTopics(self._options) as topics:
            now = topics.look()
            partitions = now.partitions
            earliest, latest = topics.earliest(partitions), topics.latest(partitions)
            start, end = self._bounds(topics, earliest, latest)
            if self._options.late_binding:
                whole = [
                    OffsetRange(tp, start[tp], max(start[tp], end[tp]), now.ids.get(tp.topic, ZERO_UUID))
                    for tp in partitions
                ]
                return [input_partition((r,), self._options) for r in whole]
            ranges = still_there(plan.ranges_of(start, end, now.ids), earliest, self._options)
            estimates = self._estimates(topics, [r.partition for r in ranges], earliest, latest)
        pieces = plan.tasks(
            ranges,
            pieces_min=self._options.min_partitions,
            records_max=self._options.max_records_per_partition,
            bytes_max=self._options.max_bytes_per_partition,
            per_offset=estimates.per_offset,
            tiny_bytes=TINY_BYTES,
        )
        return [input_partition(piece, self._options) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from sparklog.spark.readers import record_batches  # a process that only plans does not need it

        pieces, options = partition.value, options_of_task(self._options, partition)
        if options.late_binding and pieces is not None:
            pieces = _bound_late(options, pieces)
        return record_batches(options, self._schema, pieces)

    def __getstate__(self) -> dict[str, object]:
        return {"_options": options_of_pickle(self._options), "_schema": self._schema}

    def _bounds(
        self, topics: SubscribedTopics, earliest: PartitionOffsets, latest: PartitionOffsets
    ) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
        options, now_ms = self._options, time.time_ns() // 1_000_000
        start = topics.resolve(
            options.start or EARLIEST,
            option=options.start_option,
            earliest=earliest,
            latest=latest,
            now_ms=now_ms,
            must_match=options.start_must_match,
        )
        end = topics.resolve(
            options.end or LATEST, option=options.end_option, earliest=earliest, latest=latest, now_ms=now_ms
        )
        beyond = [
            f"{tp} ends at offset {latest[tp]}, not {end[tp]}" for tp in sorted(end) if end[tp] > latest[tp]
        ]
        if beyond:
            raise SettingsError(
                f"option {options.end_option!r} lies beyond the end of the log: {'; '.join(beyond)}"
            )
        return start, end

    def _estimates(
        self,
        topics: SubscribedTopics,
        read: Sequence[TopicPartition],
        earliest: PartitionOffsets,
        latest: PartitionOffsets,
    ) -> SizeEstimates:
        """The sizes of the partitions to read, if the number of tasks depends on them."""
        options, estimates = self._options, SizeEstimates()
        may_share = (
            len(read) > 1 and options.min_partitions is None and options.max_records_per_partition is None
        )
        if may_share or options.max_bytes_per_partition is not None:
            for tp, size in topics.sizes(read).items():
                estimates.observe(tp, Observed(earliest[tp], latest[tp], size))
        return estimates


def _bound_late(options: Options, pieces: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The ranges with their ends, and starts that are landmarks, looked up now."""
    start = options.start or EARLIEST
    end = options.end if isinstance(options.end, Landmark) else LATEST
    with SubscribedTopics(options) as topics:
        partitions = [piece.partition for piece in pieces]
        earliest, latest = topics.earliest(partitions), topics.latest(partitions)
    option = options.start_option
    begins = (
        {p.partition: p.start for p in pieces}
        if not isinstance(start, Landmark)
        else positions.resolve(start, option=option, earliest=earliest, latest=latest)
    )
    ends = positions.resolve(end, option=option, earliest=earliest, latest=latest)
    ranges = [piece.between(begins[piece.partition], ends[piece.partition]) for piece in pieces]
    return still_there([r for r in ranges if len(r)], earliest, options)
