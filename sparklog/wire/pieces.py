"""A reply of so many elements that it is encoded piece by piece: no call of the codec takes long, and no element is kept once it is bytes.

frame of the head, which has no element │ frame of the whole
… │ count = 0 │ [tags]                  │ … │ count = n │ elements of each piece in turn │ [tags]
"""

from sparklog.effects import Chunk
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.codec import encode
from sparklog.wire.schema import Message

_FRAME_LENGTH_BYTES = 4


class Pieces(Message):
    """A reply whose last field without a tag is an array; `head` is the reply without elements, all its other fields as they are to be.

    `throttle_time_ms` takes the place of the head's own, so that it can be told at the end as with any reply.
    """

    head: Message
    api_key: int
    version: int
    throttle_time_ms: int = 0
    count: int = 0
    elements: bytearray = bytearray()

    def add(self, piece: Message, count: int) -> None:
        """Take in the `count` elements of a reply of the head's class, whose other fields are the defaults."""
        empty = len(_whole(encode(type(piece)(), self.version)))
        encoded = _whole(encode(piece, self.version))
        is_flexible = self._is_flexible
        begin = empty - len(_count(0, is_flexible=is_flexible)) - is_flexible + len(_count(count, is_flexible=is_flexible))
        self.elements += memoryview(encoded)[begin : len(encoded) - is_flexible]
        self.count += count

    def spliced(self, frame: list[Chunk]) -> list[Chunk]:
        """The whole frame, made of the head's."""
        head = _whole(frame)
        is_flexible = self._is_flexible
        none = _count(0, is_flexible=is_flexible) + bytes(is_flexible)
        assert head.endswith(none), head
        front = head[_FRAME_LENGTH_BYTES : len(head) - len(none)] + _count(self.count, is_flexible=is_flexible)
        tags = bytes(is_flexible)
        size = len(front) + len(self.elements) + len(tags)
        return [size.to_bytes(_FRAME_LENGTH_BYTES, "big") + front, memoryview(self.elements), *([tags] if tags else [])]

    @property
    def _is_flexible(self) -> bool:
        return self.version >= API_BY_KEY[self.api_key].flexible


def _count(count: int, *, is_flexible: bool) -> bytes:
    """The length of an array as it stands before its elements."""
    if not is_flexible:
        return count.to_bytes(4, "big")
    encoded, rest = bytearray(), count + 1
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _whole(chunks: list[Chunk]) -> bytes:
    (chunk,) = chunks
    assert isinstance(chunk, bytes)
    return chunk
