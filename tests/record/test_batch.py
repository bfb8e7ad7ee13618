"""Record batches: what is built is read back, headers tell the truth, and damaged bytes are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.record.batch import (
    SEQUENCE_MAX,
    BatchBuilder,
    build_batch,
    codec_of,
    decode_records,
    iterate_headers,
    read_header,
    record_size_max,
    sequence_after,
)
from sparklog.record.compression import Codec

contents = st.none() | st.binary(max_size=200)
fields = st.tuples(
    contents, contents, st.lists(st.tuples(st.text(max_size=5), contents), max_size=3), st.integers(-1, 2**41)
)


@given(st.lists(fields, min_size=1, max_size=20), st.sampled_from(list(Codec)), st.integers(0, 2**40))
def test_records_come_back_as_they_were_built(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    codec: Codec,
    base_offset: int,
) -> None:
    read = decode_records(build_batch(records, codec=codec, base_offset=base_offset))
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in read] == records
    assert [r.offset for r in read] == list(range(base_offset, base_offset + len(records)))


def test_a_header_tells_everything_that_a_batch_was_built_with() -> None:
    batch = build_batch(
        [(b"k", b"v", (), 500), (None, b"w", (), 400)],
        codec=Codec.LZ4,
        producer_id=9,
        producer_epoch=3,
        base_sequence=SEQUENCE_MAX,
        base_offset=100,
        leader_epoch=7,
        is_transactional=True,
        timestamp_type=1,
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset, header.leader_epoch) == (
        100,
        101,
        102,
        7,
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        9,
        3,
        SEQUENCE_MAX,
        0,
    )
    assert (header.base_timestamp, header.max_timestamp, header.timestamp_type) == (500, 500, 1)
    assert (codec_of(header), header.size, header.record_count) == (Codec.LZ4, len(batch), 2)
    assert header.is_transactional
    assert not header.is_control
    assert header.has_producer


def test_the_last_sequence_wraps_to_zero() -> None:
    assert sequence_after(SEQUENCE_MAX, 1) == 0
    assert sequence_after(SEQUENCE_MAX - 1, 3) == 1


def test_records_of_an_append_time_batch_all_have_its_timestamp() -> None:
    batch = build_batch([(None, b"a", (), 10), (None, b"b", (), 20)], timestamp_type=1)
    assert [record.timestamp for record in decode_records(batch)] == [20, 20]


def test_control_batches_are_left_out_unless_asked_for() -> None:
    buffer = build_batch([(b"k", b"v", (), 1)]) + build_batch(
        [(b"\0\0\0\1", b"", (), 1)], is_control=True, base_offset=1
    )
    assert [record.offset for record in decode_records(buffer)] == [0]
    assert [record.offset for record in decode_records(buffer, include_control=True)] == [0, 1]


def test_reading_starts_at_the_asked_offset_within_a_batch() -> None:
    buffer = b"".join(build_batch([(None, b"v", (), 1)] * 3, base_offset=base) for base in (0, 3, 6))
    assert [record.offset for record in decode_records(buffer, 4)] == [4, 5, 6, 7, 8]


def test_an_incomplete_batch_at_the_end_is_left_out() -> None:
    batch = build_batch([(None, b"v", (), 1)])
    for cut in (1, 8, len(batch) - 61, len(batch) - 60, len(batch) - 1):
        buffer = batch + batch[:-cut]
        assert [position for position, _ in iterate_headers(buffer)] == [0]
        assert len(decode_records(buffer)) == 1


def test_a_changed_byte_is_noticed_by_the_crc() -> None:
    batch = build_batch([(None, b"value", (), 1)])
    batch[-3] ^= 1
    with pytest.raises(DecodeError, match="CRC"):
        decode_records(batch)


@pytest.mark.parametrize(("position", "byte"), [(16, 1), (8, 0xFF), (11, 3)])
def test_a_header_of_another_format_is_refused(position: int, byte: int) -> None:
    batch = build_batch([(None, b"", (), 1)])
    batch[position] = byte
    with pytest.raises(DecodeError):
        read_header(batch)
    with pytest.raises(DecodeError):
        decode_records(batch)


def test_an_unknown_codec_is_refused() -> None:
    batch = build_batch([(None, b"v", (), 1)])
    batch[22] = 6
    with pytest.raises(DecodeError, match="codec 6"):
        decode_records(batch, verify_crc=False)


def test_a_header_needs_61_bytes() -> None:
    with pytest.raises(DecodeError, match="no room"):
        read_header(bytes(60))


@given(st.lists(fields, min_size=1, max_size=8))
def test_the_size_grows_by_no_more_than_was_told_before(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
) -> None:
    builder = BatchBuilder()
    for key, value, headers, timestamp in records:
        before = builder.size
        builder.append(key, value, headers, timestamp)
        assert builder.size - before <= record_size_max(key, value, headers)
    size = builder.size
    assert len(builder.build()) == size
