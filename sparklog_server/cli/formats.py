r"""Format strings of `consume -f`, in kcat's syntax, compiled once into functions.

%t topic      %p partition    %o offset         %T timestamp in ms
%k key        %K its length   %s value          %S its length       %R its length as 4 bytes, big-endian
%h headers, `name=value` with commas    %% a percent sign    \n \r \t \\ \0 \xHH
"""

from collections.abc import Callable
from os import fsencode
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sparklog.client.consumer.consumer import ConsumerRecord

Part = Callable[["ConsumerRecord"], bytes]

FIELDS: dict[str, Part] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "s": lambda record: record.value or b"",
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
    "h": lambda record: b",".join(
        name.encode() + b"=" + (value if value is not None else b"NULL") for name, value in record.headers
    ),
}
ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


def unescaped(text: str, hint: str) -> bytes:
    r"""The bytes of a text with escapes such as \n, \t or \xHH."""
    written = bytearray()
    rest = iter(range(len(text)))
    for index in rest:
        if text[index] != "\\":
            written += fsencode(text[index])
            continue
        letter = text[index + 1 : index + 2]
        digits = text[index + 2 : index + 4]
        next(rest, None)
        if letter in ESCAPES:
            written += ESCAPES[letter]
        elif (
            letter == "x" and len(digits) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in digits)
        ):
            written.append(int(digits, 16))
            next(rest), next(rest)
        else:
            raise click.BadParameter(
                f"\\{letter} in {text!r} is none of \\n \\r \\t \\0 \\xHH \\\\", param_hint=hint
            )
    return bytes(written)


def compiled(text: str) -> Callable[["ConsumerRecord"], bytes]:
    """The bytes to print for a record, by the format `text`. Raises BadParameter for an unknown field."""
    parts: list[Part] = []
    literal = ""
    position = 0
    while position < len(text):
        letter = text[position]
        if letter != "%":
            # An escape is copied into the literal unchanged, so that `\\%` keeps its meaning.
            step = 2 if letter == "\\" else 1
            literal += text[position : position + step]
            position += step
            continue
        field = text[position + 1 : position + 2]
        position += 2
        if field == "%":
            literal += "%"
        elif field in FIELDS:
            parts += _literal(literal)
            literal = ""
            parts.append(FIELDS[field])
        else:
            known = " ".join(f"%{name}" for name in FIELDS)
            raise click.BadParameter(f"%{field} in {text!r} is none of {known} %%", param_hint="--format")
    parts += _literal(literal)
    return lambda record: b"".join([part(record) for part in parts])


def _literal(text: str) -> list[Part]:
    if not text:
        return []
    written = unescaped(text, "--format")
    return [lambda _: written]


def _length(value: bytes | None) -> int:
    """The length, -1 for null, as in kcat."""
    return -1 if value is None else len(value)
