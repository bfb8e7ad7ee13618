"""Batches as Arrow columns and back: pyarrow, the judge of the layout, sees the records that were written."""

from array import array
from struct import unpack_from

import pyarrow as pa
import pytest

from sparklog.client.producer.intake import partition_for
from sparklog.errors import DecodeError
from sparklog.record.batch import build_batch, codec_of, decode_records, read_header
from sparklog.record.columns import (
    ALL,
    HEADERS,
    KEY,
    OFFSET,
    VALUE,
    BinaryColumn,
    Columns,
    FixedColumn,
    HeadersColumn,
    RowRefused,
    read_columns,
    stamp_producer,
    write_batches,
)
from sparklog.record.compression import Codec
from sparklog.record.control import ControlType, Marker, build_marker

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def binary(kind: pa.DataType, count: int, column: BinaryColumn | None) -> pa.Array:
    assert column is not None
    parts = [None if part is None else pa.py_buffer(part) for part in column[:3]]
    made = pa.Array.from_buffers(kind, count, parts)
    made.validate(full=True)
    return made


def values(columns: Columns) -> list[bytes | None]:
    return binary(pa.binary(), columns.count, columns.value).to_pylist()


def headers_of(columns: Columns) -> pa.Array:
    assert columns.headers is not None
    validity, offsets, keys, contents, _ = columns.headers
    count = len(keys.offsets) // 4 - 1
    pairs = pa.StructArray.from_arrays(
        [binary(pa.string(), count, keys), binary(pa.binary(), count, contents)], ["key", "value"]
    )
    parts = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets)]
    made = pa.Array.from_buffers(HEADERS_TYPE, columns.count, parts, children=[pairs])
    made.validate(full=True)
    return made


def from_arrow(column: pa.Array) -> BinaryColumn:
    validity, offsets, data = column.buffers()
    return BinaryColumn(validity, offsets, b"" if data is None else data, column.offset)


def headers_from_arrow(column: pa.Array) -> HeadersColumn:
    validity, offsets = column.buffers()[:2]
    return HeadersColumn(
        validity,
        offsets,
        from_arrow(column.values.field(0)),
        from_arrow(column.values.field(1)),
        column.offset,
    )


def test_pyarrow_sees_every_column_of_every_record() -> None:
    buffer = build_batch(
        [(b"k1", b"v1", [("a", b"x"), ("é", None)], 1000), (None, b"", [], 1001)], codec=Codec.ZSTD
    )
    buffer += build_batch([(b"", None, [("b", b"")], 5)], base_offset=7, timestamp_type=1)
    (columns,) = read_columns([buffer])
    assert columns.count == 3
    assert binary(pa.binary(), 3, columns.key).to_pylist() == [b"k1", None, b""]
    assert values(columns) == [b"v1", b"", None]
    assert array("q", columns.offsets).tolist() == [0, 1, 7]
    assert array("q", columns.timestamps).tolist() == [1_000_000, 1_001_000, 5000]
    assert array("i", columns.timestamp_types).tolist() == [0, 0, 1]
    assert headers_of(columns).to_pylist() == [
        [{"key": "a", "value": b"x"}, {"key": "é", "value": None}],
        None,
        [{"key": "b", "value": b""}],
    ]
    assert columns.next_offset == 8


def test_columns_that_nobody_wants_are_not_built() -> None:
    (columns,) = read_columns([build_batch([(b"k", b"v", [("a", b"b")], 1)])], wanted=VALUE)
    assert values(columns) == [b"v"]
    assert (columns.key, columns.offsets, columns.timestamps, columns.timestamp_types, columns.headers) == (
        None,
    ) * 5


def test_header_keys_are_always_utf8_for_arrow_promises_it() -> None:
    batch = build_batch([(None, None, [("ab", b"1")], 1)])
    at = batch.index(b"ab")
    batch[at : at + 2] = b"\xff\xfe"
    (columns,) = read_columns([batch], wanted=HEADERS, verify_crc=False)
    assert headers_of(columns).to_pylist() == [[{"key": "\N{REPLACEMENT CHARACTER}" * 2, "value": b"1"}]]


@pytest.mark.parametrize(
    ("start", "limit", "expected", "next_offset"),
    [(0, 100, 9, 9), (4, 7, 3, 7), (2, 3, 1, 3), (9, 20, 0, 9), (0, 0, 0, 0)],
)
def test_offsets_outside_the_range_are_left_out(
    start: int, limit: int, expected: int, next_offset: int
) -> None:
    buffer = b"".join(build_batch([(None, b"v", (), 1)] * 3, base_offset=base) for base in (0, 3, 6))
    (columns,) = read_columns([buffer], start, limit, OFFSET)
    assert array("q", columns.offsets).tolist() == list(range(start, start + expected))
    assert columns.next_offset == next_offset


def test_a_gap_up_to_the_limit_counts_as_read() -> None:
    buffer = build_batch([(None, b"v", (), 1)]) + build_batch([(None, b"v", (), 1)], base_offset=50)
    (columns,) = read_columns([buffer], 0, 20)
    assert (columns.count, columns.next_offset) == (1, 20)


def test_pieces_end_at_batch_boundaries_and_go_on_where_the_last_one_ended() -> None:
    batches = [
        build_batch([(None, b"v" * 100, (), 1)] * 10, base_offset=base, codec=Codec(base // 10 % 5))
        for base in range(0, 100, 10)
    ]
    whole = b"".join(batches)
    pieces = list(read_columns([whole[: len(batches[0])], whole[len(batches[0]) :]], column_bytes_max=2500))
    assert [piece.count for piece in pieces] == [20] * 5
    assert [piece.next_offset for piece in pieces] == [20, 40, 60, 80, 100]
    assert [piece.count for piece in read_columns([whole], column_bytes_max=1)] == [10] * 10


def test_an_empty_read_gives_one_empty_piece() -> None:
    (columns,) = read_columns([], 5)
    assert (columns.count, columns.next_offset) == (0, 5)
    assert values(columns) == []


def test_control_batches_and_cut_batches_are_left_out() -> None:
    marker = build_marker(
        Marker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp_ms=1, base_offset=1
    )
    batch = build_batch([(None, b"v", (), 1)])
    (columns,) = read_columns([batch + marker + batch[:-1]])
    assert (columns.count, columns.next_offset) == (1, 2)


def test_read_committed_leaves_out_aborted_transactions_up_to_their_marker() -> None:
    def written(base: int, producer_id: int, value: bytes) -> bytearray:
        return build_batch(
            [(None, value, (), 1)],
            base_offset=base,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )

    def ended(base: int, producer_id: int, kind: ControlType) -> bytearray:
        return build_marker(
            Marker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=1, base_offset=base
        )

    log = [
        written(0, 1, b"aborted"),
        written(1, 2, b"kept"),
        ended(2, 1, ControlType.ABORT),
        written(3, 1, b"kept too"),
        ended(4, 1, ControlType.COMMIT),
        ended(5, 2, ControlType.COMMIT),
        build_batch(
            [(None, b"plain", (), 1)], base_offset=6, producer_id=1, producer_epoch=0, base_sequence=5
        ),
    ]
    for column_bytes_max in (1, 1 << 20):
        pieces = list(read_columns([b"".join(log)], aborted=[(1, 0)], column_bytes_max=column_bytes_max))
        assert [value for piece in pieces for value in values(piece)] == [b"kept", b"kept too", b"plain"]
        assert pieces[-1].next_offset == 7


def test_damage_is_a_decode_error_with_the_place_of_its_batch() -> None:
    buffer = build_batch([(None, b"v", (), 1)])
    at = len(buffer)
    buffer += build_batch([(None, b"v", (), 1)], base_offset=1)
    buffer[-2] ^= 1
    with pytest.raises(DecodeError, match="CRC") as refused:
        list(read_columns([buffer]))
    assert refused.value.position == at


def test_a_batch_that_would_grow_beyond_the_limit_is_refused() -> None:
    batch = build_batch([(None, bytes(100_000), (), 1)], codec=Codec.ZSTD)
    with pytest.raises(DecodeError):
        list(read_columns([batch], decompressed_bytes_max=10_000))


def test_an_unknown_codec_is_refused() -> None:
    batch = build_batch([(None, b"v", (), 1)])
    batch[22] = 7
    with pytest.raises(DecodeError, match="codec 7"):
        list(read_columns([batch], verify_crc=False))


KEYS = pa.array([b"a", None, b"b", b"a", None, b"cc"])
VALUES = pa.array([b"1", b"2", None, b"4", b"", b"6"])
PAIRS = pa.array(
    [
        [{"key": "h", "value": b"x"}],
        [],
        None,
        [{"key": "h", "value": None}, {"key": "i", "value": b"y"}],
        [],
        None,
    ],
    HEADERS_TYPE,
)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_rows_become_records_of_the_partition_of_their_key(codec: Codec) -> None:
    written = write_batches(
        6,
        key=from_arrow(KEYS),
        value=from_arrow(VALUES),
        headers=headers_from_arrow(PAIRS),
        timestamp_ms=77,
        partition_count=3,
        codec=codec,
    )
    seen = []
    for batch in written.batches:
        assert codec_of(read_header(batch.batch)) is codec
        for record in decode_records(batch.batch):
            assert record.key is None or partition_for(record.key, 3) == batch.partition
            assert record.timestamp == 77
            seen.append(
                (
                    record.key,
                    record.value,
                    [{"key": name, "value": content} for name, content in record.headers],
                )
            )
    rows = zip(KEYS.to_pylist(), VALUES.to_pylist(), PAIRS.to_pylist(), strict=True)
    expected = [(key, value, pairs or []) for key, value, pairs in rows]
    assert sorted(seen, key=str) == sorted(expected, key=str)


def test_slices_of_arrow_arrays_are_written_from_their_start() -> None:
    written = write_batches(
        3,
        key=from_arrow(KEYS[2:5]),
        value=from_arrow(VALUES[2:5]),
        headers=headers_from_arrow(PAIRS[2:5]),
        timestamp_ms=0,
        partition_count=1,
    )
    records = decode_records(written.batches[0].batch)
    assert [(r.key, r.value, len(r.headers)) for r in records] == [
        (b"b", None, 0),
        (b"a", b"4", 2),
        (None, b"", 0),
    ]


def test_a_given_partition_goes_before_the_key_and_null_leaves_it_to_the_key() -> None:
    given = pa.array([2, None, 2, None, 2, 2], pa.int32())
    validity, numbers = given.buffers()
    written = write_batches(
        6,
        key=from_arrow(KEYS),
        value=from_arrow(VALUES),
        partitions=FixedColumn(validity, numbers),
        timestamp_ms=0,
        partition_count=3,
    )
    partitions = {b.first_row: b.partition for b in written.batches}
    assert partitions[0] == 2
    assert sum(b.record_count for b in written.batches if b.partition == 2) >= 4


def test_timestamps_are_rounded_down_to_milliseconds_and_null_is_the_time_given() -> None:
    times = pa.array([1999, -1, None, 0, 5_000_000, 1000], pa.int64())
    validity, numbers = times.buffers()
    written = write_batches(
        6,
        value=from_arrow(VALUES),
        timestamps=FixedColumn(validity, numbers),
        timestamp_ms=77,
        partition_count=1,
    )
    assert [record.timestamp for record in decode_records(written.batches[0].batch)] == [
        1,
        -1,
        77,
        0,
        5000,
        1,
    ]
    assert written.batches[0].max_timestamp == 5000


def test_batches_stay_below_their_limit_and_rows_without_a_key_move_on_with_each_batch() -> None:
    column = from_arrow(pa.array([b"v" * 50] * 100))
    written = write_batches(
        100, value=column, timestamp_ms=0, partition_count=4, sticky_partition=2, batch_bytes_max=1000
    )
    assert all(len(batch.batch) <= 1000 for batch in written.batches)
    assert [batch.partition for batch in written.batches[:4]] == [2, 3, 0, 1]
    assert sum(batch.record_count for batch in written.batches) == 100
    assert written.sticky_partition == (written.batches[-1].partition + 1) % 4


def test_a_record_above_the_limit_gets_a_batch_of_its_own() -> None:
    written = write_batches(
        3,
        value=from_arrow(pa.array([b"a", b"b" * 5000, b"c"])),
        timestamp_ms=0,
        partition_count=1,
        batch_bytes_max=500,
    )
    assert [batch.record_count for batch in written.batches] == [1, 1, 1]


def test_sequences_go_on_from_batch_to_batch_and_wrap() -> None:
    sequences = array("i", [2**31 - 2, 0])
    column = from_arrow(pa.array([b"v" * 50] * 6))
    given = FixedColumn(None, array("i", [0] * 6))
    written = write_batches(
        6,
        value=column,
        partitions=given,
        timestamp_ms=0,
        partition_count=2,
        batch_bytes_max=200,
        producer_id=7,
        producer_epoch=1,
        sequences=sequences,
        is_transactional=True,
    )
    headers = [read_header(batch.batch) for batch in written.batches]
    assert [header.base_sequence for header in headers] == [2**31 - 2, 0, 2]
    assert {(header.producer_id, header.producer_epoch, header.is_transactional) for header in headers} == {
        (7, 1, True)
    }
    assert list(sequences) == [4, 0]
    assert sum(len(decode_records(batch.batch)) for batch in written.batches) == 6


def test_stamping_a_producer_afterwards_keeps_the_crc_right() -> None:
    batch = build_batch([(None, b"v", (), 1)])
    stamp_producer(batch, 5, 6, 7)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert len(decode_records(batch)) == 1
    assert unpack_from(">I", batch, 17)[0] == header.crc


def test_a_partition_that_does_not_exist_is_refused_with_its_row() -> None:
    given = FixedColumn(None, array("i", [0, 1, 3]))
    with pytest.raises(RowRefused, match="row 2") as refused:
        write_batches(3, value=from_arrow(VALUES[:3]), partitions=given, timestamp_ms=0, partition_count=3)
    assert refused.value.row == 2


def test_no_rows_make_no_batches() -> None:
    assert write_batches(0, value=None, timestamp_ms=0, partition_count=3, sticky_partition=1) == ([], 1)


def test_what_is_read_can_be_written_again() -> None:
    buffer = build_batch([(b"k%d" % i, b"v" * i, [("h", b"x")], i) for i in range(100)])
    (columns,) = read_columns([buffer], wanted=ALL)
    assert columns.timestamps is not None
    written = write_batches(
        columns.count,
        key=columns.key,
        value=columns.value,
        headers=columns.headers,
        timestamps=FixedColumn(None, columns.timestamps),
        timestamp_ms=0,
        partition_count=1,
    )
    assert written.batches[0].batch[21:] == buffer[21:]
    assert KEY & ALL
