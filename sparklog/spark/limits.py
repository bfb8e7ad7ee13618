"""The size of one micro-batch: limits in offsets and in bytes, and the wait for a minimum."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparklog.model import TopicPartition
from sparklog.spark import plan
from sparklog.spark.offsets import PartitionOffsets, StreamOffset
from sparklog.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

PerOffset = Callable[[TopicPartition], float]


class Limits:
    """The limits of a query.

    Spark's Python API carries one limit at a time and no delay, so Spark gets the first one, and this class
    applies all of them. If Spark requests everything (Trigger.Once), it applies none.
    """

    __slots__ = ("_began_s", "_options")

    def __init__(self, options: Options) -> None:
        self._options = options
        self._began_s: float | None = None

    def for_spark(self) -> "ReadLimit":
        """The limit that Spark passes back with every micro-batch, unless its trigger reads everything."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @property
    def are_in_bytes(self) -> bool:
        """Whether `limited` depends on the sizes of logs."""
        return self._options.max_bytes_per_trigger is not None

    def limited(
        self,
        start: PartitionOffsets,
        end: PartitionOffsets,
        limit: "ReadLimit | None",
        per_offset: PerOffset | None,
    ) -> PartitionOffsets:
        """`end` reduced to what one micro-batch may read; `limit` is Spark's read limit, None before 4.2."""
        if _is_everything(limit):
            return end
        if self._options.max_offsets_per_trigger is not None:
            end = plan.rate_limited(self._options.max_offsets_per_trigger, start, end)
        if self._options.max_bytes_per_trigger is not None and per_offset is not None:
            end = plan.bytes_limited(self._options.max_bytes_per_trigger, start, end, per_offset)
        return end

    def puts_off(
        self, current: StreamOffset, whole: StreamOffset, limit: "ReadLimit | None", now_s: float
    ) -> bool:
        """Whether a micro-batch waits for more records than `whole` has. The first one after a start never
        waits.
        """
        if _is_everything(limit) or self._began_s is None:
            return False
        waited_ms = (now_s - self._began_s) * 1000
        least, delay_ms = self._options.min_offsets_per_trigger, self._options.max_trigger_delay_ms
        return plan.is_put_off(current, whole, least=least, waited_ms=waited_ms, delay_ms=delay_ms)

    def began(self, now_s: float) -> None:
        """Records the start of a micro-batch."""
        self._began_s = now_s


def _is_everything(limit: "ReadLimit | None") -> bool:
    return type(limit).__name__ == "ReadAllAvailable"
