"""The prose of our pages passes proselint, and neither they nor the code have words that we do not use."""

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_tree import modules
from tests.tools import PROJECT

IGNORED = {
    "typography": "quotes and ellipses are those of the code",
    "misc.phrasal_adjectives.ly": "exactly-once is a term of the field",
}
"""Checks that do not suit our pages, and why."""
OURS = re.compile(
    r"\b(nobody|somebody|whoever|whatever|simply|obviously|please|utili[sz]e|leverage)\b", re.IGNORECASE
)
ACTORS = re.compile(r"\b(nobody|somebody|whoever|whatever)\b", re.IGNORECASE)
"""Not names of anything in the system: a sentence names the follower, the reader or the request."""
FINDING = re.compile(r"^\S+/([\w.-]+):(\d+):\d+: ([\w.]+): (.*)$", re.MULTILINE)


def pages() -> list[Path]:
    return [PROJECT / "README.md", PROJECT / "CHANGELOG.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def prose(page: Path) -> str:
    """The text of a page with each block, table and piece of code replaced, line by line."""
    kept, is_block = [], False
    words = itertools.cycle(("Code", "Name", "Word"))  # two pieces of code in a row are no word written twice
    for line in page.read_text().splitlines():
        is_fence = line.startswith("```")
        is_block ^= is_fence
        kept.append(
            "" if is_block or is_fence or line.startswith(("|", "#", ":::")) else _without_code(line, words)
        )
    return "\n".join(kept)


def _without_code(line: str, words: Iterator[str]) -> str:
    line = re.sub(r"(?<=\d) (?=\d{3}\b)", "", line)  # 50 000 is one number
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", line)
    return re.sub(r"`[^`]*`", lambda _: next(words), text)


def test_proselint_finds_nothing(tmp_path: Path) -> None:
    written = []
    for page in pages():
        written.append(tmp_path / page.relative_to(PROJECT).as_posix().replace("/", "-"))
        written[-1].write_text(prose(page))
    done = subprocess.run(
        [sys.executable, "-m", "proselint", "check", *map(str, written)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    found = [one for one in FINDING.findall(done.stdout) if not one[2].startswith(tuple(IGNORED))]
    assert found == []


def test_no_page_has_a_word_that_ours_do_not_use() -> None:
    found = [
        f"{page.name}:{number}: {word}"
        for page in pages()
        for number, line in enumerate(prose(page).splitlines(), 1)
        for word in OURS.findall(line)
        if page.parent.name != "decisions"  # records of their day
    ]
    assert found == []


def test_no_module_has_an_actor_that_does_not_exist() -> None:
    found = [
        module.at(number)
        for module in modules().values()
        for number, line in enumerate(module.path.read_text().splitlines(), 1)
        if ACTORS.search(line)
    ]
    assert found == []
