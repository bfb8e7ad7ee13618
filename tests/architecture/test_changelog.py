"""Each fragment in changelog.d/ can be folded into CHANGELOG.md as it is: a kind in its name, one or two
lines.
"""

from tests.architecture.source_tree import PROJECT

KINDS = {"added", "changed", "fixed", "removed"}
LINES_MAX = 2


def test_a_fragment_has_a_kind_and_at_most_two_lines() -> None:
    fragments = [path for path in sorted((PROJECT / "changelog.d").iterdir()) if path.name != "README.md"]
    wrong = [
        path.name
        for path in fragments
        if not _has_kind(path.name) or not 1 <= len(path.read_text().splitlines()) <= LINES_MAX
    ]
    assert wrong == [], "see changelog.d/README.md"


def _has_kind(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 3 and bool(parts[0]) and parts[1] in KINDS and parts[2] == "md"
