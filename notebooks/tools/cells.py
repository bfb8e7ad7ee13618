"""A notebook in Databricks' source form, cell by cell.

    # Databricks notebook source
    # MAGIC %md
    # MAGIC # A title                      a cell in another language: `# MAGIC` precedes each line, and
    #                                      the first line names the language
    # COMMAND ----------
    # DBTITLE 1,A title of this cell       optional
    spark.range(3).show()                  a cell in Python

The whole file is Python, so linters and diffs read it like any other.
"""

from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

HEAD: Final = "# Databricks notebook source"
BETWEEN: Final = "# COMMAND ----------"
MAGIC: Final = "# MAGIC"
TITLE: Final = "# DBTITLE "


class Kind(StrEnum):
    PYTHON = "python"
    MARKDOWN = "md"
    SQL = "sql"
    PIP = "pip"
    RUN = "run"


class Cell(NamedTuple):
    """One cell: its text without the marks, and the line of the file at which the text begins."""

    kind: Kind
    text: str
    line: int
    title: str = ""


class NotANotebook(ValueError):
    """The file is not in the form above; the message says where."""


def read_cells(path: Path) -> list[Cell]:
    """The cells of a notebook; raises NotANotebook."""
    lines = path.read_text().splitlines()
    if not lines or lines[0] != HEAD:
        raise NotANotebook(f"{path}: the first line is not {HEAD!r}")
    cells: list[Cell] = []
    begin = 1
    for number in range(1, len(lines) + 1):
        if number == len(lines) or lines[number].rstrip() == BETWEEN:
            cell = _cell(lines[begin:number], begin + 1, path)
            if cell.text:
                cells.append(cell)
            begin = number + 1
    return cells


def _cell(lines: list[str], line: int, path: Path) -> Cell:
    while lines and not lines[0].strip():
        lines, line = lines[1:], line + 1
    title = ""
    if lines and lines[0].startswith(TITLE):
        title = lines[0].removeprefix(TITLE).partition(",")[2]
        lines, line = lines[1:], line + 1
    if not any(text.startswith(MAGIC) for text in lines):
        return Cell(Kind.PYTHON, "\n".join(lines).strip("\n"), line, title)
    said = [text.removeprefix(MAGIC).removeprefix(" ") for text in lines if text.strip()]
    word, _, rest = said[0].partition(" ")
    try:
        kind = Kind(word.removeprefix("%"))
    except ValueError:
        raise NotANotebook(
            f"{path}:{line}: {word!r} is none of "
            f"{', '.join(f'%{kind}' for kind in Kind if kind != Kind.PYTHON)}"
        ) from None
    return Cell(kind, "\n".join([rest, *said[1:]]).strip("\n"), line, title)
