"""The prefix that clients of schema registries write before the content: a zero byte and the schema id.

 0  0x00
 1  schema id, int32 big-endian
 5  Protobuf only: the path of the message in the schema, as a count of zig-zag varints and the varints
    (or a single 0 for the first message)
..  content
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

MAGIC: Final = b"\0"
SIZE: Final = 5
_INDEXES_MAX: Final = 64
_INT32_MAX: Final = (1 << 31) - 1


def is_prefixed(content: bytes) -> bool:
    """Whether the content begins like the prefix."""
    return len(content) >= SIZE and content[:1] == MAGIC


def without_prefix(values: pa.Array) -> pa.Array:
    """Binary values without the prefix, for formats whose content never begins with a zero byte."""
    begins = pc.starts_with(values, MAGIC)
    if not pc.any(begins).as_py():
        return values
    has_prefix = pc.and_(begins, pc.greater_equal(pc.binary_length(values), SIZE))
    # pyarrow fails if a value is shorter than the slice and no end is given.
    return pc.if_else(
        has_prefix, pc.binary_slice(pc.if_else(has_prefix, values, bytes(SIZE)), SIZE, _INT32_MAX), values
    )


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
