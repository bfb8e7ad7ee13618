"""Format strings as kcat has them."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.consumer.consumer import ConsumerRecord
from sparklog_server.cli.formats import compiled, unescaped

RECORD = ConsumerRecord("t", 3, 42, 1_700_000_000_000, b"k\xff", b"value", (("a", b"1"), ("b", None)))
BARE = ConsumerRecord("t", 0, 0, -1, None, None, ())


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%t/%p@%o %k: %s\n", b"t/3@42 k\xff: value\n"),
        ("%T %K %S", b"1700000000000 2 5"),
        ("%R%s", b"\x00\x00\x00\x05value"),
        ("[%h]", b"[a=1,b=NULL]"),
        (r"100%% \x41\t\\%o", b"100% A\t\\42"),
        ("", b""),
        ("grüße", "grüße".encode()),
    ],
)
def test_fields_and_escapes_become_bytes(text: str, printed: bytes) -> None:
    assert compiled(text)(RECORD) == printed


def test_what_a_record_lacks_is_empty_with_a_length_of_minus_one() -> None:
    assert compiled("%k|%s|%K|%S|%T|%h")(BARE) == b"||-1|-1|-1|"
    assert compiled("%R")(BARE) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("%q", "%q in"), ("100%", "% in"), (r"\q", r"\q in"), (r"\x4", r"\x in"), ("\\", "\\ in")],
)
def test_what_is_not_known_is_named(text: str, complaint: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        compiled(text)
    assert complaint in refused.value.message


@given(st.text())
def test_any_text_is_either_a_format_or_refused_as_one(text: str) -> None:
    try:
        printed = compiled(text)(RECORD)
    except click.BadParameter:
        return
    assert isinstance(printed, bytes)


@given(st.text(alphabet=st.characters(exclude_characters="\\", exclude_categories=["Cs"])))
def test_a_text_without_backslashes_means_itself(text: str) -> None:
    assert unescaped(text, "x") == text.encode()
