"""The plain-Python twin of the `json` kernel: flat objects of JSON (RFC 8259) to Arrow-layout columns,
where all is as it usually is.
"""

import re
from collections.abc import Sequence
from math import copysign, isfinite
from struct import pack_into, unpack_from

Buffer = bytes | bytearray | memoryview
Column = tuple[bytearray, ...]

BOOLEAN = 0
INT = 1
LONG = 2
DOUBLE = 3
STRING = 4

_FORMATS = {INT: ("=i", 4), LONG: ("=q", 8), DOUBLE: ("=d", 8)}
_DEPTH_MAX = 32
_NUMBER_BYTES_MAX = 63
_SPACE = re.compile(rb"[ \t\r\n]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_STRING = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*)"')
_ESCAPE = re.compile(rb"\\(.)")
_MEANT = dict(zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True))
_WORDS = {b"t": b"true", b"f": b"false", b"n": b"null"}


class _Refused(Exception):
    """Not for this kernel."""


def read_objects(
    count: int, offsets: Buffer, content: Buffer, start: int, fields: Sequence[tuple[bytes, int]]
) -> list[Column] | None:
    """Rows `[start, start + count)` of a binary column without nulls: a column for each field (name,
    sort); None if a row is refused.

    A column is (validity, values), of text (validity, int32 offsets, bytes); what is missing or null is
    null. Each row must be one object of UTF-8. A field must have a value of its sort and stand there once;
    others are passed over. Refused, though others may read them, are code points in hexadecimal, escapes
    in names, -0, integers beyond their type, doubles beyond theirs or written at great length, and objects
    nested deeper than 32.
    """
    ends = unpack_from(f"={count + 1}i", offsets, 4 * start)
    made = [_Column(count, sort) for _, sort in fields]
    places = {name: place for place, (name, _) in enumerate(fields)}
    try:
        bytes(content[ends[0] : ends[-1]]).decode()
        for row in range(count):
            for place, value in _object(bytes(content[ends[row] : ends[row + 1]]), fields, places).items():
                if value is not None:
                    made[place].put(row, value)
            for column in made:
                column.end(row)
    except (_Refused, UnicodeDecodeError):
        return None
    return [column.parts() for column in made]


class _Column:
    """One column while it is filled."""

    def __init__(self, count: int, sort: int) -> None:
        self._sort = sort
        self._validity = bytearray((count + 7) >> 3)
        sizes = {BOOLEAN: (count + 7) >> 3, STRING: 4 * (count + 1)}
        self._values = bytearray(sizes[sort] if sort in sizes else _FORMATS[sort][1] * count)
        self._content = bytearray()

    def put(self, row: int, value: bool | int | float | bytes) -> None:
        self._validity[row >> 3] |= 1 << (row & 7)
        if isinstance(value, bytes):
            self._content += value
        elif self._sort == BOOLEAN:
            self._values[row >> 3] |= int(value) << (row & 7)
        else:
            form, width = _FORMATS[self._sort]
            pack_into(form, self._values, row * width, value)

    def end(self, row: int) -> None:
        if self._sort == STRING:
            pack_into("=i", self._values, 4 * (row + 1), len(self._content))

    def parts(self) -> Column:
        return (
            (self._validity, self._values, self._content)
            if self._sort == STRING
            else (self._validity, self._values)
        )


def _object(
    text: bytes, fields: Sequence[tuple[bytes, int]], places: dict[bytes, int]
) -> dict[int, bool | int | float | bytes | None]:
    """The values of one object by the place of their field."""
    found: dict[int, bool | int | float | bytes | None] = {}
    at = _token(text, _space(text, 0), b"{")
    if text[at : at + 1] != b"}":
        while True:
            name, at = _string(text, at)
            if b"\\" in name:
                raise _Refused
            at = _token(text, _space(text, at), b":")
            place = places.get(name)
            if place is None:
                at = _skip(text, at, 1)
            elif place in found:
                raise _Refused
            else:
                found[place], at = _value(text, at, fields[place][1])
            at = _space(text, at)
            if text[at : at + 1] == b"}":
                break
            at = _token(text, at, b",")
    if _space(text, at + 1) != len(text):
        raise _Refused
    return found


def _value(text: bytes, at: int, sort: int) -> tuple[bool | int | float | bytes | None, int]:
    if text[at : at + 1] == b"n":
        return None, _word(text, at)
    if sort == STRING:
        escaped, at = _string(text, at)
        return _ESCAPE.sub(lambda found: bytes([_MEANT[found[1][0]]]), escaped), at
    if sort == BOOLEAN:
        return text[at : at + 1] == b"t", _word(text, at)
    found = _NUMBER.match(text, at)
    if found is None:
        raise _Refused
    if sort == DOUBLE:
        number = float(found[0]) if len(found[0]) <= _NUMBER_BYTES_MAX else float("inf")
        if not isfinite(number) or (number == 0 and copysign(1, number) < 0):
            raise _Refused
        return number, found.end()
    limit = 2**31 if sort == INT else 2**63
    if (
        found[1]
        or found[2]
        or found[0] == b"-0"
        or len(found[0].lstrip(b"-")) > 19
        or not -limit <= int(found[0]) < limit
    ):
        raise _Refused
    return int(found[0]), found.end()


def _skip(text: bytes, at: int, depth: int) -> int:
    """The position after a value of any kind."""
    first = text[at : at + 1]
    if first == b'"':
        return _string(text, at)[1]
    if first in _WORDS:
        return _word(text, at)
    if first not in (b"{", b"["):
        found = _NUMBER.match(text, at)
        if found is None:
            raise _Refused
        return found.end()
    if depth >= _DEPTH_MAX:
        raise _Refused
    closing = b"}" if first == b"{" else b"]"
    at = _space(text, at + 1)
    if text[at : at + 1] == closing:
        return at + 1
    while True:
        if first == b"{":
            at = _token(text, _space(text, _string(text, at)[1]), b":")
        at = _space(text, _skip(text, at, depth + 1))
        if text[at : at + 1] == closing:
            return at + 1
        at = _token(text, at, b",")


def _space(text: bytes, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _token(text: bytes, at: int, token: bytes) -> int:
    """The position after a token and the space behind it."""
    if text[at : at + 1] != token:
        raise _Refused
    return _space(text, at + 1)


def _word(text: bytes, at: int) -> int:
    word = _WORDS.get(text[at : at + 1])
    if word is None or text[at : at + len(word)] != word:
        raise _Refused
    return at + len(word)


def _string(text: bytes, at: int) -> tuple[bytes, int]:
    """The text between the quotes, and the position after them."""
    found = _STRING.match(text, at)
    if found is None:
        raise _Refused
    return found[1], found.end()
