"""The prefix that clients of schema registries write before the content: a zero byte and the schema id.

 0  0x00
 1  schema id, int32 big-endian
 5  Protobuf only: the path of the message in the schema, as a count of zig-zag varints and the varints
    (or a single 0 for the first message)
..  content
"""

from collections.abc import Sequence
from struct import pack, unpack_from
from typing import Final

MAGIC: Final = b"\0"
SIZE: Final = 5
_INDEXES_MAX: Final = 64


def prefix_of(schema_id: int, indexes: Sequence[int] | None = None) -> bytes:
    """The prefix; `indexes` is the path of a Protobuf message in its file."""
    prefix = MAGIC + pack(">i", schema_id)
    if indexes is None:
        return prefix
    return prefix + (MAGIC if tuple(indexes) == (0,) else b"".join(map(_zigzag, (len(indexes), *indexes))))


def is_prefixed(content: bytes) -> bool:
    """Whether the content begins like the prefix."""
    return len(content) >= SIZE and content[:1] == MAGIC


def schema_id_of(content: bytes) -> int:
    """The schema id of content that `is_prefixed`."""
    schema_id: int = unpack_from(">i", content, 1)[0]
    return schema_id


def message_indexes(content: bytes) -> tuple[Sequence[int], int]:
    """The path of the message within its file, after the id, and the position of the content; ValueError if
    it does not end.
    """
    count, at = _varint(content, SIZE)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise ValueError(f"{count} message indexes after the schema id")
    indexes: list[int] = []
    for _ in range(count):
        index, at = _varint(content, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while at < len(content) and shift <= 28:
        byte = content[at]
        raw |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise ValueError("the message indexes after the schema id do not end")


def _zigzag(number: int) -> bytes:
    """A number from 0 as a zig-zag varint."""
    raw, made = number << 1, bytearray()
    while raw >= 0x80:
        made.append(raw & 0x7F | 0x80)
        raw >>= 7
    made.append(raw)
    return bytes(made)
