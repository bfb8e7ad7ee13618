"""How long the loop waits for Python's lock, the GIL: every system call gives it up, and a thread that runs
Python meanwhile gives it back late.

A short call is timed ten times a second, so it costs the loop some microseconds a second. Nothing here is
imported before the metrics are switched on.
"""

import os
import time
from collections.abc import Callable
from typing import Final

from sparklog_server.histogram import Histogram

SAMPLED_EVERY_S: Final = 0.1


class GilWaits:
    """`times` has the durations of the call; `after` runs something on the loop later."""

    def __init__(self, descriptor: int, after: Callable[[float, Callable[[], None]], None]) -> None:
        self.times = Histogram()
        self._descriptor = descriptor
        self._after = after

    def sample(self) -> None:
        """Time one call, and the next ones later."""
        began_ns = time.perf_counter_ns()
        os.fstat(self._descriptor)
        self.times.add((time.perf_counter_ns() - began_ns) // 1000)
        self._after(SAMPLED_EVERY_S, self.sample)
