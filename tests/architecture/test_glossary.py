"""Every file and name of sparklog in docs/glossary.md exists."""

import ast
import re
from pathlib import Path

from tests.architecture.source_tree import PROJECT

_QUOTED = re.compile(r"`([^`]+)`")


def test_every_file_of_the_glossary_exists() -> None:
    assert [file for _, files in _rows() for file in files if not _path(file).exists()] == []


def test_every_name_of_the_glossary_is_defined_in_a_file_of_its_row() -> None:
    undefined = []
    for names, files in _rows():
        defined = {name for file in files for name in _defined(_path(file))}
        undefined += [f"{name} in {files}" for name in names if name not in defined]
    assert undefined == []


def _rows() -> list[tuple[list[str], list[str]]]:
    """The names and the files of each line of the tables."""
    rows = []
    for line in (PROJECT / "docs/glossary.md").read_text().splitlines():
        if line.startswith("|") and "`" in line:
            _, _, names, files, *_ = line.split("|")
            rows.append((_QUOTED.findall(names), _QUOTED.findall(files)))
    assert len(rows) > 100
    return rows


def _path(file: str) -> Path:
    return PROJECT / file if file.startswith("sparklog/") else PROJECT / "sparklog_server" / file


def _defined(path: Path) -> set[str]:
    if not path.exists():
        return set()
    definitions = (ast.ClassDef, ast.FunctionDef)
    nodes = list(ast.walk(ast.parse(path.read_text())))
    exported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return {node.name for node in nodes if isinstance(node, definitions)} | exported
