"""`--watch`: a command that runs again every few seconds, until Ctrl-C."""

import functools
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO, TypeVar, cast

import click

from sparklog.errors import SparklogError
from sparklog.escapes import terminal

Command = TypeVar("Command", bound=Callable[..., Any])

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def can_watch(command: Command) -> Command:
    """Add the option that runs the command again and again. It stands last, next to the function."""

    # Any: the arguments are those of the command.
    @functools.wraps(command)
    def watched(*arguments: Any, watch_s: float | None, **options: Any) -> Any:
        if watch_s is None:
            return command(*arguments, **options)
        return _repeat(functools.partial(command, *arguments, **options), watch_s)

    option = click.option(
        "--watch",
        "watch_s",
        metavar="SECONDS",
        type=click.FloatRange(0.2, 3600.0),
        help="Run again at this interval, until Ctrl-C.",
    )
    return cast(Command, option(watched))


def _repeat(run: Callable[[], object], watch_s: float) -> int:
    """Run for ever. Only the first failure ends it: later, a cluster that is away may return."""
    shown = sys.stdout
    is_first = True
    try:
        while True:
            sys.stdout = cast(TextIO, _Screen(shown)) if shown.isatty() else shown
            try:
                run()
            except (SparklogError, OSError, click.ClickException) as error:
                if is_first or isinstance(error, BrokenPipeError | click.UsageError):
                    raise
                text = error.format_message() if isinstance(error, click.ClickException) else str(error)
                click.echo(f"sparklog: {terminal(text)}", err=True)
            is_first = False
            if not shown.isatty():
                shown.write("\n")
            shown.flush()
            time.sleep(watch_s)
    except KeyboardInterrupt:
        return 0
    finally:
        sys.stdout = shown


class _Screen:
    """A terminal that is cleared before the first word: the old figures stay while the new are asked for."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._is_clear = False

    def write(self, text: str) -> int:
        """Write, on a clear screen."""
        if not self._is_clear:
            self._is_clear = True
            self._terminal.write(_CLEAR)
        return self._terminal.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)
