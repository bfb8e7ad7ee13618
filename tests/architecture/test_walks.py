"""The pages on the code are true: each file and function that their tables name exists, each room is in the
picture, and a node that is sent the requests of the walks calls the named functions in that order.
"""

import json
import re
import subprocess
import sys
from functools import cache
from typing import Final, NamedTuple

import pytest

from tests.architecture.definitions import defined_in, path_of
from tests.architecture.source_tree import PACKAGES, PROJECT

ARCHITECTURE: Final = "docs/ARCHITECTURE.md"
PAGES: Final = (ARCHITECTURE, "docs/internals.md")
HEADING: Final = "| file | function | what happens |"
WALKS: Final = ("One Produce", "One Fetch", "One micro-batch of Spark", "One CreateTopics", "One scrape")
Calls = dict[str, list[tuple[str, str]]]
_QUOTED = re.compile(r"`([^`]+)`")


class Step(NamedTuple):
    """A row: functions of a file, in the order in which they are called first."""

    file: str
    functions: tuple[str, ...]


@cache
def walks(page: str) -> dict[str, list[Step]]:
    """The tables of steps on a page, each by the heading above it."""
    found: dict[str, list[Step]] = {}
    above, is_table = "", False
    for line in (PROJECT / page).read_text().splitlines():
        if line.startswith("#"):
            above = line.lstrip("# ")
        is_table = line == HEADING or (is_table and line.startswith("|"))
        if is_table and line.startswith("| `"):
            files, functions, _ = line.strip("|").split("|", 2)
            (file,) = _QUOTED.findall(files)
            found.setdefault(above, []).append(Step(file, tuple(_QUOTED.findall(functions))))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_function_of_a_walk_is_defined_in_its_file(page: str) -> None:
    steps = [step for walk in walks(page).values() for step in walk]
    assert len(steps) > 15
    assert [step for step in steps if not step.functions] == []
    missing = [
        f"{step.file}: {name}"
        for step in steps
        for name in step.functions
        if name not in defined_in(path_of(step.file))
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_every_class_that_a_sentence_names_exists_with_its_member(page: str) -> None:
    named = {
        (one, member)
        for line in (PROJECT / page).read_text().splitlines()
        for one, member in re.findall(r"`([A-Z]\w*[a-z]\w*)(?:\.(\w+))?(?:\([^`]*\))?`", line)
    }
    assert len(named) > 5
    missing = {
        f"{one}.{member}"
        for one, member in named
        if not any(re.search(rf"\b{member}\b", text) for text in classes().get(one, ()))
    }
    assert missing == set()


@cache
def classes() -> dict[str, list[str]]:
    """The source of each class of the product, by name."""
    found: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in (PROJECT / package).rglob("*.py"):
            for text, name in re.findall(
                r"^(class (\w+).*\n(?:(?: .*)?\n)*)", path.read_text(), re.MULTILINE
            ):
                found.setdefault(name, []).append(text)
    return found


def test_the_picture_has_every_room() -> None:
    text = (PROJECT / ARCHITECTURE).read_text()
    picture = text.partition("## The rooms\n\n```\n")[2].partition("```")[0]
    shown = set(re.findall(r"\w+", picture))
    rooms = {file.parent.name for package in PACKAGES for file in (PROJECT / package).rglob("__init__.py")}
    assert len(rooms) > 40
    assert rooms - shown == {"pyspark_sparklog"}  # one file, which Spark finds by that name


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """The calls of each walk, by heading."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")
    directory = tmp_path_factory.mktemp("walked")
    done = subprocess.run(
        (
            sys.executable,
            "-m",
            "tests.architecture.walked",
            str(directory / "data"),
            str(directory / "calls"),
        ),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((directory / "calls").read_text())
    return {walk: [(file, name) for file, name in calls] for walk, calls in found.items()}


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_names_functions_in_the_order_in_which_they_are_called(walk: str, called: Calls) -> None:
    assert first_out_of_order(walks(ARCHITECTURE)[walk], called[walk]) is None


def first_out_of_order(steps: list[Step], calls: list[tuple[str, str]]) -> str | None:
    """The first function that is not called after the one above it."""
    rest = iter(calls)
    for step in steps:
        file = path_of(step.file).relative_to(PROJECT).as_posix()
        for name in step.functions:
            if (file, name) not in rest:  # takes the calls up to this one
                return f"{step.file}: {name}"
    return None


def test_a_function_that_is_called_before_the_one_above_it_is_found() -> None:
    calls = [("sparklog/a.py", "first"), ("sparklog/b.py", "second"), ("sparklog/a.py", "third")]
    first, second = Step("sparklog/a.py", ("first", "third")), Step("sparklog/b.py", ("second",))
    assert first_out_of_order([first], calls) is None
    assert first_out_of_order([second, first], calls) == "sparklog/a.py: first"
    assert first_out_of_order([first, second], calls) == "sparklog/b.py: second"


def test_each_walk_is_a_table_of_the_page() -> None:
    assert tuple(walks(ARCHITECTURE)) == WALKS
