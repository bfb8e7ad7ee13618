"""Estimates the bytes in a range of offsets.

Brokers report the size of a partition's log on disk (DescribeLogDirs): compressed, with headers. Divided by
its span of offsets, it is an average over the whole log. The growth between two observations is a better
estimate of the next read, and is used if the log grew and lost nothing in between. Without sizes, an offset
counts as `BYTES_UNKNOWN`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sparklog.model import Offset, TopicPartition

BYTES_UNKNOWN = 1024
"""Bytes per offset if no broker reports a size; rather large, so that limits in bytes hold."""
_OFFSETS_FOR_RECENT = 16
"""The number of new offsets from which their average replaces that of the whole log."""


class Observed(NamedTuple):
    """An observed log: offsets `[log_start, log_end)` and their size in bytes."""

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
        """Records the current size of a log."""
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
