"""Writes an executed notebook with its output for Jupyter; its first cell makes the globals of Databricks."""

import base64
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from notebooks.tools.ambient import Shown
from notebooks.tools.cells import Cell, Kind
from notebooks.tools.runner import Executed

AMBIENT = """\
# On Databricks all this is there already. Here: run from an environment of the project (`make setup`), with Jupyter installed in it.
import tempfile
from contextlib import ExitStack
from pathlib import Path

from IPython.display import HTML, Image, display as show

from examples.local_spark import has_delta, local_spark
from notebooks.tools.ambient import Dbutils, rendered

stack = ExitStack()
spark = stack.enter_context(local_spark(Path(tempfile.mkdtemp()), delta=has_delta()))
dbutils = Dbutils({})

def display(what):
    shown = rendered(what)
    show(Image(shown.png) if shown.png else HTML(shown.html) if shown.html else shown.text)"""  # noqa: E501


def notebook(executed: list[Executed]) -> nbformat.NotebookNode:
    """The notebook as Jupyter reads it."""
    made = [new_code_cell(AMBIENT)]
    for cell, printed, shown, included in executed:
        for inner in included:
            made += _cells(inner, [])
        made += _cells(cell, [*_printed(printed), *map(_output, shown)])
    for number, cell in enumerate(made):
        cell["id"] = f"cell-{number}"  # else they are random, and every run differs
    return new_notebook(cells=made, metadata={"language_info": {"name": "python"}})


def write(executed: list[Executed], path: Path) -> None:
    """Checks and writes; nbformat.ValidationError if it is not a notebook."""
    made = notebook(executed)
    nbformat.validate(made)
    path.write_text(nbformat.writes(made) + "\n")


def _cells(cell: Cell, outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    title = [new_markdown_cell(f"**{cell.title}**")] if cell.title else []
    match cell.kind:
        case Kind.MARKDOWN:
            return [new_markdown_cell(cell.text)]
        case Kind.PYTHON:
            return [*title, new_code_cell(cell.text, outputs=outputs)]
        case Kind.SQL:
            return [*title, new_code_cell(f'display(spark.sql("""\n{cell.text}\n"""))', outputs=outputs)]
        case Kind.PIP:
            return [new_code_cell(f"# %pip {cell.text}")]
        case Kind.RUN:
            return []  # its cells stand here instead


def _printed(text: str) -> list[nbformat.NotebookNode]:
    return [new_output("stream", name="stdout", text=text)] if text else []


def _output(shown: Shown) -> nbformat.NotebookNode:
    data = {"text/plain": shown.text}
    if shown.html:
        data["text/html"] = shown.html
    if shown.png:
        data["image/png"] = base64.b64encode(shown.png).decode()
    return new_output("display_data", data=data)
