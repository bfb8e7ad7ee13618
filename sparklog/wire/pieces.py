"""A reply with many elements, encoded in pieces: each call of the codec is short, and elements are not kept.

frame of the head            … │ count = 0 │ tail, [tags]
frame of the whole           … │ count = n │ elements of each piece in turn │ tail, [tags]
"""

from sparklog.effects import Chunk
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.codec import encode
from sparklog.wire.schema import Message

_FRAME_LENGTH_BYTES = 4


class Pieces(Message):
    """A reply with one long array; `head` is the reply without its elements.

    The untagged fields after the array take `tail_bytes`. `throttle_time_ms` replaces the head's own, because
    it is known only when the reply is complete.
    """

    head: Message
    api_key: int
    version: int
    tail_bytes: int = 0
    throttle_time_ms: int = 0
    count: int = 0
    size: int = 0
    elements: list[bytes] = []

    def add(self, piece: Message, count: int) -> None:
        """Adds the `count` elements of `piece`, a reply of the head's class with defaults elsewhere."""
        empty, encoded = _whole(encode(type(piece)(), self.version)), _whole(encode(piece, self.version))
        begin = self._count_at(empty) + len(self._count(count))
        element_bytes = encoded[begin : len(encoded) - self._rest_bytes]
        self.elements.append(element_bytes)  # in pieces, so that sent pieces are freed
        self.size += len(element_bytes)
        self.count += count

    def spliced(self, frame: list[Chunk]) -> list[Chunk]:
        """The whole frame, with the head's fields."""
        head = _whole(frame)
        count_at, rest = self._count_at(head), head[len(head) - self._rest_bytes :]
        front = head[_FRAME_LENGTH_BYTES:count_at] + self._count(self.count)
        size = len(front) + self.size + len(rest)
        return [size.to_bytes(_FRAME_LENGTH_BYTES, "big") + front, *self.elements, *([rest] if rest else [])]

    @property
    def _rest_bytes(self) -> int:
        return self.tail_bytes + self._is_flexible  # an empty tag section is one zero

    def _count_at(self, encoded: bytes) -> int:
        """The position of the array's length in a reply without elements."""
        none = self._count(0)
        begin = len(encoded) - self._rest_bytes - len(none)
        assert encoded[begin : begin + len(none)] == none, encoded
        return begin

    def _count(self, count: int) -> bytes:
        """The array's length in its encoding."""
        if not self._is_flexible:
            return count.to_bytes(4, "big")
        encoded, rest = bytearray(), count + 1
        while rest >= 0x80:
            encoded.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded.append(rest)
        return bytes(encoded)

    @property
    def _is_flexible(self) -> bool:
        return self.version >= API_BY_KEY[self.api_key].flexible


def _whole(chunks: list[Chunk]) -> bytes:
    (chunk,) = chunks
    assert isinstance(chunk, bytes)
    return chunk
