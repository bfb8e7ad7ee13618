"""Virtual time: events in a heap, a clock that jumps from one to the next, and a wall clock that may step
either way.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from sparklog.model import Instant, Micros, Millis

_START_MONO_US = 1_000_000
_START_WALL_MS = 1_700_000_000_000


class VirtualClock:
    """Time for everything in one simulation. Events of the same microsecond happen in the order they were
    set.
    """

    def __init__(self) -> None:
        self._mono_us = _START_MONO_US
        self._wall_step_ms = 0
        self._sequence = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []

    @property
    def now(self) -> Instant:
        """The present."""
        wall_ms = _START_WALL_MS + (self._mono_us - _START_MONO_US) // 1000 + self._wall_step_ms
        return Instant(Micros(self._mono_us), Millis(wall_ms))

    def step_wall(self, by_ms: int) -> None:
        """Step the wall clock forward or back."""
        self._wall_step_ms += by_ms

    def after(self, delay_us: int, event: Callable[[], None]) -> None:
        """Have `event` happen `delay_us` from now."""
        assert delay_us >= 0, delay_us
        self._sequence += 1
        heappush(self._events, (self._mono_us + delay_us, self._sequence, event))

    def run(self, *, until_us: int | None = None, events_max: int = 1_000_000) -> None:
        """Run events until none is left or the next is after `until_us`; at most `events_max` of
        them.
        """
        for _ in range(events_max):
            if not self._events or (until_us is not None and self._events[0][0] > until_us):
                break
            at_us, _, event = heappop(self._events)
            self._mono_us = max(self._mono_us, at_us)
            event()
        else:
            raise AssertionError(f"more than {events_max} events: something runs in a circle")
        if until_us is not None:
            self._mono_us = max(self._mono_us, until_us)
