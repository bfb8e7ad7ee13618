"""Virtual time: events in a heap, a clock that jumps from one to the next, and a wall clock that may step
either way.

    VirtualClock  the time of the simulation
    NodeClock     one node's view of it: monotonic time with a start and a rate of its own, wall time with an
                  offset
"""

from collections.abc import Callable
from heapq import heappop, heappush

from sparklog.model import Instant, Micros, Millis

START_US = 1_000_000
START_WALL_MS = 1_700_000_000_000


class VirtualClock:
    """The time of one simulation. Events of the same microsecond happen in the order in which they
    were set.
    """

    def __init__(self) -> None:
        self.us = START_US
        """The current time in microseconds."""
        self._wall_step_ms = 0
        self._sequence = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []

    @property
    def now(self) -> Instant:
        """The current time."""
        wall_ms = START_WALL_MS + (self.us - START_US) // 1000 + self._wall_step_ms
        return Instant(Micros(self.us), Millis(wall_ms))

    def step_wall(self, by_ms: int) -> None:
        """Step the wall clock forward or back."""
        self._wall_step_ms += by_ms

    def after(self, delay_us: int, event: Callable[[], None]) -> None:
        """Schedule `event` in `delay_us`."""
        assert delay_us >= 0, delay_us
        self._sequence += 1
        heappush(self._events, (self.us + delay_us, self._sequence, event))

    def at(self, us: int, event: Callable[[], None]) -> None:
        """Schedule `event` at `us`, or now if that is past."""
        self._sequence += 1
        heappush(self._events, (max(us, self.us), self._sequence, event))

    def run(self, *, until_us: int | None = None, events_max: int = 1_000_000) -> None:
        """Run events until none is left or the next is after `until_us`; at most `events_max` of
        them.
        """
        for _ in range(events_max):
            if not self._events or (until_us is not None and self._events[0][0] > until_us):
                break
            at_us, _, event = heappop(self._events)
            self.us = max(self.us, at_us)
            event()
        else:
            raise AssertionError(f"more than {events_max} events: something runs in a circle")
        if until_us is not None:
            self.us = max(self.us, until_us)


class NodeClock:
    """The clocks of one node, which no other node shares.

    `rate_ppm` is the error of its quartz. Monotonic time starts at `start_us`, so the monotonic times of two
    nodes cannot be compared. Invariant: monotonic time never steps back.
    """

    def __init__(self, world: VirtualClock, *, start_us: int = START_US, rate_ppm: int = 0) -> None:
        self._world = world
        self._rate_ppm = rate_ppm
        self._base_us = world.us  # world time and own time at the last change of the rate
        self._base_mono_us = start_us
        self._wall_offset_ms = START_WALL_MS - start_us // 1000

    @property
    def now(self) -> Instant:
        """The current time of this node."""
        passed_us = self._world.us - self._base_us
        mono_us = self._base_mono_us + passed_us + passed_us * self._rate_ppm // 1_000_000
        return Instant(Micros(mono_us), Millis(mono_us // 1000 + self._wall_offset_ms))

    def world_us(self, mono_us: int) -> int:
        """The earliest world time at which `now.mono_us` has reached `mono_us`."""
        ahead_us = mono_us - self._base_mono_us
        return self._base_us - (-ahead_us * 1_000_000 // (1_000_000 + self._rate_ppm))

    def run_at(self, rate_ppm: int) -> None:
        """Change the rate, from now on."""
        self._base_mono_us = self.now.mono_us
        self._base_us = self._world.us
        self._rate_ppm = rate_ppm

    def step_wall(self, by_ms: int) -> None:
        """Step the wall clock forward or back."""
        self._wall_offset_ms += by_ms
