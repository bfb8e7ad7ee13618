"""The clocks and the randomness of the shells; the machines have none."""

import os
import time

from sparklog.model import Instant, Micros, Millis


def now_us() -> Micros:
    """The clock for deadlines."""
    return Micros(time.monotonic_ns() // 1000)


def entropy(size: int) -> bytes:
    """Random bytes for the machines, which have no source of their own."""
    return os.urandom(size)


def instant() -> Instant:
    """The clock for deadlines and the time of day."""
    return Instant(now_us(), Millis(time.time_ns() // 1_000_000))
