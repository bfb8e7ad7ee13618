"""One function for each medium: nothing acts, and what need not change does not."""

import json

import pytest

from sparklog import escapes

HOSTILE = "a\n\t\r\x00\x1b[2J\x7f\x85\x9b\xad\u061c\u200b\u202e\u2028\u3164\ufe0f\ufeff\ud800\U000e0041"
SHOWN = r"a\n\t\r\x00\x1b[2J\x7f\x85\x9b\xad\u061c\u200b\u202e\u2028\u3164\ufe0f\ufeff\ud800\U000e0041"


def test_each_medium_shows_a_hostile_name_on_one_line() -> None:
    assert escapes.terminal(HOSTILE) == escapes.cell(HOSTILE) == SHOWN
    assert escapes.log_value(HOSTILE) == f"'{SHOWN}'"
    assert escapes.lines(HOSTILE) == SHOWN.replace(r"\n", "\n").replace(r"\t", "\t")


def test_what_is_escaped_stays() -> None:
    assert escapes.lines(escapes.terminal(SHOWN)) == SHOWN


@pytest.mark.parametrize("is_ascii", [False, True])
def test_json_keeps_each_name_exactly(*, is_ascii: bool) -> None:
    written = json.dumps({HOSTILE: [HOSTILE, 1.5]}, ensure_ascii=is_ascii)
    shown = escapes.json_text(written)
    assert escapes.terminal(shown) == shown
    assert json.loads(shown) == {HOSTILE: [HOSTILE, 1.5]}


@pytest.mark.parametrize("plain", ["orders", "café", "漢字", "User:CN=a,O=b", "a\\nb", "😀"])
def test_a_plain_name_is_as_it_is(plain: str) -> None:
    assert escapes.terminal(plain) == escapes.lines(plain) == escapes.json_text(plain) == plain


def test_a_cell_without_a_value_is_empty() -> None:
    assert [escapes.cell(None), escapes.cell(0), escapes.log_value("")] == ["", "0", "''"]
