"""Every file and name of sparklog in docs/glossary.md exists, and what has no counterpart there has none."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from docs.protocol_page import MISSING
from tests.architecture.definitions import path_of
from tests.architecture.source_tree import PROJECT, modules, nodes_of

NONE: Final = "–"
_QUOTED = re.compile(r"`([^`]+)`")
_TASK = re.compile(r"(?:ControlManager|Manager|Service)$")
"""The end of a Kafka class that names no subject: what begins with the rest would be its counterpart."""


class Row(NamedTuple):
    """A line of the tables: Kafka's classes, and what sparklog has."""

    kafka: str
    ours: str
    file: str
    note: str

    @property
    def names(self) -> list[str]:
        return _QUOTED.findall(self.ours)

    @property
    def files(self) -> list[str]:
        return _QUOTED.findall(self.file)

    @property
    def subjects(self) -> list[str]:
        """`RemoteLog` of RemoteLogManager."""
        return [_TASK.sub("", name) for name in self.kafka.split(", ")]


def test_every_file_of_the_glossary_exists() -> None:
    assert [file for row in _rows() for file in row.files if not path_of(file).exists()] == []


def test_every_name_of_the_glossary_is_defined_in_a_file_of_its_row() -> None:
    undefined = []
    for row in _rows():
        defined = {name for file in row.files for name in _defined(path_of(file))}
        undefined += [f"{name} in {row.files}" for name in row.names if name not in defined]
    assert undefined == []


def test_each_row_names_a_counterpart_or_says_that_there_is_none() -> None:
    assert [row for row in _rows() if not (row.names or row.ours == NONE)] == []
    assert [row for row in _rows() if not (row.files or row.file == NONE)] == []
    assert [row for row in _rows() if row.file == NONE and row.ours != NONE] == []


def test_what_has_no_counterpart_is_a_feature_that_is_not_supported() -> None:
    absent = [row for row in _rows() if row.file == NONE]
    assert len(absent) >= 3
    assert [row for row in absent if row.note not in {missing.feature for missing in MISSING}] == []


def test_nothing_in_the_tree_has_the_name_of_what_has_no_counterpart() -> None:
    subjects = [subject for row in _rows() if row.file == NONE for subject in row.subjects]
    assert [name for name in _names_of_the_tree() if any(_is_named(name, one) for one in subjects)] == []


def test_a_subject_is_found_in_the_names_of_classes_functions_and_files() -> None:
    (subject,) = Row("DelegationTokenControlManager", NONE, NONE, "").subjects
    assert subject == "DelegationToken"
    assert all(
        _is_named(name, subject) for name in ("DelegationTokens", "delegation_tokens", "_of_delegation_token")
    )
    assert not any(_is_named(name, subject) for name in ("TokenBucket", "tokens", "DelegationRecord"))


def _is_named(name: str, subject: str) -> bool:
    """Whether a name in either spelling has the words of the subject."""
    return subject.lower() in name.replace("_", "").lower()


@cache
def _names_of_the_tree() -> frozenset[str]:
    """The classes, functions and modules of the product, without the messages of the protocol: sparklog reads
    and writes all of Kafka's.
    """
    shown = [
        one for name, one in modules().items() if ".wire.messages" not in name and ".records" not in name
    ]
    return frozenset(
        name
        for module in shown
        for name in (
            module.path.stem,
            *(node.name for node in nodes_of(module) if isinstance(node, ast.ClassDef | ast.FunctionDef)),
        )
    )


@cache
def _rows() -> tuple[Row, ...]:
    """The lines of the tables."""
    rows = [
        Row(*(cell.strip() for cell in (*line.strip("|").split("|"), "")[:4]))
        for line in (PROJECT / "docs/glossary.md").read_text().splitlines()
        if line.startswith("|") and ("`" in line or NONE in line)
    ]
    assert len(rows) > 100
    return tuple(rows)


@cache
def _defined(path: Path) -> frozenset[str]:
    if not path.exists():
        return frozenset()
    definitions = (ast.ClassDef, ast.FunctionDef)
    nodes = list(ast.walk(ast.parse(path.read_text())))
    exported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return frozenset({node.name for node in nodes if isinstance(node, definitions)} | exported)
