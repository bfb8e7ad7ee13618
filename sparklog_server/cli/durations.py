"""Durations as options, and in messages."""

import click

from sparklog_server.cli.positions import duration_ms


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
