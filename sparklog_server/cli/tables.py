"""Tables for a terminal: columns with two spaces between them, no borders, and no word cut in two.

A table that is too wide wraps its widest column of prose at spaces. If it is still too wide, its last columns
move below each row, as `name: value`.
"""

from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from sparklog import escapes

GAP = "  "
DETAIL_INDENT = "    "
PROSE_WIDTH_MIN = 24


class Column(NamedTuple):
    """A column of a table; numbers are aligned to the right."""

    heading: str
    cells: Sequence[str]
    is_number: bool


class Table(NamedTuple):
    """The lines of a heading and of each row. A row has several if a cell is wrapped, or if there are
    details.
    """

    heading: list[str]
    rows: list[list[str]]


def print_on_terminal(
    columns: Sequence[str], rows: Sequence[Sequence[object]], emphasis: Mapping[int, str]
) -> None:
    """Print a table, escaped; None is `-`. `emphasis` are styles by the number of a row."""
    cells = [["-" if value is None else escapes.cell(value) for value in row] for row in rows]
    table = table_of(
        [
            Column(
                name,
                [row[index] for row in cells],
                is_number=any(isinstance(row[index], int | float) for row in rows),
            )
            for index, name in enumerate(columns)
        ],
        get_terminal_size().columns,
    )
    console = Console()
    # Plain text, because names may contain brackets, which are markup otherwise.
    for line, style in zip(table.heading, ("bold", "dim"), strict=True):
        console.print(Text(line, style), soft_wrap=True)
    for number, lines in enumerate(table.rows):
        for line in lines:
            console.print(Text(line, emphasis.get(number, "")), soft_wrap=True)


def table_of(columns: Sequence[Column], width: int) -> Table:
    """The table, as wide as `width` or as its longest word."""
    for count in range(len(columns), 0, -1):
        widths = _widths(columns[:count], width)
        if widths is not None or count == 1:
            break
    shown, below = columns[:count], columns[count:]
    widths = widths or [_natural(column) for column in shown]
    rules = ["─" * size for size in widths]
    heading = _joined(shown, widths, [[column.heading] for column in shown])
    rows = []
    for number in range(len(columns[0].cells)):
        wrapped = [_wrapped(one.cells[number], size) for one, size in zip(shown, widths, strict=True)]
        details = [f"{one.heading}: {one.cells[number]}" for one in below if one.cells[number] != "-"]
        rows.append(_joined(shown, widths, wrapped) + _detail_lines(details, width))
    return Table([*heading, GAP.join(rules)], rows)


def _widths(columns: Sequence[Column], width: int) -> list[int] | None:
    """The width of each column, if the table fits; the widest column of prose may be narrower than its
    cells.
    """
    widths = [_natural(column) for column in columns]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    if excess <= 0:
        return widths
    prose = [index for index, column in enumerate(columns) if any(" " in cell for cell in column.cells)]
    if not prose:
        return None
    widest = max(prose, key=lambda index: widths[index])
    words = [word for cell in columns[widest].cells for word in cell.split()]
    least = max(PROSE_WIDTH_MIN, cell_len(columns[widest].heading), *map(cell_len, words))
    widths[widest] -= excess
    return widths if widths[widest] >= least else None


def _natural(column: Column) -> int:
    return max(map(cell_len, (column.heading, *column.cells)))


def _joined(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[Sequence[str]]) -> list[str]:
    """The lines of cells that have several each."""
    lines = []
    for number in range(max(map(len, cells))):
        parts = [
            _aligned(cell[number] if number < len(cell) else "", size, is_right=column.is_number)
            for column, size, cell in zip(columns, widths, cells, strict=True)
        ]
        lines.append(GAP.join(parts).rstrip())
    return lines


def _aligned(text: str, size: int, *, is_right: bool) -> str:
    return " " * (size - cell_len(text)) + text if is_right else set_cell_size(text, size)


def _wrapped(text: str, size: int) -> list[str]:
    """The text in lines of at most `size` cells, broken at spaces; a longer word is a line of its own."""
    if cell_len(text) <= size:
        return [text]
    lines = [""]
    for word in text.split():
        if not lines[-1]:
            lines[-1] = word
        elif cell_len(lines[-1]) + 1 + cell_len(word) <= size:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def _detail_lines(details: Sequence[str], width: int) -> list[str]:
    """The details below a row, several on a line if there is room."""
    room = width - len(DETAIL_INDENT)
    lines: list[str] = []
    for detail in details:
        if lines and cell_len(lines[-1]) + len(GAP) + cell_len(detail) <= room:
            lines[-1] += GAP + detail
        else:
            lines += _wrapped(detail, room)
    return [DETAIL_INDENT + line for line in lines]
