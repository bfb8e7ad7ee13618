"""Values of options: times, durations, positions, KEY=VALUE. A value that does not fit is a usage error."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import click

from sparklog import durations
from sparklog.client.admin import positions
from sparklog.client.admin.positions import INT64_MAX, Position, offsets_at
from sparklog_server.config.units import in_unit_of

__all__ = ["INT64_MAX", "Position", "duration_ms", "offsets_at", "pairs", "position", "time_ms"]

T = TypeVar("T")


def duration_ms(text: str, hint: str) -> int:
    """Milliseconds of a duration."""
    return parsed(partial(durations.duration_ms, text), hint)


def duration_option(_: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """The callback of an option that is a duration: its value in ms, at least one."""
    if text is None:
        return None
    ms = duration_ms(text, option.opts[0])
    if ms < 1:
        raise click.BadParameter(f"{text!r} is too short; write 10s or 500ms", param_hint=option.opts[0])
    return ms


def duration_text(ms: int) -> str:
    """A duration as `duration_ms` reads it: 500ms, 90s."""
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"


def time_ms(text: str, hint: str) -> int:
    """Unix time in ms of a time."""
    return parsed(partial(positions.time_ms, text), hint)


def position(text: str, hint: str, now_ms: int) -> Position:
    """A position in a log."""
    return parsed(partial(positions.position, text, now_ms), hint)


def pairs(assignments: Sequence[str], option: str) -> dict[str, str]:
    """`key=value` texts as a mapping; a value with a unit, such as `7d`, is converted to that of its key."""
    given = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{key[:60]!r} is not KEY=VALUE", param_hint=option)
        given[key.strip()] = in_unit_of(key.strip(), value.strip())
    return given


def parsed(parse: Callable[[], T], hint: str) -> T:
    """The result of `parse`; its ValueError is an error of usage about the option or argument `hint`."""
    try:
        return parse()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=hint) from None
