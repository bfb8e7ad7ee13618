"""Readers kept between tasks: Spark uses a Python worker for one task after another, and a connection costs more than a small read.

They are kept per process and per settings, so a worker that was forked never touches what its parent opened. A reader whose task did not
come to its end is closed, since bytes that nobody waits for may still be under way on it. Nothing here depends on being told of an end.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from sparklog.client.ranges import RangeReader
from sparklog.client.settings import ClientSettings

IDLE_MAX: Final = 8
"""Readers that wait at the same time; the one that waited longest is closed for one more."""


class _Idle(NamedTuple):
    process: int
    settings: ClientSettings
    reader: RangeReader
    since_s: float


_idle: list[_Idle] = []
"""The one that was used last stands last."""


@contextmanager
def range_reader(settings: ClientSettings) -> Iterator[RangeReader]:
    """A reader with these settings for the time of the context, with the connections of an earlier one if there are any."""
    reader = _taken(settings)
    try:
        yield reader
    except BaseException:
        reader.close()
        raise
    _idle.append(_Idle(os.getpid(), settings, reader, time.monotonic()))
    _close_old()


def close_idle() -> None:
    """Close what this process keeps."""
    process = os.getpid()
    for idle in [one for one in _idle if one.process == process]:
        _idle.remove(idle)
        idle.reader.close()


def _taken(settings: ClientSettings) -> RangeReader:
    _close_old()
    process = os.getpid()
    for idle in reversed(_idle):
        if idle.process == process and idle.settings == settings:
            _idle.remove(idle)
            return idle.reader
    return RangeReader(settings)


def _close_old() -> None:
    process, now_s = os.getpid(), time.monotonic()
    ours = [one for one in _idle if one.process == process]
    too_many = len(ours) - IDLE_MAX
    for place, idle in enumerate(ours):
        if place < too_many or (now_s - idle.since_s) * 1000 > idle.settings.connections_max_idle_ms:
            _idle.remove(idle)
            idle.reader.close()
