"""Requests that wait for one partition: a heap ordered by offset, and the fetches that watch for any move
of the high watermark.
"""

from heapq import heappop, heappush
from typing import Protocol

from sparklog.model import Offset


class PurgatoryFull(Exception):
    """The number of requests that wait for this partition has reached its limit."""


class Waiter(Protocol):
    """A request, or a coordinator shard, that waits for a partition."""

    def released(self) -> None:
        """Schedule the waiter in this turn: its condition holds, or the role of the partition has ended. Must
        not use the partition.
        """


class Purgatory:
    """The waiters of one partition, at most `limit`. An abandoned waiter of `heap` counts until the high
    watermark passes it.
    """

    __slots__ = ("_limit", "_sequence", "heap", "watchers")

    def __init__(self, limit: int) -> None:
        self.heap: list[tuple[Offset, int, Waiter]] = []
        self.watchers: dict[int, Waiter] = {}
        self._sequence = 0
        self._limit = limit

    def __len__(self) -> int:
        return len(self.heap) + len(self.watchers)

    def park(self, until: Offset, waiter: Waiter, *, is_ours: bool = False) -> None:
        """Keep `waiter` until the high watermark reaches `until`. Raises PurgatoryFull, except where
        `is_ours` says that the broker itself waits.
        """
        if len(self.heap) + len(self.watchers) >= self._limit and not is_ours:
            raise PurgatoryFull
        self._sequence += 1
        heappush(self.heap, (until, self._sequence, waiter))

    def watch(self, waiter: Waiter) -> int:
        """Release `waiter` at the next move of the high watermark, once. Returns the key for `unwatch`.
        Raises PurgatoryFull.
        """
        if len(self) >= self._limit:
            raise PurgatoryFull
        self._sequence += 1
        self.watchers[self._sequence] = waiter
        return self._sequence

    def unwatch(self, key: int) -> None:
        """Remove a watcher, unless it is already released."""
        self.watchers.pop(key, None)

    def release(self, high_watermark: Offset) -> None:
        """Release the waiters that the high watermark has reached, in the order of their offsets, then
        every watcher.
        """
        heap = self.heap
        while heap and heap[0][0] <= high_watermark:
            heappop(heap)[2].released()
        if self.watchers:
            self.release_watchers()

    def release_all(self) -> None:
        """Release every waiter: the role of the partition ends."""
        parked, self.heap = sorted(self.heap, key=lambda entry: entry[:2]), []
        for _, _, waiter in parked:
            waiter.released()
        self.release_watchers()

    def release_watchers(self) -> None:
        """Release every watcher."""
        watchers, self.watchers = self.watchers, {}
        for waiter in watchers.values():
            waiter.released()
