"""Decompression in pieces, and compression of the pieces: a batch of any size in bounded memory, known in
advance.

`decompress_pieces` yields at most `PIECE_BYTES` at a time; a block of snappy is decompressed whole and then
split. `memory_bytes` returns the memory that it needs. The limits are those of `decompress`.
"""

import zlib
from collections.abc import Iterator
from typing import Final

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from sparklog.errors import DecodeError
from sparklog.record.codec import (
    DECOMPRESSED_BYTES_MAX,
    RATIO_FREE_BYTES,
    RATIO_MAX,
    Buffer,
    Codec,
)
from sparklog.record.codec_libraries import (
    GZIP_LEVEL,
    GZIP_WINDOW,
    INPUT_BYTES,
    PARTS_FREE,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    ZSTD_LEVEL,
    Parts,
    decompress_snappy_block,
    gzip_pieces,
    is_xerial,
    lz4_block_bytes,
    snappy_blocks,
    snappy_size,
    too_large,
    write_xerial_blocks,
)

PIECE_BYTES: Final = 256 << 10
XERIAL_BLOCK_BYTES_MAX: Final = 1 << 20
"""Java's blocks have 32 KiB. A larger one is accepted only as the first, whose size is known before the
decompression begins.
"""

_ZEROS: Final = bytes(64 << 10)
_ZSTD_BLOCK_BYTES_MAX = 128 << 10
_ZSTD_BLOCK_HEADER_BYTES = 3
_ZSTD_CHECKSUM_BYTES = 4
_OUT_OF_MEMORY = ("not enough memory", "allocation")
_BESIDE_BYTES = 4 * PIECE_BYTES + 2 * INPUT_BYTES
"""The previous piece, the growing piece (twice, while it is joined), the current input, and the decompressor
itself.
"""


def memory_bytes(
    codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX, ratio_max: int = RATIO_MAX
) -> int:
    """The most bytes that `decompress_pieces` with the same arguments holds at once. Raises DecodeError."""
    view = memoryview(data)
    limit = _limit(view, limit_bytes, ratio_max)
    try:
        if codec is Codec.SNAPPY:
            return min(_snappy_block_bytes(view), limit) + _BESIDE_BYTES
        if codec is Codec.LZ4:
            return 2 * lz4_block_bytes(view) + _BESIDE_BYTES
        if codec is Codec.ZSTD:
            return (
                min(zstandard.get_frame_parameters(view).window_size, limit)
                + 2 * _ZSTD_BLOCK_BYTES_MAX
                + _BESIDE_BYTES
            )
    except (zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise DecodeError(f"{codec.name.lower()}: {error}") from None
    return _BESIDE_BYTES


def decompress_pieces(
    codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX, ratio_max: int = RATIO_MAX
) -> Iterator[Buffer]:
    """The output of `decompress`, in pieces. Raises DecodeError and TooLarge, possibly after some pieces."""
    view = memoryview(data)
    left = limit = _limit(view, limit_bytes, ratio_max)
    if codec is Codec.NONE:
        yield from (view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES))
        return
    pieces = _PIECES[codec](view, limit)
    name = codec.name.lower()
    while True:
        try:
            piece = next(pieces, None)
        except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError, EOFError) as error:
            # lz4 reports invalid frames by RuntimeError; it and zstd report a failed allocation so too.
            if any(word in str(error).lower() for word in _OUT_OF_MEMORY):
                raise MemoryError(f"{name}: {error}") from None
            raise DecodeError(f"{name}: {error}") from None
        if piece is None:
            return
        left -= len(piece)
        if left < 0:
            raise too_large(name, limit)
        yield piece


def _limit(data: memoryview, limit_bytes: int, ratio_max: int) -> int:
    return min(limit_bytes, max(RATIO_FREE_BYTES, ratio_max * len(data)))


def _gzip_pieces(data: memoryview, limit: int) -> Iterator[Buffer]:
    return gzip_pieces(data, PIECE_BYTES)


def _snappy_pieces(data: memoryview, limit: int) -> Iterator[Buffer]:
    block_bytes_max = _snappy_block_bytes(data)
    parts = Parts("snappy", PARTS_FREE)
    left = limit
    for block in snappy_blocks(data):
        size = snappy_size(block)
        left -= size
        if left < 0:
            raise too_large("snappy", limit)
        if size > block_bytes_max:
            raise DecodeError(
                f"snappy: a block gives {size} bytes, where at most {block_bytes_max} are allowed"
            )
        parts.count(1, size)
        yield from _snappy_block_pieces(block, size)


def _snappy_block_pieces(block: memoryview, size: int) -> Iterator[Buffer]:
    whole = bytearray()
    while (
        len(whole) < size
    ):  # other threads run between these steps: zeroing 20 MB at once stops them for 8 ms
        whole += memoryview(_ZEROS)[: size - len(whole)]
    view = memoryview(whole)
    decompress_snappy_block(block, view)
    yield from (view[at : at + PIECE_BYTES] for at in range(0, size, PIECE_BYTES))


def _snappy_block_bytes(data: memoryview) -> int:
    """The maximum size of a decompressed block."""
    first = next(snappy_blocks(data), None)
    size = 0 if first is None else snappy_size(first)
    return max(size, XERIAL_BLOCK_BYTES_MAX) if is_xerial(data) else size


def _lz4_pieces(data: memoryview, limit: int) -> Iterator[Buffer]:
    lz4_block_bytes(data)  # the check that Java can read the frame
    frame = lz4.frame.LZ4FrameDecompressor()
    position = 0
    while not frame.eof:
        chunk: Buffer = b""
        if frame.needs_input:
            chunk = data[position : position + INPUT_BYTES]
            if not chunk:
                raise DecodeError("lz4: the data ends too early")
            position += len(chunk)
        piece: bytes = frame.decompress(chunk, max_length=PIECE_BYTES)
        if piece:
            yield piece
    if frame.unused_data or position < len(data):
        raise DecodeError("lz4: bytes after the frame")


def _zstd_pieces(data: memoryview, limit: int) -> Iterator[Buffer]:
    content_bytes = zstandard.frame_content_size(data)  # -1 if the frame does not have its size
    if content_bytes > limit:
        raise too_large("zstd", limit)
    size = 0
    # A context keeps the window that it has allocated, so the context is not kept.
    frame = zstandard.ZstdDecompressor().decompressobj()
    parts = Parts("zstd", PARTS_FREE)
    position = begin = zstandard.frame_header_size(data)
    has_checksum = zstandard.get_frame_parameters(data).has_checksum
    frame.decompress(data[:begin])
    is_last = False
    while not is_last:
        bound = blocks = 0
        while not is_last and bound < PIECE_BYTES and position - begin < INPUT_BYTES:
            if len(data) - position < _ZSTD_BLOCK_HEADER_BYTES:
                raise DecodeError("zstd: the data ends too early")
            header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            is_last, kind, block_bytes = bool(header & 1), header >> 1 & 3, header >> 3
            position += _ZSTD_BLOCK_HEADER_BYTES + (1 if kind == 1 else block_bytes)  # a run takes one byte
            bound += _ZSTD_BLOCK_BYTES_MAX if kind == 2 else block_bytes
            blocks += 1
            if blocks > PARTS_FREE:
                break
        if is_last and has_checksum:
            position += _ZSTD_CHECKSUM_BYTES
        if position > len(data):
            raise DecodeError("zstd: the data ends too early")
        piece = frame.decompress(data[begin:position])
        begin = position
        parts.count(blocks, len(piece))
        size += len(piece)
        if piece:
            yield piece
    if not frame.eof:
        raise DecodeError("zstd: the data ends too early")
    if 0 <= content_bytes != size:
        raise DecodeError(f"zstd: {size} bytes come out where {content_bytes} are promised")
    if position < len(data):
        raise DecodeError("zstd: bytes after the frame")


_PIECES: Final = {
    Codec.GZIP: _gzip_pieces,
    Codec.SNAPPY: _snappy_pieces,
    Codec.LZ4: _lz4_pieces,
    Codec.ZSTD: _zstd_pieces,
}


class Compressor:
    """Compresses pieces into the format of `compress`, possibly with other bytes."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._gzip = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WINDOW) if codec is Codec.GZIP else None
        self._lz4 = lz4.frame.LZ4FrameCompressor(block_linked=False) if codec is Codec.LZ4 else None
        self._zstd = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compressobj() if codec is Codec.ZSTD else None
        self._block = bytearray()
        self._is_begun = False

    def add(self, piece: Buffer) -> Buffer:
        """Add a piece; returns the compressed bytes available so far."""
        if self._gzip is not None:
            return self._gzip.compress(piece)
        if self._zstd is not None:
            return self._zstd.compress(piece)
        if self._codec is Codec.NONE:
            return piece
        out = self._begin()
        if self._lz4 is not None:
            out += self._lz4.compress(piece)
        else:
            self._block += piece
            whole = len(self._block) // XERIAL_BLOCK_BYTES * XERIAL_BLOCK_BYTES
            out += b"".join(write_xerial_blocks(self._block[:whole]))
            del self._block[:whole]
        return out

    def finish(self) -> Buffer:
        """The remaining compressed bytes."""
        if self._gzip is not None:
            return self._gzip.flush()
        if self._zstd is not None:
            return self._zstd.flush()
        if self._codec is Codec.NONE:
            return b""
        out = self._begin()
        out += self._lz4.flush() if self._lz4 is not None else b"".join(write_xerial_blocks(self._block))
        return out

    def _begin(self) -> bytearray:
        if self._is_begun:
            return bytearray()
        self._is_begun = True
        return bytearray(self._lz4.begin() if self._lz4 is not None else XERIAL_HEADER)
