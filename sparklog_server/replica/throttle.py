"""Throttles of replication (KIP-73): how many bytes a second go to, and come from, replicas that are not in
sync.

    sent, or received ─► taken from each bucket that applies ─► empty: its partitions wait
          ▲                                                            │
          └───────── `deadline_us`: a fiftieth of a second has come ◄──┘

A node has one Throttle for each side. Two rates may apply to a replica, and the lower one counts: that of the
replicas that a topic lists, and that of all replicas outside the ISR.
"""

from collections.abc import Callable, Container
from typing import Final, Protocol

from sparklog.model import Instant, Micros, TopicPartition, earlier

_SECOND_US: Final = 1_000_000
_BURST_US: Final = 500_000
_QUANTUM_US: Final = 20_000
"""The time after which an empty bucket is used again: less would make a request of every few batches."""
_QUANTUM_BYTES_MAX: Final = 1 << 20


class TokenBucket:
    """The bytes that may pass now. They grow at `bytes_per_second` (0 or more), up to half a second of it; a
    batch that was larger than what was there leaves a debt.

    Invariant: `is_empty` from the byte that has taken the last token until there is a quantum.
    """

    __slots__ = ("_as_of_us", "_level", "_level_max", "_quantum", "bytes_per_second", "is_empty")

    def __init__(self, bytes_per_second: int, now: Instant) -> None:
        self._level = 0  # in millionths of a byte, so that no time is lost by rounding
        self._as_of_us = now.mono_us
        self.is_empty = True
        self._set(bytes_per_second)

    def _set(self, bytes_per_second: int) -> None:
        self.bytes_per_second = bytes_per_second
        self._level_max = max(bytes_per_second * _BURST_US, _SECOND_US)
        quantum = max(bytes_per_second * _QUANTUM_US, _SECOND_US)
        self._quantum = min(quantum, _QUANTUM_BYTES_MAX * _SECOND_US)

    def change(self, bytes_per_second: int, now: Instant) -> None:
        """Let another rate apply from now on; a debt stays."""
        self.refill(now)
        self._set(bytes_per_second)
        self._level = min(self._level, self._level_max)

    @property
    def room(self) -> int:
        """The bytes that may pass: at least 1, or 0 while the bucket counts as empty."""
        return 0 if self.is_empty else self._level // _SECOND_US

    @property
    def ready_us(self) -> Micros | None:
        """When the bucket is used again; None while it is, and with a rate of 0."""
        if not self.is_empty or not self.bytes_per_second:
            return None
        return Micros(self._as_of_us - (self._level - self._quantum) // self.bytes_per_second)

    def refill(self, now: Instant) -> bool:
        """Add what the time since the last call allows; returns whether the bucket is used again."""
        passed_us = now.mono_us - self._as_of_us
        if passed_us > 0:
            self._as_of_us = now.mono_us
            self._level = min(self._level + passed_us * self.bytes_per_second, self._level_max)
        was_empty = self.is_empty
        if was_empty and self._level >= self._quantum and self.bytes_per_second:
            self.is_empty = False
        return was_empty and not self.is_empty

    def take(self, size: int, *, is_in_sync: bool = False) -> None:
        """`size` bytes have passed. Those of replicas in sync, which do not wait, leave a bounded debt: as
        in Kafka they count, but replicas that catch up go on within a second after them.
        """
        level = self._level - size * _SECOND_US
        self._level = max(level, min(self._level, -self._level_max)) if is_in_sync else level
        if self._level < _SECOND_US:
            self.is_empty = True


class Awaiting(Protocol):
    """A fetch session of a follower, with records that the throttle holds back."""

    def look_again(self) -> None:
        """There is room again."""


class Throttle:
    """The throttle of one side of a node.

    `now` is the time of the last `refill`, which each entry point calls; `waiting` are told once there is
    room, those that have waited longest first; `throttled_bytes` have passed to or from throttled replicas.
    """

    __slots__ = (
        "_emptied",
        "_listed",
        "_listed_of",
        "_outside",
        "_topics",
        "now",
        "throttled_bytes",
        "waiting",
    )

    def __init__(
        self, listed_of: Callable[[str], Container[int] | None], emptied: Callable[[], None], now: Instant
    ) -> None:
        """`listed_of` has the partitions of a topic that it lists for this node, None for all; `emptied` is
        told that `deadline_us` is set.
        """
        self._listed_of = listed_of
        self._emptied = emptied
        self._topics: dict[str, Container[int] | None] = {}
        self._listed: TokenBucket | None = None
        self._outside: TokenBucket | None = None
        self.now = now
        self.waiting: dict[Awaiting, None] = {}
        self.throttled_bytes = 0

    def change(self, listed: int | None, outside: int | None, now: Instant) -> None:
        """Let these rates apply, in bytes a second, to listed replicas and to all outside the ISR; None: no
        bound. The topics may list others than before.
        """
        self.now = now
        self._topics.clear()
        self._listed = _changed(self._listed, listed, now)
        self._outside = _changed(self._outside, outside, now)
        self._emptied()

    @property
    def is_set(self) -> bool:
        """Whether any rate applies."""
        return self._listed is not None or self._outside is not None

    @property
    def deadline_us(self) -> Micros | None:
        """When a bucket is used again that is empty now."""
        listed, outside = self._listed, self._outside
        return earlier(
            None if listed is None else listed.ready_us, None if outside is None else outside.ready_us
        )

    def refill(self, now: Instant) -> None:
        """Let the time pass; those that wait are told if there is room again."""
        self.now = now
        has_room = self._listed is not None and self._listed.refill(now)
        has_room = (self._outside is not None and self._outside.refill(now)) or has_room
        if has_room and self.waiting:
            waiting, self.waiting = self.waiting, {}
            for one in waiting:
                one.look_again()

    def room(self, partition: TopicPartition) -> int | None:
        """The bytes that a replica outside the ISR may get now; 0 while it must wait, None if no rate applies
        to it.
        """
        listed, outside = self._listed, self._outside
        if listed is None or not self._is_listed(partition):
            return None if outside is None else outside.room
        return listed.room if outside is None else min(listed.room, outside.room)

    def passed(self, partition: TopicPartition, size: int, *, is_outside: bool) -> None:
        """Records of a replica, which is outside the ISR or not, have passed."""
        listed = self._listed if self._listed is not None and self._is_listed(partition) else None
        outside = self._outside if is_outside else None
        if listed is not None:
            listed.take(size, is_in_sync=not is_outside)
        if outside is not None:
            outside.take(size)
        if listed is not None or outside is not None:
            self.throttled_bytes += size
        if (listed is not None and listed.is_empty) or (outside is not None and outside.is_empty):
            self._emptied()

    def _is_listed(self, partition: TopicPartition) -> bool:
        topic, index = partition
        if topic not in self._topics:
            self._topics[topic] = self._listed_of(topic)
        listed = self._topics[topic]
        return listed is None or index in listed


def _changed(bucket: TokenBucket | None, bytes_per_second: int | None, now: Instant) -> TokenBucket | None:
    if bytes_per_second is None:
        return None
    if bucket is None:
        return TokenBucket(bytes_per_second, now)
    bucket.change(bytes_per_second, now)
    return bucket


class Throttles:
    """Both sides of a node."""

    __slots__ = ("follower", "leader")

    def __init__(self, leader: Throttle, follower: Throttle) -> None:
        self.leader = leader
        self.follower = follower
