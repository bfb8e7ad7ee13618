"""Micro-batches of a stream, planned in a process beside the driver that lives as long as the query.

Readers are pickled on their way to executors, so they hold options and a schema, and open a connection at the first question. Only in the
process of the query does a `StreamReader` remember anything, and nothing that it could not ask for again.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.spark import plan
from sparklog.spark.loss import report_loss, still_there
from sparklog.spark.offsets import PartitionOffsets, StreamOffset
from sparklog.spark.options import Options, Place, Position
from sparklog.spark.readers import record_batches
from sparklog.spark.topics import SubscribedTopics

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark before 4.2: a run with AvailableNow is one batch

        class SupportsTriggerAvailableNow:
            pass


IDLE_WAIT_S = 0.05
"""How long a stream with nothing to read waits before it answers so; Spark asks again 10 ms later, each time over two processes."""
IDLE_POLL_S = 0.01
BEHIND_RETRIES = 3
BEHIND_RETRY_S = 0.2
"""A new leader may for a moment not know how far its log could be read; only what stays behind is a loss."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of offsets. The position is Spark's, as JSON; see `offsets` for what it carries and why."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._topics = SubscribedTopics(options)
        self._target: PartitionOffsets | None = None
        """Where an AvailableNow run ends, frozen when it starts."""
        self._latest: PartitionOffsets | None = None
        self._planned_end: StreamOffset | None = None
        """For Spark before 4.2, which does not tell where the last micro-batch ended."""

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        partitions = self._topics.partitions()
        earliest, latest = self._topics.earliest(partitions), self._topics.latest(partitions)
        position = self._options.starting_offsets or Position(Place.LATEST)
        start = plan.resolve(position, option="startingOffsets", earliest=earliest, latest=latest)
        return StreamOffset.beginning(start).to_json()

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._topics.latest(self._topics.partitions())

    def latestOffset(self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None) -> dict[str, object]:  # noqa: N802
        current = self._position(start)
        # Spark before 4.2 hands over no limit; later ones hand back ours, or one without rows where the trigger wants everything.
        rows = self._options.max_offsets_per_trigger if limit is None else getattr(limit, "max_rows", None)
        end = self._next_offset(current, rows)
        if self._target is None and start is not None:
            deadline = time.monotonic() + IDLE_WAIT_S
            while end == current and time.monotonic() < deadline:
                time.sleep(IDLE_POLL_S)
                end = self._next_offset(current, rows)
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        return None if self._latest is None else StreamOffset.beginning(self._latest).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._planned_end = StreamOffset.from_json(end)
        ranges = plan.ranges_between(StreamOffset.from_json(start), self._planned_end)
        if not ranges:
            return []
        there = set(self._topics.partitions())
        log_start = self._topics.earliest([r.partition for r in ranges if r.partition in there])
        ranges = still_there(ranges, log_start, self._options)
        return [InputPartition((piece,)) for piece in plan.split(ranges, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return record_batches(self._options, self._schema, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the position is kept by Spark's checkpoint alone."""

    def stop(self) -> None:
        self._topics.close()

    def __getstate__(self) -> dict[str, object]:
        return {"options": self._options, "schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"], state["schema"])  # type: ignore[misc]

    def _position(self, start: dict[str, Any] | None) -> StreamOffset:
        if start is not None:
            return StreamOffset.from_json(start)
        return self._planned_end or StreamOffset.from_json(self.initialOffset())

    def _next_offset(self, current: StreamOffset, rows: int | None) -> StreamOffset:
        latest = self._latest_not_behind(current)
        losses = plan.behind_position(current, latest)
        if losses:
            report_loss(losses, self._options)
            shorter = [tp for tp in current.reached if tp in latest and latest[tp] < current.reached[tp]]
            gone = [tp for tp in current.reached if tp not in latest]
            current = plan.begin_anew(current, self._topics.earliest(shorter), gone)
        earliest_of_new = self._topics.earliest(tp for tp in latest if tp not in current.began)
        return plan.next_offset(current, latest=latest, earliest_of_new=earliest_of_new, limit=rows)

    def _latest_not_behind(self, current: StreamOffset) -> PartitionOffsets:
        if self._target is not None:
            return self._target
        for attempt in range(BEHIND_RETRIES + 1):
            self._latest = self._topics.latest(self._topics.partitions())
            if attempt == BEHIND_RETRIES or not plan.behind_position(current, self._latest):
                break
            time.sleep(BEHIND_RETRY_S)
        assert self._latest is not None
        return self._latest
