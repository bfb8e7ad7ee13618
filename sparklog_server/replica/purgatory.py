"""Where requests wait for a partition's high watermark: a heap of offsets, and the fetches that watch for
anything new.

Tokens are opaque. The purgatory never calls them: it hands them back, and whoever parked them knows what
they mean.
"""

from heapq import heappop, heappush

from sparklog.model import Offset


class PurgatoryFull(Exception):
    """As many requests wait for this partition as the setting allows."""


class Purgatory:
    """The tokens parked on one partition; at most `limit` of them, abandoned ones included until they are
    passed or swept.
    """

    __slots__ = ("_heap", "_limit", "_sequence", "_watchers")

    def __init__(self, limit: int) -> None:
        self._heap: list[tuple[Offset, int, object]] = []
        self._watchers: dict[int, object] = {}
        self._sequence = 0
        self._limit = limit

    def __len__(self) -> int:
        return len(self._heap) + len(self._watchers)

    def __bool__(self) -> bool:
        return bool(self._heap or self._watchers)

    def park(self, until: Offset, token: object, *, is_ours: bool = False) -> None:
        """Keep `token` until the high watermark reaches `until`. Raises PurgatoryFull, but not for what
        the broker itself waits for.
        """
        if len(self) >= self._limit and not is_ours:
            raise PurgatoryFull
        self._sequence += 1
        heappush(self._heap, (until, self._sequence, token))

    def watch(self, token: object) -> int:
        """Hand `token` back at the next move of the high watermark, once. Returns the key for `unwatch`.
        Raises PurgatoryFull.
        """
        if len(self) >= self._limit:
            raise PurgatoryFull
        self._sequence += 1
        self._watchers[self._sequence] = token
        return self._sequence

    def unwatch(self, key: int) -> None:
        """Forget a watcher; nothing happens if it was already handed back."""
        self._watchers.pop(key, None)

    def release(self, high_watermark: Offset, released: list[object]) -> None:
        """Add to `released` every token the high watermark has reached, in the order of their offsets,
        then every watcher.
        """
        heap = self._heap
        while heap and heap[0][0] <= high_watermark:
            released.append(heappop(heap)[2])
        if self._watchers:
            released.extend(self._watchers.values())
            self._watchers.clear()

    def release_all(self, released: list[object]) -> None:
        """Add every token to `released`: the partition goes offline, is deleted, or changes its leader."""
        released.extend(token for _, _, token in sorted(self._heap, key=lambda entry: entry[:2]))
        self._heap.clear()
        released.extend(self._watchers.values())
        self._watchers.clear()
