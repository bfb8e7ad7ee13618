"""Decompressing in pieces gives what decompressing at once gives, in bounded memory and in time that is
linear.
"""

import os
import tracemalloc
import zlib
from collections.abc import Iterable

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.record.compression import Buffer, Codec, TooLarge, compress, decompress
from sparklog.record.pieces import PIECE_BYTES, Compressor, decompress_pieces, memory_bytes
from tests.properties import examples

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIXED = b"".join(
    os.urandom(700) + bytes(9_000) for _ in range(200)
)  # 1.9 MB that compress, but not to nothing
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())


def joined(pieces: Iterable[Buffer]) -> bytes:
    return b"".join(map(bytes, pieces))


def zstd_of_unknown_size(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
    return compressor.compress(data) + compressor.flush()


def compressed_in_all_ways(data: bytes) -> dict[str, tuple[Codec, bytes]]:
    return {
        "gzip": (Codec.GZIP, bytes(compress(Codec.GZIP, data))),
        "gzip members": (
            Codec.GZIP,
            bytes(compress(Codec.GZIP, data[:99])) + bytes(compress(Codec.GZIP, data[99:])),
        ),
        "snappy xerial": (Codec.SNAPPY, bytes(compress(Codec.SNAPPY, data))),
        "snappy raw": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))),
        "lz4": (Codec.LZ4, bytes(compress(Codec.LZ4, data))),
        "lz4 checksums": (
            Codec.LZ4,
            lz4.frame.compress(data, block_linked=False, block_checksum=True, content_checksum=True),
        ),
        "zstd": (Codec.ZSTD, bytes(compress(Codec.ZSTD, data))),
        "zstd of unknown size": (Codec.ZSTD, zstd_of_unknown_size(data)),
    }


@pytest.mark.parametrize(
    "data", [b"", b"x", bytes(PIECE_BYTES), MIXED], ids=["empty", "one byte", "a piece", "many pieces"]
)
@pytest.mark.parametrize("way", list(compressed_in_all_ways(b"")))
def test_pieces_are_what_comes_out_at_once(way: str, data: bytes) -> None:
    codec, compressed = compressed_in_all_ways(data)[way]
    pieces = [bytes(piece) for piece in decompress_pieces(codec, compressed)]
    assert joined(pieces) == data
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)


@pytest.mark.parametrize("way", list(compressed_in_all_ways(b"")))
def test_data_that_are_cut_or_followed_by_others_are_refused(way: str) -> None:
    codec, compressed = compressed_in_all_ways(MIXED)[way]
    for cut in (1, 3, len(compressed) // 2, len(compressed) - 1):
        with pytest.raises(DecodeError):
            joined(decompress_pieces(codec, compressed[:-cut]))
    with pytest.raises(DecodeError):
        joined(decompress_pieces(codec, compressed + b"\x01\x02\x03"))


@examples(150)
@given(
    st.sampled_from(list(compressed_in_all_ways(b""))),
    st.binary(max_size=300),
    st.integers(0, 10**6),
    st.integers(0, 255),
)
def test_damaged_data_are_refused_in_pieces_where_they_are_at_once(
    way: str, data: bytes, place: int, byte: int
) -> None:
    codec, compressed = compressed_in_all_ways(data)[way]
    damaged = bytearray(compressed)
    damaged[place % len(damaged)] = byte
    try:
        expected: bytes | None = bytes(decompress(codec, damaged))
    except DecodeError:
        expected = None
    try:
        memory_bytes(codec, damaged)
        found: bytes | None = joined(decompress_pieces(codec, damaged))
    except DecodeError:
        found = None
    # At once, the library overlooks bytes behind a zstd frame that does not tell its size.
    assert found == expected or (way.startswith("zstd") and found is None)


@every_codec
def test_what_exceeds_a_limit_is_refused_in_pieces_too(codec: Codec) -> None:
    compressed = compress(codec, bytes(20 << 20))
    with pytest.raises(TooLarge, match="1048576 bytes allowed"):
        joined(decompress_pieces(codec, compressed, limit_bytes=1 << 20))
    with pytest.raises(TooLarge, match="4194304 bytes allowed"):
        joined(decompress_pieces(codec, compressed, ratio_max=2))


@every_codec
def test_memory_stays_below_what_was_told(codec: Codec) -> None:
    compressed = compress(codec, bytes(48 << 20))
    told = memory_bytes(codec, compressed)
    tracemalloc.start()
    size = sum(map(len, decompress_pieces(codec, compressed, ratio_max=1 << 20)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 48 << 20
    assert peak <= told < 16 << 20


@pytest.mark.parametrize("is_at_once", [True, False], ids=["at once", "in pieces"])
def test_parts_that_give_nothing_are_refused_before_they_take_time(is_at_once: bool) -> None:
    empty = {
        Codec.GZIP: zlib.compress(b"", wbits=31) * 400_000,
        Codec.SNAPPY: bytes(compress(Codec.SNAPPY, b"")) + b"\0\0\0\1\0" * 400_000,
    }
    for codec, data in empty.items():
        with pytest.raises(DecodeError, match="parts give"):
            decompress(codec, data) if is_at_once else joined(decompress_pieces(codec, data))


def test_zstd_blocks_that_give_nothing_are_refused_before_they_take_time() -> None:
    frame = zstd_of_unknown_size(b"")
    header = frame[: zstandard.frame_header_size(frame)]
    with pytest.raises(DecodeError, match="parts give"):
        joined(decompress_pieces(Codec.ZSTD, header + b"\0\0\0" * 400_000))


def test_as_many_members_as_have_content_are_read() -> None:
    data = [os.urandom(2048) for _ in range(300)]
    compressed = b"".join(bytes(compress(Codec.GZIP, one)) for one in data)
    assert (
        joined(decompress_pieces(Codec.GZIP, compressed))
        == bytes(decompress(Codec.GZIP, compressed))
        == b"".join(data)
    )


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS], ids=lambda codec: codec.name.lower())
def test_pieces_compressed_again_are_what_they_were(codec: Codec) -> None:
    for size in (0, 1, 32 << 10, 100_000, len(MIXED)):
        compressor = Compressor(codec)
        pieces = [MIXED[at : min(at + 77_777, size)] for at in range(0, size, 77_777)]
        written = joined([*map(compressor.add, pieces), compressor.finish()])
        assert bytes(decompress(codec, written)) == MIXED[:size]
