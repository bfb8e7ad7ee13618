"""Framing: cuts a stream of bytes into frames, each a 4-byte length and that many bytes, within bounds.

The bytes are received into one buffer that all framers of a process share. A frame that arrives whole is a
view of it; no byte is copied. A frame that arrives in pieces moves into a buffer of its own, and the rest
of it is received there. That buffer is a spare one, whose pages are already touched, if one is free and the
frame fits. Otherwise it grows as bytes arrive, so an announced length takes no memory before its bytes.

    shared buffer: [ frame | frame | start of a frame ]   own buffer: [ start of a frame | free ... ]
                                     copied once  ------------------->  buffer() points here next
"""

import struct

from sparklog.errors import DecodeError

RECEIVE_BUFFER_BYTES = 256 << 10
SMALL_FRAME_BYTES = 1 << 10
SMALL_FRAMES_BYTES = 32 << 10
"""What a stream whose last frames were smaller than `SMALL_FRAME_BYTES` receives at once: the shared buffer
would hold thousands of them, which take many milliseconds.
"""
GROWTH_BYTES = 64 << 10
"""The maximum size of an own buffer beyond twice the received bytes; a large one takes at most
`GROWTH_BYTES_MAX` more.
"""

GROWN_IN_PLACE_BYTES = 4 << 20
"""From this size on, the system moves the pages of a growing buffer and copies nothing."""
GROWTH_BYTES_MAX = 4 << 20
RECEIVED_BYTES_MAX = 1 << 20
"""What is received at once of a large frame, in half a millisecond."""
_ZEROS = bytes(1 << 20)

SPARE_BYTES = 2 << 20
SPARES_MAX = 4

_LENGTH = struct.Struct(">i")
_NOTHING = memoryview(b"")


def spare_buffers() -> list[bytearray]:
    """The buffers for frames that arrive in pieces, shared by the framers of one process. They are empty: a
    framer gives a buffer its size at its first use.
    """
    return [bytearray() for _ in range(SPARES_MAX)]


class Framer:
    """Cuts one stream into frames.

    Calls alternate: `buffer()`, a write into it, `received(n)`. Frames are writable and valid until
    `recycle()`, or the next `buffer()` of any framer with the same shared buffer; a caller that keeps one
    longer copies it. After a DecodeError the stream is unusable. Framers that share `spares` return theirs
    when the frame is complete, or in `release` if the stream ends before.
    """

    __slots__ = (
        "_borrowed",
        "_carry",
        "_content",
        "_has_small_frames",
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
        self._has_small_frames = True  # on the average
        self._carry = b""  # one to three bytes of a length, which precede the next received bytes
        self._content = bytearray()  # `_own` is a view of it, unless that is borrowed
        self._own = (
            _NOTHING  # the current frame with its length, of which the first `_own_size` bytes have arrived
        )
        self._own_size = 0
        self._wanted = 0  # total bytes of the current frame with its length; 0 if there is none

    @property
    def held_bytes(self) -> int:
        """The memory held for the current frame, in addition to a spare buffer."""
        return 0 if self._borrowed is not None else len(self._own)

    def recycle(self) -> int:
        """Releases the returned frames; returns what is still held, as `held_bytes`."""
        if self._borrowed is None:
            return len(self._own)
        if not self._wanted:
            self._give_back()
        return 0

    def release(self) -> None:
        """Releases all memory; the stream has ended."""
        self._content, self._own, self._own_size, self._wanted, self._carry = bytearray(), _NOTHING, 0, 0, b""
        self._give_back()

    def buffer(self) -> memoryview:
        """The buffer for the next bytes; never empty. A MemoryError loses no data."""
        if self._wanted:
            if self._own_size == len(self._own):
                self._grow()
            return self._own[self._own_size : self._own_size + RECEIVED_BYTES_MAX]
        if self._borrowed is not None:
            self._give_back()
        limit = SMALL_FRAMES_BYTES if self._has_small_frames else len(self._shared)
        if self._carry:
            self._shared[: len(self._carry)] = self._carry
        return self._shared[len(self._carry) : limit]

    def received(self, size: int) -> list[memoryview]:
        """The frames completed by `size` more bytes in `buffer()`; raises DecodeError for a length out of
        bounds.
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
                break
            frames.append(shared[position + 4 : end])
            position = end
        else:
            self._carry = bytes(shared[position:limit]) if position < limit else b""
        if frames:
            self._has_small_frames = position < SMALL_FRAME_BYTES * len(frames)
        return frames

    def _begin_own(self, start: memoryview, wanted: int) -> None:
        self._carry = b""
        self._wanted = wanted
        self._own_size = len(start)
        if wanted <= SPARE_BYTES and self._spares:
            if not self._spares[-1]:
                self._spares[-1].extend(bytes(SPARE_BYTES))
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
        """Enlarges the buffer by about its size. A large buffer grows in place and in small steps, so that
        it holds little more than has arrived.
        """
        size = min(self._wanted, self._own_size + min(self._own_size, GROWTH_BYTES_MAX) + GROWTH_BYTES)
        if self._own_size >= GROWN_IN_PLACE_BYTES:
            self._own.release()
            try:
                while len(self._content) < size:
                    self._content += memoryview(_ZEROS)[: size - len(self._content)]
                return
            except BufferError:
                pass  # an earlier view still exists
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
        self._has_small_frames = self._wanted < SMALL_FRAME_BYTES
        self._content, self._own, self._own_size, self._wanted = bytearray(), _NOTHING, 0, 0
        return [frame]
