"""Bytes and names as inert text."""

import unicodedata

import pytest

from sparklog_server.operations.inert_text import NAME_CHARACTERS_MAX, Shown, inert, inert_name, pretty, shown

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\x00b", r"a\x00b"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("abc\u202edcba", r"abc\u202edcba"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("\u200bzero", r"\u200bzero"),
        ("two\nlines", r"two\nlines"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("\ufeffbom", r"\ufeffbom"),
        ("half\ud83d", r"half\ud83d"),
        ("Ünïcode 漢字 עברית 😀", "Ünïcode 漢字 עברית 😀"),
    ],
)
def test_characters_that_act_are_shown_as_escapes(text: str, told: str) -> None:
    assert inert(text) == told


def test_no_control_or_format_character_is_left() -> None:
    left = [
        hex(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp", "Cs") and inert(chr(code)) == chr(code)
    ]
    # Marks of scripts that are written from left to right, in musical and shorthand notation, and Arabic
    # signs that enclose numbers: none of them hides or reorders text around it.
    assert [code for code in left if not 0x600 <= int(code, 16) <= 0x8FF and int(code, 16) < 0x11000] == []


def test_a_long_name_is_cut_with_its_length() -> None:
    told = inert_name("n" * MIB)
    assert told.endswith(f"… ({MIB} characters)")
    assert len(told) < NAME_CHARACTERS_MAX + 40


@pytest.mark.parametrize(
    ("content", "form", "told"),
    [
        (None, "auto", ("null", "null")),
        (b"", "auto", ("text", "")),
        (b'{"b":1,"a":[]}', "auto", ("json", '{\n  "b": 1,\n  "a": []\n}')),
        (b"{broken", "auto", ("text", "{broken")),
        (b"12", "json", ("json", "12")),
        (b"12", "auto", ("text", "12")),
        (
            b'{"big":123456789012345678901234567890}',
            "auto",
            ("json", '{\n  "big": 123456789012345678901234567890\n}'),
        ),
        (b"two\nlines\x1b[0m", "auto", ("text", "two\nlines\\x1b[0m")),
        (b"\xff\xfe\x00", "auto", ("hex", "00000000  ff fe 00                                         ···")),
        (b"ab", "hex", ("hex", "00000000  61 62                                            ab")),
        (
            b"\x01\x02\x03\x04",
            "auto",
            ("hex", "00000000  01 02 03 04                                      ····"),
        ),
        (b"\xffa", "text", ("text", "\ufffda")),
    ],
)
def test_a_value_is_shown_in_the_form_that_fits(
    content: bytes | None, form: str, told: tuple[str, str]
) -> None:
    found = shown(content, form, 1000)  # type: ignore[arg-type]
    assert (found.form, found.text) == told


@pytest.mark.parametrize(
    "content", [b"x" * MIB, b"\xff" * MIB, b'["' + b"x" * MIB + b'"]', "é".encode() * MIB]
)
@pytest.mark.parametrize("form", ["auto", "text", "hex", "json"])
def test_a_large_value_is_cut(content: bytes, form: str) -> None:
    found = shown(content, form, 1000)  # type: ignore[arg-type]
    assert found.is_cut
    assert found.size == len(content)
    assert len(found.text) <= 1100


def test_json_whose_indents_would_fill_the_memory_is_on_one_line() -> None:
    content = b"[" * 500 + b"1," * 500_000 + b"1" + b"]" * 500
    assert len(shown(content, "auto", 4_000_000).text) < 3 * len(content)
    assert pretty(b'{"a": "[[[["}') == '{\n  "a": "[[[["\n}'


def test_json_that_is_nested_without_end_is_text() -> None:
    assert shown(b"[" * 100_000, "auto", 100).form == "text"
    assert shown(b"[" * 100_000 + b"]" * 100_000, "auto", 100).form in ("text", "json")


def test_a_schema_that_does_not_fit_is_told_and_the_bytes_are_shown() -> None:
    def refuses(_: bytes) -> tuple[str, str]:
        raise ValueError("no such <branch>")

    assert shown(b"abc", "auto", 100, refuses) == Shown(
        "text", "abc", 3, False, "not as the schema says: no such <branch>"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (rb'{"a": "Zo\u00eb \ud83d\ude00"}', '{"a": "Zoë 😀"}'),
        (
            rb'{"a": "\\u00eb \u0022 \u005c \u000a \u202e \ud83d"}',
            r'{"a": "\\u00eb \u0022 \u005c \u000a \u202e \ud83d"}',
        ),
        (rb'{"a": "\ud83d\udc68\u200d\ud83d\udc69"}', '{"a": "\U0001f468\u200d\U0001f469"}'),
    ],
)
def test_json_shows_escaped_characters_as_what_they_are(content: bytes, told: str) -> None:
    assert shown(content, "auto", 1000, is_compact=True).text == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
        ("\u2764\ufe0f\u200d\U0001f525", "\u2764\ufe0f\u200d\U0001f525"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("a\u200db", r"a\u200db"),
        ("\U0001f468\u200d", "\U0001f468\\u200d"),
        ("a\ufe0f\u200d\U0001f467", "a\\ufe0f\\u200d\U0001f467"),
    ],
)
def test_a_joiner_within_a_picture_or_a_word_is_no_escape(text: str, told: str) -> None:
    assert inert(text, has_lines=True) == told


def test_a_name_has_every_joiner_as_an_escape() -> None:
    assert inert("\U0001f468\u200d\U0001f469") == "\U0001f468\\u200d\U0001f469"


def test_the_printable_bytes_stand_beside_the_hexadecimal_ones_in_a_narrow_column() -> None:
    lines = shown(bytes(range(0x41, 0x4D)), "hex", 320, is_compact=True).text.splitlines()
    assert lines == ["0000  41 42 43 44 45 46 47 48  ABCDEFGH", "0008  49 4a 4b 4c              IJKL"]
