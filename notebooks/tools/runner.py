"""Executes a notebook from top to bottom in one namespace, as Databricks would, and keeps the output of
each cell.
"""

import ast
import io
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from notebooks.tools.ambient import Dbutils, Display, Shown, rendered
from notebooks.tools.cells import Cell, Kind, read_cells

NOTEBOOKS = Path(__file__).resolve().parent.parent


class CellFailed(Exception):
    """A cell raised; the message names the file and its line, the cause is its exception."""


class Executed(NamedTuple):
    """A cell and its output."""

    cell: Cell
    printed: str
    shown: list[Shown]
    included: Sequence[Cell] = ()
    """The cells of the notebook that this cell runs."""


def names() -> list[str]:
    """Every notebook, by the name of its file without `.py`; a file that others include begins with an
    underscore.
    """
    return sorted(path.stem for path in NOTEBOOKS.glob("[a-z]*.py"))


def path_of(name: str) -> Path:
    """The file of one of them."""
    return NOTEBOOKS / f"{name}.py"


def run(path: Path, spark: Any, widgets: Mapping[str, str]) -> list[Executed]:
    """The notebook's cells, executed; raises CellFailed at the first that fails, and ValueError for a
    widget that it has not.
    """
    os.environ.setdefault("MPLBACKEND", "Agg")  # no display is needed, nor looked for
    display, dbutils = Display(), Dbutils(widgets)
    scope: dict[str, Any] = {"__name__": "__main__", "spark": spark, "dbutils": dbutils, "display": display}
    try:
        executed = [_executed(cell, path, scope, display) for cell in read_cells(path)]
        if unknown := dbutils.widgets.unknown():
            raise ValueError(f"{path} has no widget {', '.join(unknown)}")
        return executed
    finally:
        if (broker := scope.get("broker")) is not None:
            broker.close()


def _executed(cell: Cell, path: Path, scope: dict[str, Any], display: Display) -> Executed:
    printed = io.StringIO()
    included: list[Cell] = []
    try:
        with redirect_stdout(printed):
            match cell.kind:
                case Kind.PYTHON:
                    _run_python(cell, path, scope, display)
                case Kind.SQL:
                    display(scope["spark"].sql(cell.text))
                case Kind.RUN:
                    file = path.parent / f"{cell.text.strip()}.py"
                    included = read_cells(file)
                    for inner in included:
                        _executed(inner, file, scope, display)
                case Kind.MARKDOWN | Kind.PIP:  # dependencies are installed already
                    pass
    except CellFailed:
        raise
    except Exception as error:
        raise CellFailed(f"{path}, the cell at line {cell.line}: {type(error).__name__}: {error}") from error
    return Executed(cell, printed.getvalue(), display.take(), included)


def _run_python(cell: Cell, path: Path, scope: dict[str, Any], display: Display) -> None:
    """Runs the statements; the value of a last expression is shown, and so is every figure left open."""
    tree = ast.parse(cell.text, filename=str(path))
    ast.increment_lineno(tree, cell.line - 1)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(path), "exec"), scope)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), str(path), "eval"), scope)
        if value is not None:
            display.shown.append(rendered(value))
    if "plt" in scope:
        for number in scope["plt"].get_fignums():
            display(scope["plt"].figure(number))
        scope["plt"].close("all")
