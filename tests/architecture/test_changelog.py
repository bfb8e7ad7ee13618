"""A release of CHANGELOG.md is short, and each fragment in changelog.d/ can be folded into it as it is: a
kind in its name, one or two lines.
"""

import re

from tests.architecture.source_tree import PROJECT

KINDS = {"added", "changed", "fixed", "removed"}
LINES_MAX = 2
CHANGES_MAX = 80
CHARACTERS_MAX = 160


def test_a_fragment_has_a_kind_and_at_most_two_lines() -> None:
    fragments = [path for path in sorted((PROJECT / "changelog.d").iterdir()) if path.name != "README.md"]
    wrong = [
        path.name
        for path in fragments
        if not _has_kind(path.name) or not 1 <= len(path.read_text().splitlines()) <= LINES_MAX
    ]
    assert wrong == [], "see changelog.d/README.md"


def test_a_release_is_read_in_minutes_and_each_change_is_one_line() -> None:
    for release in re.split(r"^## ", (PROJECT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]:
        title, *lines = release.splitlines()
        changes = [line for line in lines if line.startswith("- ")]
        assert 0 < len(changes) <= CHANGES_MAX, title
        assert [line for line in changes if len(line) > CHARACTERS_MAX] == [], title
        assert [line for line in lines if line.startswith(" ")] == [], title


def _has_kind(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 3 and bool(parts[0]) and parts[1] in KINDS and parts[2] == "md"
