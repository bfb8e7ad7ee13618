"""What commands print: JSON, tables, lines on standard output and remarks on standard error."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparklog import escapes
from sparklog_server.operations.json_records import json_text

if TYPE_CHECKING:
    from sparklog.errors import BrokerError

Command = TypeVar("Command", bound=Callable[..., Any])


def as_json(command: Command) -> Command:
    """Add the option that selects JSON."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(json_text(value))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    emphasis: Mapping[int, str] | None = None,
    empty: str = "",
) -> None:
    """A table on a terminal; elsewhere lines with tabs and no heading, for other programs. None is empty,
    and `-` on a terminal.

    `emphasis` are styles by the number of a row. Without rows, `empty` is printed on stderr.
    """
    if not rows and empty:
        report(empty)
        return
    if not sys.stdout.isatty():
        sys.stdout.write("".join("\t".join(map(escapes.cell, row)) + "\n" for row in rows))
        return

    from sparklog_server.cli.tables import print_on_terminal  # rich takes 15 ms, and pipes need none of it

    print_on_terminal(columns, rows, emphasis or {})


def print_line(*cells: object, is_error: bool = False) -> None:
    """A line with tabs between its cells. Commands print texts of the cluster by this, `print_table` and
    `print_json` only: they escape what would act on a terminal, or begin another cell or line.
    """
    click.echo("\t".join(map(escapes.cell, cells)), err=is_error)


def report(text: str, *, is_trial: bool = False) -> None:
    """A line on stderr: what was done, or that there is nothing to print. A trial did nothing."""
    print_line("valid; nothing was changed" if is_trial else text, is_error=True)


def tell_missing(errors: "Mapping[Any, BrokerError]") -> int:
    """Name on stderr what is missing; the exit code: 1 if anything is."""
    for error in errors.values():
        print_line(f"sparklog: incomplete: {error}", is_error=True)
    return 1 if errors else 0


def say(text: str) -> None:
    """A remark on stderr, only if the output goes to a terminal."""
    if sys.stdout.isatty():
        print_line(text, is_error=True)


def bytes_text(size_bytes: int | None) -> object:
    """A size with a unit on a terminal, as a number elsewhere."""
    if size_bytes is None or not sys.stdout.isatty():
        return size_bytes
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def listed(values: Iterable[object]) -> str:
    """The items separated by commas."""
    return ",".join(map(str, values))
