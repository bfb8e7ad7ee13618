"""Times, durations and positions as values of options: what `sparklog.client.positions` refuses is an
error of usage.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import click

from sparklog.client import positions
from sparklog.client.positions import INT64_MAX, Position, offsets_at

__all__ = ["INT64_MAX", "Position", "duration_ms", "offsets_at", "position", "time_ms"]

T = TypeVar("T")


def duration_ms(text: str, hint: str) -> int:
    """Milliseconds of a duration."""
    return _used(partial(positions.duration_ms, text), hint)


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


def duration_option(_: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """The callback of an option that is a duration: its value in ms, at least one."""
    if text is None:
        return None
    told = duration_ms(text, option.opts[0])
    if told < 1:
        raise click.BadParameter(f"{text!r} is too short; write 10s or 500ms", param_hint=option.opts[0])
    return told


def duration_text(ms: int) -> str:
    """A duration as `duration_ms` reads it: 500ms, 90s."""
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"
