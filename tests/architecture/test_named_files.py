"""The files that our pages name exist."""

import fnmatch
import itertools
import re
import subprocess
from functools import cache

from tests.architecture.source_tree import PROJECT
from tests.architecture.test_prose import pages

ROOTS = ("", "sparklog/", "sparklog_server/", "docs/")
"""A page may leave out the folder in which its subject lies."""
SUFFIXES = r"\.(?:py|pyx|pxi|toml|yml|css|svg|ipynb)"
NAMED = re.compile(r"`((?:[\w*-]|{[\w,]+})[\w./*-]*(?:{[\w,]+}[\w./*-]*)?)(?:: \w+)?`")
OF_THE_READER = {"client.toml"}
"""Files that a reader writes."""


@cache
def files() -> frozenset[str]:
    """The files of the repository and their folders."""
    listed = subprocess.run(
        ("git", "ls-files", "--cached", "--others", "--exclude-standard"),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    folders = {
        "/".join(file.split("/")[:depth]) for file in listed for depth in range(1, file.count("/") + 1)
    }
    return frozenset(listed) | folders


@cache
def exists(named: str) -> bool:
    """Whether the tree has it: below one of the roots, or a file of that name anywhere. `*` and `{a,b}` stand
    for what they do in a shell.
    """
    tree = files() if "/" in named else {file.rpartition("/")[2] for file in files()}
    return all(
        any(fnmatch.filter(tree, f"{root}{one}".rstrip("/")) for root in ROOTS) for one in _expanded(named)
    )


def _expanded(named: str) -> list[str]:
    parts = re.split(r"{([^}]*)}", named)
    choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
    return ["".join(one) for one in itertools.product(*choices)]


def is_file(named: str) -> bool:
    """Whether what stands in the text of a page is a path of the tree, by its end or its first folder."""
    first, slash, _ = named.partition("/")
    return re.search(rf"\w{SUFFIXES}$", named) is not None or bool(slash and first in _folders())


@cache
def _folders() -> frozenset[str]:
    """The folders that a path may begin with."""
    return frozenset(
        file.removeprefix(root).split("/")[0] for root in ROOTS for file in files() if "/" in file
    )


def test_every_file_that_a_page_names_exists() -> None:
    missing = [
        f"{page.relative_to(PROJECT)}:{number}: {named}"
        for page in pages()
        for number, line in enumerate(page.read_text().splitlines(), 1)
        for named in NAMED.findall(line)
        if is_file(named) and named not in OF_THE_READER and not exists(named)
    ]
    assert missing == []


def test_a_stale_path_is_found() -> None:
    assert NAMED.findall("`broker/controller.py: decide` and `a b` and `security/{plain,scram}.py`") == [
        "broker/controller.py",
        "security/{plain,scram}.py",
    ]
    assert is_file("broker/report_clients.py")
    assert is_file("replica/nothing")
    assert not is_file("retention.ms")
    assert not exists("broker/report_clients.py")
    assert not exists("security/{plain,nothing}.py")
    assert exists("security/{plain,scram}.py")
    assert exists("classic*.py")
    assert exists("tests/compatibility/")
