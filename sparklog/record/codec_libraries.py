"""gzip, snappy, lz4 and zstd as their libraries have them, in the forms that Java's clients write and read.

`compression.py` imports this file for the first compressed batch: the libraries take 4 ms to load.
"""

import contextlib
import zlib
from collections.abc import Iterator
from struct import unpack_from
from typing import Final

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from sparklog.errors import DecodeError
from sparklog.record.codec import Buffer, Codec, TooLarge

PARTS_FREE: Final = 1024
GZIP_MEMBERS_FREE: Final = 64
PART_BYTES_MIN: Final = 1024
"""The average decompressed size that the parts of a batch (gzip members, snappy blocks, zstd blocks) must
have beyond the free ones: a part takes time even if it is empty.
"""
INPUT_BYTES: Final = 64 << 10
"""The input that a decompressor gets at once if it copies the part that it does not consume."""
XERIAL_BLOCK_BYTES: Final = 32 << 10

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2  # version and the oldest version that can read it
GZIP_WINDOW = 31  # 15 bits of window, with the gzip wrapper (RFC 1952)
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BIT = 0x20
_LZ4_BLOCK_CHECKSUM_BIT = 0x10
_LZ4_CONTENT_SIZE_BIT = 0x08
_LZ4_DICTIONARY_BIT = 0x01
_LZ4_RATIO_MAX = 255
ZSTD_LEVEL = 3
GZIP_LEVEL = 6
_FIRST_GUESS_RATIO = 16
_FIRST_GUESS_BYTES_MIN = 64 << 10


class Parts:
    """Counts the parts of a batch and their decompressed bytes."""

    __slots__ = ("_bytes", "_count", "_free", "_name")

    def __init__(self, name: str, free: int) -> None:
        self._name = name
        self._free = free
        self._count = 0
        self._bytes = 0

    def count(self, parts: int, size: int) -> None:
        """Count more parts and decompressed bytes. Raises DecodeError if there are too many parts."""
        self._count += parts
        self._bytes += size
        if self._count > self._free and self._bytes < PART_BYTES_MIN * (self._count - self._free):
            raise DecodeError(
                f"{self._name}: {self._count} parts give {self._bytes} bytes, too few for so many parts"
            )


def compressed(codec: Codec, data: Buffer, level: int | None) -> Buffer:
    """What `compression.compress` returns."""
    if codec is Codec.GZIP:
        return zlib.compress(data, GZIP_LEVEL if level is None else level, wbits=GZIP_WINDOW)
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        # Java's decoder fails on linked blocks, the library's default.
        frame: bytes = lz4.frame.compress(data, compression_level=level or 0, block_linked=False)
        return frame
    if codec is Codec.ZSTD:
        return _compress_zstd(data, ZSTD_LEVEL if level is None else level)
    return data


def decompressed(codec: Codec, data: Buffer, limit: int) -> Buffer:
    """What `compression.decompress` returns, of at most `limit` bytes."""
    try:
        return _DECOMPRESS[codec](memoryview(data), limit)
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError, EOFError) as error:
        # lz4 reports invalid frames by RuntimeError.
        raise DecodeError(f"{codec.name.lower()}: {error}") from None


def too_large(codec: str, limit: int) -> TooLarge:
    """The error of a batch beyond its limit."""
    return TooLarge(f"{codec}: more than the {limit} bytes allowed come out")


def _decompress_gzip(data: memoryview, limit: int) -> Buffer:
    member = zlib.decompressobj(GZIP_WINDOW)
    whole: Buffer = member.decompress(data, limit + 1)
    if len(whole) > limit:
        raise too_large("gzip", limit)
    if not member.eof:
        raise DecodeError("gzip: the data ends too early" if data else "gzip: no data")
    if not member.unused_data:
        return whole
    joined = bytearray()
    for piece in gzip_pieces(data, max(_FIRST_GUESS_BYTES_MIN, limit >> 8)):
        joined += piece
        if len(joined) > limit:
            raise too_large("gzip", limit)
    return joined


def gzip_pieces(data: memoryview, piece_bytes: int) -> Iterator[Buffer]:
    """Decompressed bytes of one member after another (RFC 1952), in pieces of at most `piece_bytes`."""
    parts = Parts("gzip", GZIP_MEMBERS_FREE)
    member = zlib.decompressobj(GZIP_WINDOW)
    rest: Buffer = b""
    position = 0
    while True:
        if not rest:  # few bytes at once, because the bytes after the end of a member are copied
            rest = data[position : position + INPUT_BYTES]
            position += len(rest)
        is_at_end = not rest
        piece = member.decompress(rest, piece_bytes)
        if piece:
            yield piece
        if member.eof:
            parts.count(1, len(piece))
            rest = member.unused_data
            if not rest and position == len(data):
                return
            member = zlib.decompressobj(GZIP_WINDOW)
        elif is_at_end and not piece:
            raise DecodeError("gzip: the data ends too early" if data else "gzip: no data")
        else:
            parts.count(0, len(piece))
            rest = member.unconsumed_tail


def _compress_xerial(data: Buffer) -> bytes:
    return b"".join((XERIAL_HEADER, *write_xerial_blocks(data)))


def write_xerial_blocks(data: Buffer) -> Iterator[bytes]:
    """Write the blocks of `data`, each after its length."""
    view = memoryview(data)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        yield len(block).to_bytes(4, "big")
        yield block


def _decompress_snappy(data: memoryview, limit: int) -> Buffer:
    """Xerial framing, as Java and most clients write, or one raw block, as librdkafka and franz-go do."""
    total = 0
    parts = Parts("snappy", PARTS_FREE)
    for block in snappy_blocks(data):
        size = snappy_size(block)
        total += size
        if total > limit:
            raise too_large("snappy", limit)
        parts.count(1, size)
    whole = bytearray(total)
    view = memoryview(whole)
    start = 0
    for block in snappy_blocks(data):
        end = start + snappy_size(block)
        decompress_snappy_block(block, view[start:end])
        start = end
    return whole


def decompress_snappy_block(block: memoryview, target: memoryview) -> None:
    """Fill `target`, which has the size that the block declares."""
    written = cramjam.snappy.decompress_raw_into(block, target) if target else 0
    if written != len(target):
        raise DecodeError(f"snappy: a block gives {written} bytes and promised {len(target)}")


def snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """The raw blocks; one for data without framing."""
    if not data:
        raise DecodeError("snappy: no data")
    if not is_xerial(data):
        yield data
        return
    position = len(XERIAL_HEADER)
    if len(data) < position:
        raise DecodeError("snappy: the data ends in its header", len(data))
    while position < len(data):
        if len(data) - position < 4:
            raise DecodeError("snappy: the data ends in a length", position)
        (length,) = unpack_from(">i", data, position)
        position += 4
        if not 0 < length <= len(data) - position:
            raise DecodeError(
                f"snappy: a block of {length} bytes where {len(data) - position} remain", position
            )
        yield data[position : position + length]
        position += length


def is_xerial(data: memoryview) -> bool:
    """Whether the snappy data has xerial framing."""
    return data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC


def snappy_size(block: memoryview) -> int:
    """The decompressed size that a raw block declares: a varint at its start. A block cannot expand more
    than 64 bytes per 3.
    """
    size = int(cramjam.snappy.decompress_raw_len(block))
    if size > 32 * len(block):
        raise DecodeError(f"snappy: a block of {len(block)} bytes cannot give {size}")
    return size


def _decompress_lz4(data: memoryview, limit: int) -> Buffer:
    lz4_block_bytes(data)
    if max(_lz4_bytes_max(data), _lz4_content_bytes(data)) <= limit:
        # The one-call API takes half the time for a small batch, but has no limit and trusts the size in the
        # frame.
        complete, size = lz4.frame.decompress(data, return_bytes_read=True)
        if size != len(data):
            raise DecodeError("lz4: bytes after the frame")
        return bytes(complete)
    frame = lz4.frame.LZ4FrameDecompressor()
    whole: bytes = frame.decompress(data, max_length=limit + 1)
    if len(whole) > limit:
        raise too_large("lz4", limit)
    if not frame.eof:
        raise DecodeError("lz4: the data ends too early")
    if frame.unused_data:
        raise DecodeError("lz4: bytes after the frame")
    return whole


def lz4_block_bytes(data: memoryview) -> int:
    """The maximum decompressed size of one block. Raises DecodeError for a frame that Java cannot read."""
    if data[:4] != _LZ4_MAGIC or len(data) < 7:
        raise DecodeError("lz4: not a frame")
    if not data[4] & _LZ4_INDEPENDENT_BIT:
        raise DecodeError("lz4: blocks that depend on each other, which Kafka does not allow", 4)
    return 1 << (8 + 2 * (data[5] >> 4 & 7))


def _lz4_content_bytes(data: memoryview) -> int:
    """The content size that the frame declares, 0 for none."""
    return int(unpack_from("<Q", data, 6)[0]) if data[4] & _LZ4_CONTENT_SIZE_BIT and len(data) >= 14 else 0


def _lz4_bytes_max(data: memoryview) -> int:
    """An upper bound of a frame's decompressed size, by block count and the format's ratio; does not
    validate the frame.
    """
    flags, block_bytes = data[4], lz4_block_bytes(data)
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM_BIT else 0
    position = 7 + (8 if flags & _LZ4_CONTENT_SIZE_BIT else 0) + (4 if flags & _LZ4_DICTIONARY_BIT else 0)
    blocks = 0
    while position + 4 <= len(data):
        if blocks == PARTS_FREE:
            return _LZ4_RATIO_MAX * len(data)
        (size,) = unpack_from("<I", data, position)
        if size == 0:
            break
        position += 4 + (size & 0x7FFFFFFF) + checksum_bytes
        blocks += 1
    return min(blocks * block_bytes, _LZ4_RATIO_MAX * len(data))


# To create a context takes ten times as long as a small batch, and one context serves one thread at a time. A
# thread takes a context from these lists, or creates one, and puts it back; there are never more than there
# were threads working at once.
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
        raise too_large("zstd", limit)
    try:
        decompressor = _idle_decompressors.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    try:
        return _whole_zstd_frame(decompressor, data, size, limit)
    finally:
        _idle_decompressors.append(decompressor)


def _whole_zstd_frame(
    decompressor: zstandard.ZstdDecompressor, data: memoryview, size: int, limit: int
) -> Buffer:
    if size >= 0:
        return decompressor.decompress(data, max_output_size=limit, allow_extra_data=False)
    # Java streams, so its frames do not have their size. Decompression in one call is fastest, and the first
    # guess fits most batches.
    guess = min(limit, max(_FIRST_GUESS_BYTES_MIN, _FIRST_GUESS_RATIO * len(data)))
    try:
        return decompressor.decompress(data, max_output_size=guess, allow_extra_data=False)
    except zstandard.ZstdError:
        if guess < limit:
            with contextlib.suppress(zstandard.ZstdError):
                return decompressor.decompress(data, max_output_size=limit, allow_extra_data=False)
        # Only reading on distinguishes an incomplete frame from one that is too large.
        with decompressor.stream_reader(data) as reader:
            if len(reader.read(limit + 1)) > limit:
                raise too_large("zstd", limit) from None
        raise


_DECOMPRESS: Final = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
