"""The codecs: both ways, in the forms that other clients write, and never more than allowed."""

import gzip
import struct
import zlib
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.record.compression import RATIO_FREE_BYTES, RATIO_MAX, Codec, compress, decompress
from tests.properties import examples

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
TEXT = b"".join(b'{"id": %d, "name": "sparklog"}\n' % i for i in range(5000))


@every_codec
@given(st.binary(max_size=2000), st.integers(1, 60))
@examples(40)
def test_what_was_compressed_comes_back(codec: Codec, content: bytes, times: int) -> None:
    assert bytes(decompress(codec, compress(codec, content * times))) == content * times


@every_codec
def test_text_becomes_smaller(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 2


def test_none_changes_nothing() -> None:
    assert compress(Codec.NONE, TEXT) is TEXT
    assert decompress(Codec.NONE, TEXT) is TEXT


@every_codec
@given(st.data())
@examples(60)
def test_damaged_data_is_an_error_and_never_too_much(codec: Codec, data: st.DataObject) -> None:
    hurt = bytearray(compress(codec, TEXT[:3000]))
    for _ in range(data.draw(st.integers(1, 3))):
        hurt[data.draw(st.integers(0, len(hurt) - 1))] = data.draw(st.integers(0, 255))
    del hurt[data.draw(st.integers(0, len(hurt))) :]
    with suppress(DecodeError):
        assert len(decompress(codec, hurt, 4000)) <= 4000


@every_codec
def test_data_that_ends_too_early_is_an_error(codec: Codec) -> None:
    whole = bytes(compress(codec, TEXT))
    for size in (0, 1, 5, len(whole) // 2, len(whole) - 1):
        with pytest.raises(DecodeError):
            decompress(codec, whole[:size])


@every_codec
def test_the_limit_in_bytes_is_kept_to_the_byte(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    assert len(decompress(codec, compressed, len(TEXT))) == len(TEXT)
    with pytest.raises(DecodeError):
        decompress(codec, compressed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_bomb_is_refused_by_its_ratio(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20), 9 if codec is Codec.GZIP else 3)
    if (
        codec is Codec.GZIP
    ):  # deflate cannot pass the ratio by itself, but a bomb within a bomb would pass the limit in bytes
        with pytest.raises(DecodeError):
            decompress(codec, bomb, 32 << 20)
    else:
        assert len(bomb) * RATIO_MAX < RATIO_FREE_BYTES * 16
        with pytest.raises(DecodeError):
            decompress(codec, bomb)


def test_a_zstd_bomb_that_does_not_say_its_size_is_refused() -> None:
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    bomb = stream.compress(bytes(64 << 20)) + stream.flush()
    with pytest.raises(DecodeError):
        decompress(Codec.ZSTD, bomb)


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor(level=3).compress(bytes(1000)))
    assert zstandard.frame_content_size(bytes(frame)) == 1000
    at = frame.index(struct.pack("<H", 1000 - 256))
    frame[at : at + 2] = struct.pack("<H", 60000)
    with pytest.raises(DecodeError):
        decompress(Codec.ZSTD, frame)


def test_zstd_as_java_streams_it_has_no_size_and_is_read() -> None:
    for content in (TEXT, bytes(3 << 20), b""):
        stream = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
        compressed = stream.compress(content) + stream.flush()
        assert decompress(Codec.ZSTD, compressed) == content


def test_snappy_is_written_in_xerial_framing_and_both_forms_are_read() -> None:
    framed = bytes(compress(Codec.SNAPPY, TEXT))
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, framed) == TEXT
    assert decompress(Codec.SNAPPY, raw) == TEXT


def test_a_snappy_block_that_promises_too_much_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(DecodeError):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 10)
    framed = compress(Codec.SNAPPY, b"")
    with pytest.raises(DecodeError):
        decompress(
            Codec.SNAPPY, bytes(framed) + struct.pack(">i", 10) + b"\xff\xff\xff\xff\x0f" + b"\x00" * 5
        )


def test_lz4_is_written_with_independent_blocks() -> None:
    frame = bytes(compress(Codec.LZ4, TEXT))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] == 0x68


def test_lz4_with_linked_blocks_is_refused_as_kafka_does() -> None:
    with pytest.raises(DecodeError, match="depend on each other"):
        decompress(Codec.LZ4, lz4.frame.compress(TEXT))


@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("block_size", [0, 4, 5, 6, 7])
def test_lz4_options_of_other_clients_are_read(store_size: bool, checksum: bool, block_size: int) -> None:
    frame = lz4.frame.compress(
        TEXT, block_linked=False, store_size=store_size, content_checksum=checksum, block_size=block_size
    )
    assert decompress(Codec.LZ4, frame) == TEXT


@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("block_checksum", [True, False])
@pytest.mark.parametrize(
    "content", [bytes(300_000), bytes(range(256)) * 1200, b""], ids=["zeros", "bytes", "nothing"]
)
def test_lz4_of_many_blocks_is_read_whole(store_size: bool, block_checksum: bool, content: bytes) -> None:
    frame = lz4.frame.compress(
        content, block_linked=False, store_size=store_size, block_checksum=block_checksum, block_size=4
    )
    assert decompress(Codec.LZ4, frame) == content


def test_lz4_of_many_blocks_is_bounded_over_all_of_them() -> None:
    frame = lz4.frame.compress(TEXT, block_linked=False, store_size=False, block_size=4)
    assert decompress(Codec.LZ4, frame, len(TEXT)) == TEXT
    with pytest.raises(DecodeError):
        decompress(Codec.LZ4, frame, len(TEXT) - 1)


def test_an_lz4_frame_that_lies_about_its_size_takes_no_memory_for_it() -> None:
    frame = bytearray(lz4.frame.compress(TEXT, block_linked=False, store_size=True))
    frame[6:14] = (1 << 50).to_bytes(8, "little")
    with pytest.raises(DecodeError):
        decompress(Codec.LZ4, frame)


def test_gzip_of_several_members_is_read_and_bounded_over_all_of_them() -> None:
    members = gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])
    assert decompress(Codec.GZIP, members) == TEXT
    with pytest.raises(DecodeError):
        decompress(Codec.GZIP, members, len(TEXT) - 1)


def test_gzip_checks_its_own_checksum() -> None:
    hurt = bytearray(compress(Codec.GZIP, TEXT))
    hurt[-6] ^= 1
    with pytest.raises(DecodeError, match="gzip"):
        decompress(Codec.GZIP, hurt)


def test_zlib_without_the_gzip_wrapper_is_refused() -> None:
    with pytest.raises(DecodeError):
        decompress(Codec.GZIP, zlib.compress(TEXT))
