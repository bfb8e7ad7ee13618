"""How many bytes a range of offsets holds, about.

Brokers tell the size of a partition's log (DescribeLogDirs), as it lies on disk: compressed, with headers.
Divided by its span of offsets that is an average over the whole log. The growth between two observations
is a better estimate of the next read, and is used where the log grew and lost nothing meanwhile. Without
sizes, an offset counts as `BYTES_UNKNOWN`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sparklog.model import Offset, TopicPartition

BYTES_UNKNOWN = 1024
"""Bytes per offset where no broker tells; on the large side, so that limits in bytes are kept."""
_OFFSETS_FOR_RECENT = 16
"""So many new offsets tell more than the average of the whole log."""


class Observed(NamedTuple):
    """A log as it was seen: offsets `[log_start, log_end)` in so many bytes."""

    log_start: Offset
    log_end: Offset
    size_bytes: int


class SizeEstimates:
    """Bytes per offset of partitions, from the observed sizes of their logs."""

    __slots__ = ("_observed", "_rates")

    def __init__(self) -> None:
        self._observed: dict[TopicPartition, Observed] = {}
        self._rates: dict[TopicPartition, float] = {}

    def observe(self, partition: TopicPartition, now: Observed) -> None:
        """Take in how large a log is now."""
        before = self._observed.get(partition)
        self._observed[partition] = now
        span = now.log_end - now.log_start
        if span <= 0 or now.size_bytes <= 0:
            return
        rate = now.size_bytes / span
        if before is not None and before.log_start == now.log_start and now.size_bytes > before.size_bytes:
            grown = now.log_end - before.log_end
            if grown >= _OFFSETS_FOR_RECENT:
                rate = (now.size_bytes - before.size_bytes) / grown
            elif grown > 0:
                rate = max(rate, self._rates.get(partition, 0.0))
        self._rates[partition] = rate

    def knows(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all of these were observed."""
        return all(partition in self._observed for partition in partitions)

    def per_offset(self, partition: TopicPartition) -> float:
        """Bytes of one offset, above zero."""
        return self._rates.get(partition, BYTES_UNKNOWN)

    def bytes_of(self, partition: TopicPartition, offsets: int) -> int:
        """Bytes of so many offsets."""
        return int(self.per_offset(partition) * max(0, offsets))
