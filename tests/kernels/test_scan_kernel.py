"""The compiled `scan` kernel and its plain-Python twin give the same answers for correct and for hostile
bytes.
"""

import struct
from importlib import import_module
from types import ModuleType

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sparklog.kernels import scan_reference as reference
from sparklog.record.batch import Record, build_batch
from tests.kernels.hostile import (
    Fields,
    damaged,
    damages,
    one_batch,
    outcome,
    record_lists,
    reseal,
    timestamps,
)
from tests.properties import examples

try:
    compiled: ModuleType | None = import_module("sparklog.kernels.scan_compiled")
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="the compiled kernels are not built (make setup)"
)
both = pytest.mark.parametrize(
    "scan", [reference, pytest.param(compiled, marks=needs_compiled)], ids=["reference", "compiled"]
)
attributes = st.sampled_from([0, 0x08, 0x10, 0x20, 0x40, 1, 4, 5, -1])


def a_batch(count: int = 3, producer_id: int = -1) -> bytearray:
    return build_batch(
        [(b"k", b"v" * 10, [], 1000 + i) for i in range(count)], producer_id=producer_id, base_sequence=0
    )


def changed(batch: bytearray, position: int, layout: str, value: int) -> bytearray:
    struct.pack_into(layout, batch, position, value)
    reseal(batch, 0)
    return batch


@needs_compiled
@given(st.binary(max_size=4000), st.integers(0, 2**32 - 1))
def test_crc_is_that_of_the_library(content: bytes, seed: int) -> None:
    assert compiled is not None
    assert compiled.crc(content) == reference.crc(content) == crc32c(content)
    assert compiled.crc(content, seed) == reference.crc(content, seed)


@needs_compiled
@examples(200)
@given(record_lists, attributes, damages, st.integers(0, 3), st.booleans(), st.booleans())
def test_twins_agree_on_checked_batches(
    fields: list[Fields],
    bits: int,
    damage: list[tuple[float, int]],
    cut: int,
    is_resealed: bool,
    require_keys: bool,
) -> None:
    assert compiled is not None
    batch = damaged(one_batch(fields, attributes=bits), damage, cut, first=0 if cut else 57)
    if is_resealed:
        reseal(batch, 0)
    assert outcome(compiled.check_batch, batch, require_keys) == outcome(
        reference.check_batch, batch, require_keys
    )


@needs_compiled
@examples(200)
@given(
    st.binary(max_size=60),
    st.integers(-2, 9),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.integers(-1, 4),
)
def test_twins_agree_on_random_bytes_as_records(
    content: bytes, count: int, base_timestamp: int, require_keys: bool, position: int
) -> None:
    assert compiled is not None
    arguments = (content, count, base_timestamp, require_keys, position)
    assert outcome(compiled.check_records, *arguments) == outcome(reference.check_records, *arguments)
    arguments = (content, position, count, 2**63 - 3, base_timestamp, None, -5, Record)
    assert outcome(compiled.records, *arguments) == outcome(reference.records, *arguments)


@needs_compiled
@examples(200)
@given(record_lists, damages, st.integers(0, 15), st.none() | timestamps, timestamps, timestamps)
def test_twins_agree_on_where_timestamps_are_found_and_which_are_out_of_bounds(
    fields: list[Fields],
    damage: list[tuple[float, int]],
    start: int,
    append_timestamp: int | None,
    least: int,
    greatest: int,
) -> None:
    assert compiled is not None
    batch = damaged(one_batch(fields), damage, 0, first=61)
    sought = (batch, 61, len(fields), 2, 1000, append_timestamp, least, start)
    assert outcome(compiled.find_timestamp, *sought) == outcome(reference.find_timestamp, *sought)
    bounds = (batch, len(fields), 1000, least, greatest, start, 61)
    assert outcome(compiled.timestamps_outside, *bounds) == outcome(reference.timestamps_outside, *bounds)
    keyless = (batch, len(fields), start, 61)
    assert outcome(compiled.keys_missing, *keyless) == outcome(reference.keys_missing, *keyless)


@both
def test_the_first_record_that_is_late_enough_is_found_and_those_out_of_bounds_are_named_up_to_a_number(
    scan: ModuleType,
) -> None:
    batch = build_batch([(b"k", b"v", [], timestamp) for timestamp in (1000, 1005, -1, 1002, 1009)])
    assert scan.find_timestamp(batch, 61, 5, 70, 1000, None, 1002, 0) == (1005, 71)
    assert scan.find_timestamp(batch, 61, 5, 70, 1000, None, 1002, 72) == (1002, 73)
    assert scan.find_timestamp(batch, 61, 5, 70, 1000, 1500, 1500, 72) == (1500, 72)
    assert scan.find_timestamp(batch, 61, 5, 70, 1000, None, 1010, 0) is None
    assert scan.timestamps_outside(batch, 5, 1000, 1001, 1008, 100, 61) == [0, 4]
    assert scan.timestamps_outside(batch, 5, 1000, 1001, 1008, 1, 61) == [0]


@both
def test_the_records_without_a_key_are_named_up_to_a_number(scan: ModuleType) -> None:
    batch = build_batch([(key, b"v", [], 1000) for key in (None, b"k", None, b"", None)])
    assert scan.keys_missing(batch, 5, 100, 61) == [0, 2, 4]
    assert scan.keys_missing(batch, 5, 2, 61) == [0, 2]
    with pytest.raises(ValueError, match=r"6 records cannot stand in|a record longer"):
        scan.keys_missing(batch, 6, 100, 61)


@needs_compiled
@examples(200)
@given(record_lists, damages, st.integers(0, 15), st.none() | timestamps)
def test_twins_agree_on_read_records(
    fields: list[Fields], damage: list[tuple[float, int]], start: int, append_timestamp: int | None
) -> None:
    assert compiled is not None
    batch = damaged(one_batch(fields), damage, 0, first=61)
    arguments = (batch, 61, len(fields), 2, 1000, append_timestamp, start, Record)
    assert outcome(compiled.records, *arguments) == outcome(reference.records, *arguments)


@needs_compiled
@examples(200)
@given(st.lists(record_lists, max_size=4), damages, st.integers(0, 90), st.booleans(), st.integers(-1, 3))
def test_twins_agree_on_headers(
    batches: list[list[Fields]], damage: list[tuple[float, int]], cut: int, verify_crc: bool, position: int
) -> None:
    assert compiled is not None
    buffer = damaged(b"".join(map(one_batch, batches)), damage, cut)
    assert outcome(compiled.headers, buffer, verify_crc, position) == outcome(
        reference.headers, buffer, verify_crc, position
    )


@needs_compiled
@examples(200)
@given(st.lists(record_lists, max_size=4), damages, st.integers(0, 90))
def test_twins_agree_on_the_span_of_batches(
    batches: list[list[Fields]], damage: list[tuple[float, int]], cut: int
) -> None:
    assert compiled is not None
    buffer = damaged(b"".join(map(one_batch, batches)), damage, cut)
    assert outcome(compiled.span, buffer) == outcome(reference.span, buffer)


@needs_compiled
@given(record_lists, st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1), st.booleans(), timestamps)
def test_twins_stamp_alike(
    fields: list[Fields], offset: int, epoch: int, is_transactional: bool, timestamp: int
) -> None:
    stamped = []
    for scan in (compiled, reference):
        assert scan is not None
        batch = one_batch(fields)
        scan.stamp(batch, offset, epoch)
        scan.stamp_producer(batch, offset, epoch & 0x7FFF, epoch & 0x7FFFFFFF, is_transactional)
        scan.stamp_timestamps(batch, 1, timestamp)
        stamped.append(batch)
    assert stamped[0] == stamped[1]
    assert crc32c(stamped[0][21:]) == struct.unpack_from(">I", stamped[0], 17)[0]


@both
def test_a_whole_batch_tells_its_header_and_the_bounds_of_its_timestamps(scan: ModuleType) -> None:
    header, least, greatest = scan.check_batch(a_batch(3, producer_id=7), False)
    assert (least, greatest) == (1000, 1002)
    assert (
        header.base_offset,
        header.magic,
        header.last_offset_delta,
        header.producer_id,
        header.record_count,
    ) == (0, 2, 2, 7, 3)


@both
def test_records_without_a_timestamp_do_not_count_among_the_bounds(scan: ModuleType) -> None:
    batch = build_batch([(None, b"", [], -1), (None, b"", [], 50), (None, b"", [], -1), (None, b"", [], 20)])
    assert scan.check_batch(batch, False)[1:] == (20, 50)


@both
@pytest.mark.parametrize(
    ("position", "layout", "value", "status"),
    [
        (16, ">b", 1, reference.UNSUPPORTED_MAGIC),
        (8, ">i", 20, reference.CORRUPT),
        (8, ">i", 5000, reference.INVALID),
        (57, ">i", 0, reference.INVALID),
        (57, ">i", 2, reference.INVALID),
        (57, ">i", -1, reference.INVALID),
        (23, ">i", 7, reference.INVALID),
        (21, ">h", 0x20, reference.INVALID),
        (21, ">h", 5, reference.INVALID),
        (53, ">i", -1, reference.INVALID),
        (61, ">b", 2, reference.INVALID),
    ],
)
def test_a_batch_that_breaks_a_rule_is_refused_with_its_status(
    scan: ModuleType, position: int, layout: str, value: int, status: int
) -> None:
    batch = changed(a_batch(3, producer_id=7), position, layout, value)
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        scan.check_batch(batch, False)
    assert refused.value.args[0] == status


@both
def test_a_changed_byte_is_corruption(scan: ModuleType) -> None:
    batch = a_batch()
    batch[-3] ^= 1
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        scan.check_batch(batch, False)
    assert refused.value.args[:2] == (reference.CORRUPT, 17)


@both
def test_a_second_batch_is_refused(scan: ModuleType) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        scan.check_batch(a_batch() + a_batch(), False)
    assert refused.value.args[0] == reference.INVALID


@both
def test_a_missing_key_is_told_by_the_index_of_its_record(scan: ModuleType) -> None:
    batch = build_batch([(b"a", b"", [], 1), (None, b"", [], 1)])
    scan.check_batch(batch, False)
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        scan.check_batch(batch, True)
    assert refused.value.args[:2] == (reference.MISSING_KEY, 1)


@both
def test_records_of_a_compressed_batch_are_left_to_the_caller(scan: ModuleType) -> None:
    batch = changed(a_batch(), 21, ">h", 4)
    assert scan.check_batch(batch, True)[1:] == (-1, -1)


@both
def test_stamping_offset_and_epoch_keeps_the_crc_right(scan: ModuleType) -> None:
    batch = a_batch()
    scan.stamp(memoryview(batch), 2**40, 7)
    header, *_ = scan.check_batch(batch, False)
    assert (header.base_offset, header.length, header.leader_epoch) == (2**40, len(batch) - 12, 7)


@both
def test_stamping_the_append_time_is_seen_in_the_header_and_the_crc(scan: ModuleType) -> None:
    batch = a_batch()
    scan.stamp_timestamps(batch, 1, 5555)
    header = scan.check_batch(batch, False)[0]
    assert (header.attributes & 8, header.max_timestamp) == (8, 5555)


@both
def test_a_buffer_that_cannot_be_written_is_not_stamped(scan: ModuleType) -> None:
    with pytest.raises((BufferError, TypeError)):
        scan.stamp(bytes(a_batch()), 1, 1)


@both
def test_a_stamp_needs_a_whole_header(scan: ModuleType) -> None:
    for stamp in (
        lambda b: scan.stamp(b, 1, 1),
        lambda b: scan.stamp_producer(b, 1, 1, 1),
        lambda b: scan.stamp_timestamps(b, 1, 1),
    ):
        with pytest.raises(ValueError, match="no whole record batch"):
            stamp(bytearray(60))


@both
def test_header_keys_that_are_not_utf8_get_replacement_characters(scan: ModuleType) -> None:
    batch = build_batch([(None, None, [("ab", b"1")], 1)])
    at = batch.index(b"ab")
    batch[at : at + 2] = b"\xc3\x28"
    (record,) = scan.records(batch, 61, 1, 0, 0, None, 0, Record)
    assert record.headers == (("\N{REPLACEMENT CHARACTER}(", b"1"),)
