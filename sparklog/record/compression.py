"""The codecs of record batches: compress as Java's clients can read, decompress what any client wrote, never more than allowed.

What is compressed is the records part of one batch. Decompressing is bounded twice, since the bytes may come from an attacker: by a limit
in bytes, and by a ratio of `RATIO_MAX` once more than `RATIO_FREE_BYTES` come out.
"""

import contextlib
import zlib
from enum import IntEnum
from struct import unpack_from
from typing import Final

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from sparklog.errors import DecodeError

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_BYTES_MAX: Final = 256 << 20
"""The default limit for one batch."""
RATIO_MAX: Final = 1024
"""deflate cannot do more than 1032; zstd could turn 4 bytes into 128 KiB."""
RATIO_FREE_BYTES: Final = 4 << 20
"""Honest batches of equal records beat any ratio while they are small."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2  # version and the oldest version that can read it
_XERIAL_BLOCK_BYTES = 32 << 10
_GZIP_WINDOW = 31  # 15 bits of window, with the gzip wrapper (RFC 1952)
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BIT = 0x20
_LZ4_BLOCK_CHECKSUM_BIT = 0x10
_LZ4_CONTENT_SIZE_BIT = 0x08
_LZ4_DICTIONARY_BIT = 0x01
_LZ4_RATIO_MAX = 255
_ZSTD_LEVEL = 3
_GZIP_LEVEL = 6
_FIRST_GUESS_RATIO = 16
_FIRST_GUESS_BYTES_MIN = 64 << 10


class TooLarge(DecodeError):
    """More would come out than the limits allow."""


class Codec(IntEnum):
    """The number stands in the attributes of a batch, the name in lower case in the settings."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in the codec's form that Kafka's Java client writes or at least reads; `level` None is Kafka's default level."""
    if codec is Codec.GZIP:
        return zlib.compress(data, _GZIP_LEVEL if level is None else level, wbits=_GZIP_WINDOW)
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        # Java throws on linked blocks, which are the library's default.
        compressed: bytes = lz4.frame.compress(data, compression_level=level or 0, block_linked=False)
        return compressed
    if codec is Codec.ZSTD:
        return _compress_zstd(data, _ZSTD_LEVEL if level is None else level)
    return data


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX, ratio_max: int = RATIO_MAX) -> Buffer:
    """The bytes that were compressed. DecodeError if they are not whole and right, TooLarge if more than the limits allow."""
    if codec is Codec.NONE:
        return data
    limit = min(limit_bytes, max(RATIO_FREE_BYTES, ratio_max * len(data)))
    try:
        return _DECOMPRESS[codec](memoryview(data), limit)
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError, EOFError) as error:
        # lz4 tells of bad frames by RuntimeError.
        raise DecodeError(f"{codec.name.lower()}: {error}") from error


def _too_large(codec: str, limit: int) -> TooLarge:
    return TooLarge(f"{codec}: more than the {limit} bytes allowed come out")


def _decompress_gzip(data: memoryview, limit: int) -> Buffer:
    pieces: list[bytes] = []
    rest: Buffer = data
    while rest:  # a file may have several members one after another
        member = zlib.decompressobj(_GZIP_WINDOW)
        piece = member.decompress(rest, limit + 1)
        limit -= len(piece)
        if limit < 0:
            raise _too_large("gzip", limit + sum(map(len, pieces)) + len(piece))
        if not member.eof:
            raise DecodeError("gzip: the data ends too early")
        pieces.append(piece)
        rest = member.unused_data
    if not pieces:
        raise DecodeError("gzip: no data")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _compress_xerial(data: Buffer) -> bytes:
    pieces = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, limit: int) -> Buffer:
    """Xerial framing, as Java and most clients write, or one raw block, as librdkafka and franz-go do."""
    if not data:
        raise DecodeError("snappy: no data")
    blocks = _xerial_blocks(data) if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [data]
    sizes = [_snappy_size(block) for block in blocks]
    total = sum(sizes)
    if total > limit:
        raise _too_large("snappy", limit)
    whole = bytearray(total)
    view = memoryview(whole)
    start = 0
    for block, size in zip(blocks, sizes, strict=True):
        written = cramjam.snappy.decompress_raw_into(block, view[start : start + size]) if size else 0
        if written != size:
            raise DecodeError(f"snappy: a block gives {written} bytes and promised {size}")
        start += size
    return whole


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise DecodeError("snappy: the data ends in its header", len(data))
    blocks: list[memoryview] = []
    while position < len(data):
        if len(data) - position < 4:
            raise DecodeError("snappy: the data ends in a length", position)
        (length,) = unpack_from(">i", data, position)
        position += 4
        if not 0 < length <= len(data) - position:
            raise DecodeError(f"snappy: a block of {length} bytes where {len(data) - position} remain", position)
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _snappy_size(block: memoryview) -> int:
    """What a raw block says it will give: a varint at its start. A block cannot expand more than 64 bytes per 3."""
    size = int(cramjam.snappy.decompress_raw_len(block))
    if size > 32 * len(block):
        raise DecodeError(f"snappy: a block of {len(block)} bytes cannot give {size}")
    return size


def _decompress_lz4(data: memoryview, limit: int) -> Buffer:
    if data[:4] != _LZ4_MAGIC or len(data) < 7:
        raise DecodeError("lz4: not a frame")
    if not data[4] & _LZ4_INDEPENDENT_BIT:
        raise DecodeError("lz4: blocks that depend on each other, which Kafka does not allow", 4)
    if max(_lz4_bytes_max(data), _lz4_content_bytes(data)) <= limit:
        # The short way, which costs half for a small batch, knows no limit and believes what the frame says of its size.
        complete, size = lz4.frame.decompress(data, return_bytes_read=True)
        if size != len(data):
            raise DecodeError("lz4: bytes after the frame")
        return bytes(complete)
    frame = lz4.frame.LZ4FrameDecompressor()
    whole: bytes = frame.decompress(data, max_length=limit + 1)
    if len(whole) > limit:
        raise _too_large("lz4", limit)
    if not frame.eof:
        raise DecodeError("lz4: the data ends too early")
    if frame.unused_data:
        raise DecodeError("lz4: bytes after the frame")
    return whole


def _lz4_content_bytes(data: memoryview) -> int:
    """What the frame says of its size, 0 if it says nothing."""
    return int(unpack_from("<Q", data, 6)[0]) if data[4] & _LZ4_CONTENT_SIZE_BIT and len(data) >= 14 else 0


def _lz4_bytes_max(data: memoryview) -> int:
    """More than a frame's blocks can give, by their count and by the ratio of the format; what is wrong with it is not told here."""
    flags, block_descriptor = data[4], data[5]
    block_bytes = 1 << (8 + 2 * (block_descriptor >> 4 & 7))
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM_BIT else 0
    position = 7 + (8 if flags & _LZ4_CONTENT_SIZE_BIT else 0) + (4 if flags & _LZ4_DICTIONARY_BIT else 0)
    blocks = 0
    while position + 4 <= len(data):
        (size,) = unpack_from("<I", data, position)
        if size == 0:
            break
        position += 4 + (size & 0x7FFFFFFF) + checksum_bytes
        blocks += 1
    return min(blocks * block_bytes, _LZ4_RATIO_MAX * len(data))


# Making a context costs ten times what a small batch does, and one context serves one thread at a time: a thread takes one out of
# these lists, or makes one, and puts it back. There are never more than there were threads at work at once.
_idle_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}
_idle_decompressors: list[zstandard.ZstdDecompressor] = []


def _compress_zstd(data: Buffer, level: int) -> bytes:
    idle = _idle_compressors.setdefault(level, [])
    try:
        compressor = idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    compressed = compressor.compress(data)
    idle.append(compressor)
    return compressed


def _decompress_zstd(data: memoryview, limit: int) -> Buffer:
    size = zstandard.frame_content_size(data)
    if size > limit:
        raise _too_large("zstd", limit)
    try:
        decompressor = _idle_decompressors.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    try:
        return _whole_zstd_frame(decompressor, data, size, limit)
    finally:
        _idle_decompressors.append(decompressor)


def _whole_zstd_frame(decompressor: zstandard.ZstdDecompressor, data: memoryview, size: int, limit: int) -> Buffer:
    if size >= 0:
        return decompressor.decompress(data, max_output_size=limit, allow_extra_data=False)
    # Java streams, so its frames do not say their size; in one piece is fastest, and most batches fit the first guess.
    guess = min(limit, max(_FIRST_GUESS_BYTES_MIN, _FIRST_GUESS_RATIO * len(data)))
    try:
        return decompressor.decompress(data, max_output_size=guess, allow_extra_data=False)
    except zstandard.ZstdError:
        if guess < limit:
            with contextlib.suppress(zstandard.ZstdError):
                return decompressor.decompress(data, max_output_size=limit, allow_extra_data=False)
        # A frame that ends too early and one that is too large are told apart by nothing but reading on.
        with decompressor.stream_reader(data) as reader:
            if len(reader.read(limit + 1)) > limit:
                raise _too_large("zstd", limit) from None
        raise


_DECOMPRESS: Final = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
