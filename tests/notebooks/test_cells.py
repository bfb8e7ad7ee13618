"""Notebooks are read as Databricks reads them, and executed as it would."""

from pathlib import Path

import nbformat
import pytest

from notebooks.tools import ipynb, runner
from notebooks.tools.cells import Cell, Kind, NotANotebook, read_cells

SMALL = """# Databricks notebook source
# MAGIC %md
# MAGIC # Title
# MAGIC
# MAGIC text

# COMMAND ----------

# MAGIC %pip install sparklog

# COMMAND ----------

# DBTITLE 1,Two numbers
dbutils.widgets.text("topic", "t")
print(dbutils.widgets.get("topic"))
1 + 1

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT 1
"""


def test_cells_have_their_kind_their_text_and_their_line(tmp_path: Path) -> None:
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    assert read_cells(path) == [
        Cell(Kind.MARKDOWN, "# Title\n\ntext", 2),
        Cell(Kind.PIP, "install sparklog", 9),
        Cell(
            Kind.PYTHON,
            'dbutils.widgets.text("topic", "t")\nprint(dbutils.widgets.get("topic"))\n1 + 1',
            14,
            "Two numbers",
        ),
        Cell(Kind.SQL, "SELECT 1", 20),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import os\n", "the first line is not"),
        ("# Databricks notebook source\n# MAGIC %scala\n# MAGIC 1\n", "'%scala' is none of %md"),
    ],
)
def test_what_is_no_notebook_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "other.py"
    path.write_text(text)
    with pytest.raises(NotANotebook, match=said):
        read_cells(path)


class Sql:
    """As much of a Spark as a cell in SQL asks for."""

    def sql(self, text: str) -> str:
        return f"rows of {text}"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    return path


def test_a_notebook_is_executed_with_its_widgets_and_shows_what_it_showed(small: Path) -> None:
    executed = runner.run(small, Sql(), {"topic": "mine"})
    assert [each.printed for each in executed] == ["", "", "mine\n", ""]
    assert [[shown.text for shown in each.shown] for each in executed] == [
        [],
        [],
        ["2"],
        ["'rows of SELECT 1'"],
    ]


def test_a_widget_that_is_not_there_is_told(small: Path) -> None:
    with pytest.raises(ValueError, match="no widget topik"):
        runner.run(small, Sql(), {"topik": "mine"})


def test_a_cell_that_fails_is_named_by_its_line(small: Path) -> None:
    small.write_text(SMALL.replace("1 + 1", "1 / 0"))
    with pytest.raises(runner.CellFailed, match=r"small\.py, the cell at line 14: ZeroDivisionError"):
        runner.run(small, Sql(), {})


def test_an_executed_notebook_is_written_for_jupyter_the_same_each_time(small: Path, tmp_path: Path) -> None:
    for name in ("one.ipynb", "two.ipynb"):
        ipynb.write(runner.run(small, Sql(), {}), tmp_path / name)
    written = (tmp_path / "one.ipynb").read_text()
    assert written == (tmp_path / "two.ipynb").read_text()
    cells = nbformat.reads(written, as_version=4).cells
    assert [cell.cell_type for cell in cells] == ["code", "markdown", "code", "markdown", "code", "code"]
    assert [output.get("text") or output.data["text/plain"] for output in cells[4].outputs] == ["t\n", "2"]
    assert all(
        compile(cell.source, "cell", "exec")
        for cell in cells
        if cell.cell_type == "code" and not cell.source.startswith("#")
    )


def test_every_notebook_is_one_and_ends_with_what_must_hold() -> None:
    for name in runner.names():
        cells = read_cells(runner.path_of(name))
        assert cells[0].kind is Kind.MARKDOWN, name
        assert cells[-1].text.count("assert "), name
        assert {"bootstrap", "topic"} <= {
            word for cell in cells for word in ("bootstrap", "topic") if f'text("{word}"' in cell.text
        }, name
