"""A bounded histogram of durations, which costs a few integer additions per value.

The buckets are those of a floating-point number with two bits behind the point: four per power of two, so a
bound is at most a quarter above the value. 116 buckets reach from 1 us to 2^30 us (18 minutes).
"""

from collections.abc import Iterable, Sequence
from typing import Final

_TABLE_US: Final = 4096
"""Below this the bucket is looked up, which takes a third of the time."""
BUCKETS: Final = 116
LONGEST_US: Final = (1 << 30) - 1


def bucket_of(duration_us: int) -> int:
    """The bucket of a duration; a longer one than `LONGEST_US` counts as that."""
    if duration_us < 4:
        return duration_us if duration_us > 0 else 0
    if duration_us > LONGEST_US:
        duration_us = LONGEST_US
    exponent = duration_us.bit_length() - 3
    return (exponent << 2) + (duration_us >> exponent)


def limit_of(bucket: int) -> int:
    """The first duration in us that is beyond a bucket."""
    if bucket < 4:
        return bucket + 1
    exponent = (bucket >> 2) - 1
    return (bucket - (exponent << 2) + 1) << exponent


TABLE: Final = bytes(bucket_of(duration_us) for duration_us in range(_TABLE_US))
"""The buckets of short durations, by duration in us."""


class Histogram:
    """Invariant: `buckets` has the number of durations of each bucket, `total_us` their sum."""

    __slots__ = ("buckets", "total_us")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.total_us = 0

    def add(self, duration_us: int) -> None:
        """Count a duration; a negative one, after a clock that steps, as zero."""
        if 0 <= duration_us < _TABLE_US:
            self.buckets[TABLE[duration_us]] += 1
            self.total_us += duration_us
        else:
            self.buckets[bucket_of(duration_us)] += 1
            self.total_us += max(0, duration_us)

    def add_several(self, duration_us: int, count: int) -> None:
        """Count a duration so many times."""
        if duration_us < 0:
            duration_us = 0
        self.buckets[TABLE[duration_us] if duration_us < _TABLE_US else bucket_of(duration_us)] += count
        self.total_us += duration_us * count

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.buckets)


def merged(histograms: Iterable[Histogram]) -> list[int]:
    """The sums of the buckets."""
    sums = [0] * BUCKETS
    for one in histograms:
        for bucket, count in enumerate(one.buckets):
            if count:
                sums[bucket] += count
    return sums


def quantiles_us(buckets: Sequence[int], wanted: Sequence[float]) -> list[float]:
    """The durations in us below which these parts of the counted ones lie, in ascending order; zeros if none
    was counted. Within a bucket the durations count as evenly spread.
    """
    count = sum(buckets)
    if not count:
        return [0.0] * len(wanted)
    found: list[float] = []
    below = 0
    parts = iter(wanted)
    part = next(parts, None)
    for bucket, inside in enumerate(buckets):
        while part is not None and inside and below + inside >= part * count:
            begin = limit_of(bucket - 1) if bucket else 0
            found.append(begin + (limit_of(bucket) - begin) * max(0.0, part * count - below) / inside)
            part = next(parts, None)
        below += inside
    return found


class Window:
    """The counts of the last few minutes, of buckets that only grow. `recent` is called at a scrape; what it
    covers reaches back at least `span_us` if the process is that old, and at most twice that if it is called
    that often.
    """

    __slots__ = ("_before", "_between", "_between_us", "_span_us")

    def __init__(self, span_us: int) -> None:
        self._span_us = span_us
        self._before: Sequence[int] = (0,) * BUCKETS
        self._between: Sequence[int] = (0,) * BUCKETS
        self._between_us = 0

    def recent(self, buckets: Sequence[int], now_us: int) -> list[int]:
        """The counts since the beginning of the window."""
        if now_us - self._between_us >= self._span_us:
            self._before, self._between, self._between_us = self._between, tuple(buckets), now_us
        return [now - before for now, before in zip(buckets, self._before, strict=True)]
