"""Frames of the replies on a connection, in large buffers that are reused: a Fetch reply of megabytes is
received once and never copied.

    small buffer: [ frame | frame | start of a frame ]
                                    └─ the rest of a frame that does not fit is received into a large buffer:
    large buffer: [ start of a frame | received directly ... ]

A broker grows its buffer as bytes arrive, because it does not trust the announced length
(`sparklog.wire.frame`). A client trusts its broker: a length within `frame_bytes_max` is allocated at once.
"""

from struct import Struct
from typing import Final

from sparklog.client.failures import WrongProtocol
from sparklog.errors import DecodeError

SMALL_BYTES: Final = 64 << 10
_ROUND_BYTES: Final = 1 << 20

_LENGTH = Struct(">i")
_TLS: Final = "it speaks TLS: set security.protocol to SSL or SASL_SSL"
_OTHERS: Final = {
    b"HTT": "it speaks HTTP, not Kafka's protocol: is this the port of a console or of metrics?",
    b"\x15\x03\x01": _TLS,
    b"\x15\x03\x03": _TLS,
}
"""What a reply of another protocol begins with; as lengths, these would be hundreds of megabytes."""


class ReceiveBuffers:
    """Large buffers for replies, reused once no view of them is left.

    Buffers are not returned explicitly: Python refuses to resize a bytearray while a memoryview of it
    exists, and this class tests that. So a view keeps its bytes valid, and its buffer is not reused.
    """

    __slots__ = ("_kept", "_kept_max")

    def __init__(self, kept_max: int = 4) -> None:
        self._kept: list[bytearray] = []
        self._kept_max = kept_max

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes with undefined contents."""
        for index, buffer in enumerate(self._kept):
            if len(buffer) >= size and not _has_views(buffer):
                # Moved to the end, so that the oldest is tried first.
                self._kept.append(self._kept.pop(index))
                return buffer
        buffer = bytearray(-(-size // _ROUND_BYTES) * _ROUND_BYTES)
        self._kept.append(buffer)
        del self._kept[: -self._kept_max]
        return buffer


def _has_views(buffer: bytearray) -> bool:
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False


class ReplyFramer:
    """Cuts the stream of one connection into frames.

    Calls alternate: `buffer()`, the outside writes there, `received(n)`. A frame with `is_passing` is
    valid until the next `buffer()`, any other as long as it is referenced. After a DecodeError the stream
    is lost.
    """

    __slots__ = ("_buffers", "_filled", "_large", "_small", "_start", "_wanted", "frame_bytes_max")

    def __init__(self, buffers: ReceiveBuffers, *, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffers = buffers
        self._small = memoryview(bytearray(SMALL_BYTES))
        self._start = 0  # bytes of an incomplete frame at the front of the small buffer
        self._large: memoryview | None = None  # holds the incomplete frame, without its length
        self._filled = 0
        self._wanted = 0

    def buffer(self) -> memoryview:
        """The memory for the next bytes; never empty."""
        return self._small[self._start :] if self._large is None else self._large[self._filled :]

    def is_passing(self, frame: memoryview) -> bool:
        """Whether the bytes of a frame are overwritten by the next ones received."""
        return frame.obj is self._small.obj

    def received(self, size: int) -> list[memoryview]:
        """The frames that are complete with `size` more bytes; raises DecodeError for an invalid length."""
        if self._large is not None:
            self._filled += size
            if self._filled < self._wanted:
                return []
            frame, self._large = self._large, None
            return [frame]
        small, position, limit = self._small, 0, self._start + size
        frames: list[memoryview] = []
        self._start = 0
        while limit - position >= 4:
            (length,) = _LENGTH.unpack_from(small, position)
            if not 0 <= length <= self.frame_bytes_max:
                if (other := _OTHERS.get(bytes(small[position : position + 3]))) is not None:
                    raise WrongProtocol(other)
                raise DecodeError(f"a reply of {length} bytes, where {self.frame_bytes_max} are allowed")
            end = position + 4 + length
            if end > limit:
                if 4 + length > SMALL_BYTES:
                    self._begin_large(small[position + 4 : limit], length)
                    return frames
                break
            frames.append(small[position + 4 : end])
            position = end
        if position < limit:
            self._keep_start(small[position:limit], frames)
        return frames

    def _begin_large(self, start: memoryview, length: int) -> None:
        self._large = memoryview(self._buffers.take(length))[:length]
        self._large[: len(start)] = start
        self._filled, self._wanted = len(start), length

    def _keep_start(self, start: memoryview, frames: list[memoryview]) -> None:
        """Move the incomplete frame to the front, of a new buffer if frames of the old one are still to be
        read.
        """
        if frames:
            self._small = memoryview(bytearray(SMALL_BYTES))
        self._small[: len(start)] = bytes(start) if not frames else start
        self._start = len(start)
