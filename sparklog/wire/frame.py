"""Framing: a stream of bytes is cut into frames of a 4-byte length and that many bytes, bounded in size
and in memory.

The bytes are received straight into one buffer that all framers of a process share; frames that arrive
whole are views of it, no byte is copied. Only a frame that arrives in pieces moves into a buffer of its
own, and the rest of it is received there directly. That buffer is one of a few spare ones, already touched
and used again and again, as long as there is one and the frame fits; else it grows as bytes arrive, so a
length announced costs nothing until its bytes are sent.

    shared buffer: [ frame | frame | start of a frame ]   own buffer: [ start of a frame | free ... ]
                                     copied once  ------------------->  buffer() points here next
"""

import struct

from sparklog.errors import DecodeError

RECEIVE_BUFFER_BYTES = 256 << 10
GROWTH_BYTES = 64 << 10
"""How much beyond twice the bytes arrived an own buffer may take; a large one takes at most
`GROWTH_BYTES_MAX` more beyond them.
"""

GROWN_IN_PLACE_BYTES = 4 << 20
"""From here on the system moves the pages of a buffer that grows, and copies nothing."""
GROWTH_BYTES_MAX = 4 << 20
_ZEROS = bytes(1 << 20)

SPARE_BYTES = 2 << 20
SPARES_MAX = 4

_LENGTH = struct.Struct(">i")
_NOTHING = memoryview(b"")


def spare_buffers() -> list[bytearray]:
    """The buffers for frames in pieces that the framers of one process share; untouched pages cost
    nothing.
    """
    return [bytearray(SPARE_BYTES) for _ in range(SPARES_MAX)]


class Framer:
    """Cuts one stream into frames.

    Calls alternate: `buffer()`, the outside writes there, `received(n)`. Frames are writable and valid
    until `recycle()`, or the next `buffer()` of any framer with the same shared buffer; a caller that
    keeps one longer copies it. After a DecodeError the stream is lost. Framers that share `spares` give
    theirs back when the frame is done, or by `release` when the stream has ended before.
    """

    __slots__ = (
        "_borrowed",
        "_carry",
        "_content",
        "_own",
        "_own_size",
        "_shared",
        "_spares",
        "_wanted",
        "frame_bytes_max",
    )

    def __init__(
        self, *, frame_bytes_max: int, shared: bytearray | None = None, spares: list[bytearray] | None = None
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._spares = spares if spares is not None else []
        self._borrowed: bytearray | None = None
        self._shared = memoryview(shared if shared is not None else bytearray(RECEIVE_BUFFER_BYTES))
        self._carry = b""  # one to three bytes of a length, put back in front of the next bytes received
        self._content = bytearray()  # of which `_own` is a view, unless that is borrowed
        self._own = (
            _NOTHING  # the frame under way, length included, of which the first `_own_size` bytes are here
        )
        self._own_size = 0
        self._wanted = 0  # bytes of the frame under way in all, length included; 0 when none is

    @property
    def held_bytes(self) -> int:
        """The memory held for the frame under way, beyond a spare buffer."""
        return 0 if self._borrowed is not None else len(self._own)

    def recycle(self) -> int:
        """The frames handed out are done with; what is still held, as `held_bytes`."""
        if self._borrowed is None:
            return len(self._own)
        if not self._wanted:
            self._give_back()
        return 0

    def release(self) -> None:
        """The stream has ended: hold nothing any more."""
        self._content, self._own, self._own_size, self._wanted, self._carry = bytearray(), _NOTHING, 0, 0, b""
        self._give_back()

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty. Raises MemoryError, and then nothing is lost."""
        if self._wanted:
            if self._own_size == len(self._own):
                self._grow()
            return self._own[self._own_size :]
        if self._borrowed is not None:
            self._give_back()
        if self._carry:
            self._shared[: len(self._carry)] = self._carry
            return self._shared[len(self._carry) :]
        return self._shared

    def received(self, size: int) -> list[memoryview]:
        """The frames that became complete by `size` more bytes in `buffer()`; raises DecodeError for a
        length out of bounds.
        """
        if self._wanted:
            return self._continue(size)
        shared, position, limit = self._shared, 0, len(self._carry) + size
        frames: list[memoryview] = []
        while limit - position >= 4:
            (length,) = _LENGTH.unpack_from(shared, position)
            if not 0 <= length <= self.frame_bytes_max:
                raise DecodeError(f"a frame of {length} bytes, where {self.frame_bytes_max} are allowed")
            end = position + 4 + length
            if end > limit:
                self._begin_own(shared[position:limit], 4 + length)
                return frames
            frames.append(shared[position + 4 : end])
            position = end
        self._carry = bytes(shared[position:limit]) if position < limit else b""
        return frames

    def _begin_own(self, start: memoryview, wanted: int) -> None:
        self._carry = b""
        self._wanted = wanted
        self._own_size = len(start)
        if wanted <= SPARE_BYTES and self._spares:
            self._borrowed = self._spares.pop()
            self._own = memoryview(self._borrowed)[:wanted]
        else:
            self._content = bytearray(min(wanted, len(start) + GROWTH_BYTES))
            self._own = memoryview(self._content)
        self._own[: len(start)] = start

    def _give_back(self) -> None:
        if self._borrowed is not None:
            self._spares.append(self._borrowed)
            self._borrowed = None

    def _grow(self) -> None:
        """Make room for about as much again. A large buffer grows in place and by little, so that no more
        is held than has arrived.
        """
        size = min(self._wanted, self._own_size + min(self._own_size, GROWTH_BYTES_MAX) + GROWTH_BYTES)
        if self._own_size >= GROWN_IN_PLACE_BYTES:
            self._own.release()
            try:
                while len(self._content) < size:
                    self._content += memoryview(_ZEROS)[: size - len(self._content)]
                return
            except BufferError:
                pass  # an earlier view is still held
            finally:
                self._own = memoryview(self._content)
        larger = bytearray(size)
        larger[: self._own_size] = self._own
        self._content, self._own = larger, memoryview(larger)

    def _continue(self, size: int) -> list[memoryview]:
        self._own_size += size
        if self._own_size < self._wanted:
            return []
        frame = self._own[4:]
        self._content, self._own, self._own_size, self._wanted = bytearray(), _NOTHING, 0, 0
        return [frame]
