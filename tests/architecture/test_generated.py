"""What is generated from the code is what the code says now, and no page points into the void."""

from docs import limits
from docs.generate import PROJECT, broken_links, generated


def test_generated_files_are_current() -> None:
    stale = [
        str(path.relative_to(PROJECT))
        for path, text in generated().items()
        if not path.exists() or path.read_text() != text
    ]
    assert stale == [], "run `make docs`"


def test_no_link_is_broken() -> None:
    assert broken_links() == []


def test_every_setting_that_bounds_something_is_on_the_page_of_limits() -> None:
    assert limits.undocumented() == []


def test_what_the_bounds_on_memory_allow_together_is_at_most_512_mib() -> None:
    assert limits.memory_bytes() <= 512 << 20
