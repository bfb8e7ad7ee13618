"""Names, keys and values as inert text: no control character acts on a page, and nothing is endless."""

import re
from collections.abc import Callable
from itertools import accumulate
from typing import Final, Literal, NamedTuple

import msgspec

from sparklog import escapes

Form = Literal["auto", "json", "avro", "protobuf", "text", "hex"]
FORMS: Final[tuple[Form, ...]] = ("auto", "json", "avro", "protobuf", "text", "hex")

JSON_BYTES_MAX: Final = 2 << 20
INDENTED_BYTES_MAX: Final = 32 << 20
"""The indent of each element grows with its depth: their product bounds the size of the result."""
NAME_CHARACTERS_MAX: Final = 300

# What joins two pictures (UTS #51) or two letters of an Arabic or Indic script, or chooses the look of a
# picture, is part of a character that is seen.
_PICTURE: Final = "[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]"
_LETTER: Final = "[\u0600-\u06ff\u0750-\u077f\u0900-\u0dff]"
_JOINERS: Final = "\u200c\u200d\ufe0f"
_ACTING_OR_JOINING: Final = re.compile(
    f"(?P<joining>(?<={_PICTURE})(?:\ufe0f?\u200d(?={_PICTURE})|\ufe0f)|(?<={_LETTER})[\u200c\u200d](?={_LETTER}))"
    f"|{escapes.ACTING_IN_LINES}"
)
_JSON_ESCAPES: Final = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\."
)

_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class Shown(NamedTuple):
    """Bytes as text: the form that was used, the text, the size in bytes (None for null), whether it is cut,
    and why the wanted form does not fit.
    """

    form: str
    text: str
    size: int | None
    is_cut: bool
    problem: str = ""


def inert(text: str, *, has_lines: bool = False) -> str:
    r"""The text with `\x1b` or `\u202e` in place of each character that could act instead of being seen;
    `has_lines` is for a value: it keeps line feeds, tabs, and joiners within pictures and words.
    """
    if not has_lines:
        return escapes.terminal(text)
    if any(joiner in text for joiner in _JOINERS):
        return _ACTING_OR_JOINING.sub(lambda found: found["joining"] or escapes.lines(found[0]), text)
    return escapes.lines(text)


def inert_name(text: str) -> str:
    """A name on one line, cut with a note."""
    if len(text) <= NAME_CHARACTERS_MAX:
        return inert(text)
    return f"{inert(text[:NAME_CHARACTERS_MAX])}… ({len(text)} characters)"


def shown(
    content: bytes | None,
    form: Form,
    limit: int,
    decode: "Callable[[bytes], tuple[str, str]] | None" = None,
    *,
    is_compact: bool = False,
) -> Shown:
    """Bytes in this form, at most `limit` characters. `decode` is that of the schema, if one is given: the
    name of its form, and JSON; it raises ValueError. `auto` takes the first of schema, JSON, text and hex
    that fits.
    """
    if content is None:
        return Shown("null", "null", None, False)
    size = len(content)
    if form in ("auto", "avro", "protobuf") and decode is not None:
        try:
            name, text = decode(content)
            if is_compact:
                text = pretty(text.encode("utf-8", "replace"), is_compact=True)
            return _cut(name, text, size, limit)
        except ValueError as error:
            return _plain(content, limit, is_compact=is_compact)._replace(
                problem=f"not as the schema says: {inert_name(str(error))}"
            )
    if form in ("avro", "protobuf"):
        return _plain(content, limit, is_compact=is_compact)._replace(
            problem="no schema is given: sparklog console --schema"
        )
    if form == "json" or (form == "auto" and content[:1] in (b"{", b"[")):
        try:
            return _cut("json", readable(pretty(content, is_compact=is_compact)), size, limit)
        except ValueError as error:
            if form == "json":
                return _plain(content, limit, is_compact=is_compact)._replace(
                    problem=f"not JSON: {inert_name(str(error))}"
                )
    if form == "hex":
        return _hex(content, limit, is_compact=is_compact)
    return _plain(content, limit, is_forced=form == "text", is_compact=is_compact)


def pretty(content: bytes, *, is_compact: bool = False) -> str:
    """JSON with an indent of two, or on one line if that is asked for or the indents would be long, its
    numbers as they are written; raises ValueError.
    """
    if len(content) > JSON_BYTES_MAX:
        raise ValueError(f"{len(content)} bytes are not read as JSON, only up to {JSON_BYTES_MAX}")
    try:
        flat = msgspec.json.format(content, indent=0)
        if is_compact or len(flat) * _depth(flat) > INDENTED_BYTES_MAX:
            return flat.decode()
        return msgspec.json.format(flat, indent=2).decode()
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def readable(text: str) -> str:
    r"""JSON with the characters that it writes as `\\u00eb`, except those that JSON or `inert` writes so."""
    return _JSON_ESCAPES.sub(_unescaped, text) if "\\u" in text else text


def _unescaped(found: re.Match[str]) -> str:
    if found[1]:
        code = 0x10000 + ((int(found[1], 16) & 0x3FF) << 10) + (int(found[2], 16) & 0x3FF)
    elif found[3]:
        code = int(found[3], 16)
    else:
        return found[0]
    character = chr(code)
    is_written_so = character in '"\\' or (re.match(escapes.ACTING, character) and character not in _JOINERS)
    return found[0] if is_written_so else character


def _depth(valid: bytes) -> int:
    """The depth of nesting of JSON that is valid."""
    brackets = _STRINGS.sub(b"", valid).translate(None, _NO_BRACKETS)
    return max(accumulate(1 if one in b"[{" else -1 for one in brackets), default=0)


def _plain(content: bytes, limit: int, *, is_compact: bool, is_forced: bool = False) -> Shown:
    """Text if the bytes are UTF-8 and mostly printable, else hex."""
    head = content[: limit * 4 + 4]
    text = head.decode("utf-8", "replace")
    if not is_forced:
        # A character that the cut has split is at the end.
        body = text[:-4] if len(head) < len(content) else text
        if "\ufffd" in body or len(re.findall(escapes.ACTING_IN_LINES, body)) * 4 > len(body):
            return _hex(content, limit, is_compact=is_compact)
    return _cut("text", text, len(content), limit, is_cut=len(head) < len(content))


def _hex(content: bytes, limit: int, *, is_compact: bool) -> Shown:
    """Lines of offset, bytes in hexadecimal, and the printable ones; compact ones fit into the column of
    a table and on the screen of a phone.
    """
    length, digits = (8, 4) if is_compact else (16, 8)
    rows = max(1, limit // (5 * length))
    lines = []
    for at in range(0, min(len(content), rows * length), length):
        part = content[at : at + length]
        plain = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in part)
        if is_compact and len(content) <= length:
            lines.append(f"{part.hex(' ')}  {plain}")
        else:
            lines.append(f"{at:0{digits}x}  {part.hex(' '):<{3 * length - 1}}  {plain}")
    return Shown("hex", "\n".join(lines), len(content), len(content) > rows * length)


def _cut(form: str, text: str, size: int, limit: int, *, is_cut: bool = False) -> Shown:
    return Shown(form, inert(text[:limit], has_lines=True), size, is_cut or len(text) > limit)
