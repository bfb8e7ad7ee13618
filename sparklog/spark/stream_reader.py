"""Micro-batches of a stream, planned in a process beside the driver that lives as long as the query.

    latestOffset   refresh topics and ends, detect losses, apply the limits; wait briefly if there is nothing
    partitions     the ranges between two stored offsets, divided into tasks
    commit         all records below an offset are processed: commit it to the consumer group

Spark pickles readers to executors, so a reader holds options and a schema, and opens connections at its first
request. Only in the planning process does a `StreamReader` have state, all of which it can fetch again.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.arrow.ranges import OffsetRange
from sparklog.client.consumer.standing_fetch import StandingFetch
from sparklog.errors import SettingsError, SparklogError
from sparklog.model import Micros
from sparklog.spark import plan
from sparklog.spark.group_offsets import GroupOffsets
from sparklog.spark.limits import Limits
from sparklog.spark.loss import report_loss, still_there
from sparklog.spark.offsets import OffsetUnreadable, PartitionOffsets, StreamOffset
from sparklog.spark.option_values import WhenLost
from sparklog.spark.options import Options
from sparklog.spark.plan import TINY_BYTES
from sparklog.spark.positions import LATEST, ByOffset
from sparklog.spark.progress import Growth, by_topic, description
from sparklog.spark.shipping import Portable
from sparklog.spark.stream_topics import StreamTopics
from sparklog.spark.task_clients import input_partition, options_of_pickle, options_of_task

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2, a run with AvailableNow is one batch

        class SupportsTriggerAvailableNow:
            pass


IDLE_WAIT_US = 50_000
"""The wait of a stream with nothing to read before it answers; Spark asks again 10 ms later, through two
processes.
"""


HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The environment variable that PySpark reads when it sends an exception to the JVM."""


@contextmanager
def cause_first() -> Iterator[None]:
    """Makes PySpark omit the traceback of a SparklogError, so that Spark's message begins with the cause.

    Only in the process that plans a stream, which belongs to the query and ends with the error: Spark's
    other processes run user code, whose tracebacks must stay. It does not wrap the constructor of a reader:
    if that fails, PySpark raises UnboundLocalError over it, and only the traceback has the cause.
    """
    try:
        yield
    except SparklogError:
        if hasattr(sys.modules["__main__"], "partitions_func"):
            os.environ[HIDE_TRACEBACK] = "1"
        raise


class StreamReader(Portable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches of offsets. Spark stores the position, as JSON; see `offsets`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._topics = StreamTopics(options, time.sleep)
        self._standing = StandingFetch(options.client)
        self._group = GroupOffsets(options)
        self._limits = Limits(options)
        self._nothing_new_at: StreamOffset | None = None
        """The offset at which the last answer found nothing new: from there, only changes are looked up."""
        self._planned: StreamOffset | None = None
        """The end of the last micro-batch, for Spark before 4.2, which does not pass it."""
        self._reported: dict[str, object] | None = None
        self._growth = Growth()

    # -- called by Spark -------------------------------------------------------------------------------------

    @cause_first()
    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        return self._initial().to_json()

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        return self._limits.for_spark()

    @cause_first()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._topics.freeze()

    @cause_first()
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, object]:
        current = self._position(start)
        self._group.commit(
            current.reached
        )  # Spark requests offsets after `current` only once it has committed everything below
        end = self._next(current, limit)
        if end == current and not self._topics.is_frozen:
            until = Micros(time.monotonic_ns() // 1000 + IDLE_WAIT_US)
            while end == current and self._has_news(until):
                end = self._next(current, limit)
        self._nothing_new_at = current if end == current else None
        if end != current:
            self._limits.began(time.monotonic())
        self._reported = self._report(end)
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        return self._reported

    @cause_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
        self._planned = last
        if last.is_foreign and not first.is_foreign and not isinstance(self._options.start, ByOffset):
            raise OffsetUnreadable(
                "the first micro-batch of this checkpoint of Spark's Kafka connector was never finished, and "
                "only the connector knows where"
                " it began: give that place as JSON in startingOffsets (it is in the file sources/0/0 of the "
                "checkpoint)"
            )
        ranges = plan.ranges_between(
            first, last, self._topics.log_starts(plan.unknown_starts(first, last), last)
        )
        if not ranges:
            return []
        ranges = still_there(
            ranges, self._topics.log_starts([r.partition for r in ranges], last), self._options
        )
        return [input_partition(pieces, self._options) for pieces in self._tasks(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from sparklog.spark.readers import record_batches  # a process that only plans does not need it

        return record_batches(options_of_task(self._options, partition), self._schema, partition.value)

    @cause_first()
    def commit(self, end: dict[str, Any]) -> None:
        self._group.commit(StreamOffset.from_json(end).reached)

    def stop(self) -> None:
        self._topics.close()
        self._standing.close()
        self._group.close()

    def __getstate__(self) -> dict[str, object]:
        return {"options": options_of_pickle(self._options), "schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"], state["schema"])  # type: ignore[misc]

    # -- inside ----------------------------------------------------------------------------------------------

    @property
    def _planned_after_loss(self) -> bool:
        """Whether the last plan belongs to a stream that has lost records."""
        return self._planned is not None and bool(self._planned.lost)

    def _initial(self) -> StreamOffset:
        options, topics = self._options, self._topics.topics
        now = topics.look()
        earliest, latest = topics.earliest(now.partitions), topics.latest(now.partitions)
        start = topics.resolve(
            options.start or LATEST,
            option=options.start_option,
            earliest=earliest,
            latest=latest,
            now_ms=time.time_ns() // 1_000_000,
            must_match=options.start_must_match,
        )
        beyond = [
            f"{tp} ends at offset {latest[tp]}, not {start[tp]}"
            for tp in sorted(start)
            if start[tp] > latest[tp]
        ]
        if beyond:
            reason = f"option {options.start_option!r} lies beyond the end of the log: {'; '.join(beyond)}"
            if options.data_loss is WhenLost.FAIL:
                raise SettingsError(reason)
            warnings.warn(f"{reason}; reading starts at the end", stacklevel=2)
            start = {tp: min(offset, latest[tp]) for tp, offset in start.items()}
        return StreamOffset.beginning(start, now.ids)

    def _position(self, start: dict[str, Any] | None) -> StreamOffset:
        if start is not None:
            return StreamOffset.from_json(start)
        return self._planned or self._initial()

    def _next(self, current: StreamOffset, limit: "ReadLimit | None") -> StreamOffset:
        """The end of the next micro-batch after `current`; `current` itself if there is none."""
        is_known = self._nothing_new_at == current
        self._nothing_new_at = None  # a second look in the same call follows news
        topics = self._topics
        topics.refresh(current, is_known=is_known)
        anew = self._without_lost(current)
        new = topics.earliest_there([tp for tp in topics.ends if tp not in anew.reached])
        whole = plan.next_offset(anew, latest=topics.ends, earliest_of_new=new, ids=topics.ids)
        # A frozen target must be reached, and an end that adds no records need not wait.
        may_wait = anew is current and not topics.is_frozen and bool(plan.ranges_between(current, whole))
        if may_wait and self._limits.puts_off(current, whole, limit, time.monotonic()):
            return current
        return plan.next_offset(
            anew, latest=topics.ends, earliest_of_new=new, ids=topics.ids, limited=self._limited(limit)
        )

    def _limited(
        self, limit: "ReadLimit | None"
    ) -> Callable[[PartitionOffsets, PartitionOffsets], PartitionOffsets]:
        def limited(start: PartitionOffsets, end: PartitionOffsets) -> PartitionOffsets:
            moved = [tp for tp in end if end[tp] > start[tp]]
            per_offset = self._topics.per_offset(moved) if moved and self._limits.are_in_bytes else None
            return self._limits.limited(start, end, limit, per_offset)

        return limited

    def _without_lost(self, current: StreamOffset) -> StreamOffset:
        found = self._topics.losses(current)
        if not found:
            return current
        report_loss([loss.sentence for loss in found], self._options)
        return plan.begin_anew(current, found)

    def _has_news(self, until: Micros) -> bool:
        if not self._topics.ends:
            time.sleep(IDLE_WAIT_US / 1e6)  # the pattern matches no topic yet
            return False
        self._standing.watch(self._topics.ends)
        return self._standing.wait(until)

    def _tasks(self, ranges: Sequence[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
        options = self._options
        is_sized = options.max_bytes_per_partition is not None or len(ranges) > 1
        return plan.tasks(
            ranges,
            pieces_min=options.min_partitions,
            records_max=options.max_records_per_partition,
            bytes_max=options.max_bytes_per_partition,
            per_offset=self._topics.per_offset([r.partition for r in ranges]) if is_sized else None,
            tiny_bytes=TINY_BYTES,
        )

    def _report(self, end: StreamOffset) -> dict[str, object]:
        """The `latestOffset` of Spark's progress: description, log end offsets, lag of the micro-batch, and
        growth.

        Spark shows neither a description nor metrics of a Python source, so they are here; `lag` and
        `perSecond` omit partitions without lag or growth.
        """
        ends: PartitionOffsets = self._topics.ends
        lags = {tp: max(0, ends[tp] - end.reached.get(tp, ends[tp])) for tp in ends}
        behind = (
            {"avg": sum(lags.values()) / len(lags), "max": max(lags.values()), "min": min(lags.values())}
            if lags
            else {}
        )
        return {
            "behind": behind,
            "lag": by_topic({tp: lag for tp, lag in lags.items() if lag}),
            "off": by_topic(ends),
            "perSecond": by_topic(self._growth.per_second(ends, time.monotonic())),
            "source": description(self._options),
        }
