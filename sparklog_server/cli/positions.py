"""Times, durations and positions as values of options: what `sparklog.client.admin.positions` refuses is an
error of usage.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import click

from sparklog import durations
from sparklog.client.admin import positions
from sparklog.client.admin.positions import INT64_MAX, Position, offsets_at

__all__ = ["INT64_MAX", "Position", "duration_ms", "offsets_at", "position", "time_ms"]

T = TypeVar("T")


def duration_ms(text: str, hint: str) -> int:
    """Milliseconds of a duration."""
    return _used(partial(durations.duration_ms, text), hint)


def time_ms(text: str, hint: str) -> int:
    """Unix time in ms of a time."""
    return _used(partial(positions.time_ms, text), hint)


def position(text: str, hint: str, now_ms: int) -> Position:
    """A position in a log."""
    return _used(partial(positions.position, text, now_ms), hint)


def _used(parse: Callable[[], T], hint: str) -> T:
    try:
        return parse()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=hint) from None
