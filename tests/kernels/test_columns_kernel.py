"""The compiled `columns` kernel and its plain-Python twin give the same columns and the same batches, and
refuse the same bytes.
"""

from array import array
from collections.abc import Sequence
from importlib import import_module
from itertools import accumulate
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.kernels import columns_reference as reference
from sparklog.record.batch import build_batch
from sparklog.record.compression import Codec, decompress
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
    compiled: ModuleType | None = import_module("sparklog.kernels.columns_compiled")
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="the compiled kernels are not built (make setup)"
)
both = pytest.mark.parametrize(
    "columns", [reference, pytest.param(compiled, marks=needs_compiled)], ids=["reference", "compiled"]
)
bits = st.sampled_from([0, 0, 0, 0x08, 0x10, 0x20, 0x30, 0x40, -1])
OFFSET_MAX = 2**63 - 1


def inflate(codec: int, records: memoryview) -> bytes:
    return bytes(decompress(Codec(codec), records, 1 << 20))


# -- murmur2 -------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("key", "expected"),  # the vectors of Kafka's own test of its hash
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_that_of_kafka(columns: ModuleType, key: bytes, expected: int) -> None:
    assert columns.murmur2(key) == expected


@needs_compiled
@given(st.binary(max_size=70))
def test_twins_agree_on_murmur2(key: bytes) -> None:
    assert compiled is not None
    assert compiled.murmur2(key) == reference.murmur2(key)


# -- reading -------------------------------------------------------------------------------------------------


@needs_compiled
@examples(400)
@given(
    st.lists(st.tuples(record_lists, bits, st.integers(-1, 2)), max_size=5),
    damages,
    st.integers(0, 70),
    st.booleans(),
    st.integers(-3, 40),
    st.integers(0, 60) | st.just(OFFSET_MAX),
    st.integers(0, 63),
    st.booleans(),
    st.sampled_from([0, 100, 1000, 1 << 30]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=3),
)
def test_twins_agree_on_columns(
    batches: list[tuple[list[Fields], int, int]],
    damage: list[tuple[float, int]],
    cut: int,
    is_resealed: bool,
    start: int,
    limit: int,
    wanted: int,
    verify_crc: bool,
    bytes_max: int,
    aborted: list[tuple[int, int]],
) -> None:
    assert compiled is not None
    buffer, offset, places = bytearray(), 0, []
    for fields, attributes, producer_id in batches:
        places.append(len(buffer))
        buffer += one_batch(fields, base_offset=offset, attributes=attributes, producer_id=producer_id)
        offset += len(fields) + 1
    hurt = damaged(buffer, damage, cut)
    if is_resealed:
        for place in places:
            reseal(hurt, place)
    half = places[len(places) // 2] if places else 0
    buffers = [bytes(hurt[:half]), memoryview(hurt)[half:]]
    arguments = (
        buffers,
        (0, 0),
        start,
        limit,
        wanted,
        verify_crc,
        bytes_max,
        inflate,
        sorted(aborted, key=lambda one: one[1]),
    )
    assert outcome(compiled.read_columns, *arguments) == outcome(reference.read_columns, *arguments)


@needs_compiled
@examples(200)
@given(st.binary(max_size=90), st.integers(0, 63), st.integers(0, 6))
def test_twins_agree_on_random_bytes_behind_a_right_header(content: bytes, wanted: int, count: int) -> None:
    assert compiled is not None
    batch = one_batch([(None, None, [], 0)])[:61] + content
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = (100).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    arguments = ([batch], (0, 0), 0, OFFSET_MAX, wanted, False, 1 << 30, inflate, [])
    assert outcome(compiled.read_columns, *arguments) == outcome(reference.read_columns, *arguments)


@both
@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_reads_alike(columns: ModuleType, codec: Codec) -> None:
    fields: list[Fields] = [
        (b"k%d" % i, None if i % 3 else b"v" * i, [("h", b"x")], 1000 + i) for i in range(50)
    ]
    plain = columns.read_columns([build_batch(fields)], (0, 0), 0, OFFSET_MAX, 63, True, 1 << 30, inflate, [])
    assert (
        columns.read_columns(
            [build_batch(fields, codec=codec)], (0, 0), 0, OFFSET_MAX, 63, True, 1 << 30, inflate, []
        )
        == plain
    )


@both
def test_a_batch_that_decompresses_to_something_else_is_refused(columns: ModuleType) -> None:
    batch = build_batch([(b"k", b"v", [], 1)] * 5, codec=Codec.ZSTD)
    for other in (b"", b"\x00", bytes(100), b"\xff" * 100):
        with pytest.raises(ValueError):  # noqa: PT011
            columns.read_columns(
                [batch], (0, 0), 0, OFFSET_MAX, 63, True, 1 << 30, lambda _c, _r, other=other: other, []
            )


@both
def test_an_error_of_the_codec_passes_through(columns: ModuleType) -> None:
    def refuse(_codec: int, _records: memoryview) -> bytes:
        raise KeyError("from the codec")

    with pytest.raises(KeyError, match="from the codec"):
        columns.read_columns(
            [build_batch([(b"k", b"v", [], 1)], codec=Codec.LZ4)],
            (0, 0),
            0,
            OFFSET_MAX,
            63,
            True,
            1 << 30,
            refuse,
            [],
        )


@both
def test_timestamps_beyond_64_bits_of_microseconds_are_cut(columns: ModuleType) -> None:
    batch = build_batch([(None, None, [], 2**62), (None, None, [], -(2**60)), (None, None, [], 5)])
    timestamps_read = array(
        "q", columns.read_columns([batch], (0, 0), 0, OFFSET_MAX, 8, True, 1 << 30, inflate, [])[4]
    )
    assert timestamps_read.tolist() == [2**63 - 1, -(2**63), 5000]


# -- writing -------------------------------------------------------------------------------------------------

Slice = tuple[bytes | None, bytes, bytes, int]


def bytes_slice(column: Sequence[bytes | None], before: int) -> Slice:
    """The column in Arrow's layout, behind `before` other rows."""
    padded: list[bytes | None] = [b"??"] * before + list(column)
    validity = sum(1 << row for row, content in enumerate(padded) if content is not None)
    offsets = array("i", accumulate((len(content or b"") for content in padded), initial=0))
    return (
        validity.to_bytes((len(padded) + 7) // 8, "little"),
        offsets.tobytes(),
        b"".join(content or b"" for content in padded),
        before,
    )


def fixed_slice(column: Sequence[int | None], kind: str, before: int) -> tuple[bytes | None, bytes, int]:
    padded = [0] * before + [number or 0 for number in column]
    validity = sum(1 << (before + row) for row, number in enumerate(column) if number is not None)
    return validity.to_bytes((len(padded) + 7) // 8, "little"), array(kind, padded).tobytes(), before


@needs_compiled
@examples(300)
@given(
    st.lists(
        st.tuples(
            record_lists.map(lambda fields: fields[0]), st.none() | st.integers(-1, 4), st.none() | timestamps
        ),
        max_size=30,
    ),
    st.integers(0, 9),
    st.integers(1, 4),
    st.sampled_from([0, 100, 300, 1000, 1 << 20]),
    st.booleans(),
    st.lists(st.booleans(), min_size=5, max_size=5),
    damages,
)
def test_twins_write_the_same_batches(
    rows: list[tuple[Fields, int | None, int | None]],
    before: int,
    partition_count: int,
    bytes_max: int,
    seal: bool,
    has: list[bool],
    damage: list[tuple[float, int]],
) -> None:
    assert compiled is not None
    key = bytes_slice([fields[0] for fields, _, _ in rows], before) if has[0] else None
    value = bytes_slice([fields[1] for fields, _, _ in rows], before) if has[1] else None
    if value is not None and damage:
        value = (value[0], bytes(damaged(value[1], damage, 0)), value[2], value[3])
    headers = None
    if has[2]:
        lists = array(
            "i", [0] * before + list(accumulate((len(fields[2]) for fields, _, _ in rows), initial=0))
        )
        names = bytes_slice([name.encode() for fields, _, _ in rows for name, _ in fields[2]], 0)
        contents = bytes_slice([content for fields, _, _ in rows for _, content in fields[2]], 0)
        headers = (None, lists.tobytes(), names, contents, before)
    partitions = fixed_slice([partition for _, partition, _ in rows], "i", before) if has[3] else None
    times = fixed_slice([timestamp for _, _, timestamp in rows], "q", before) if has[4] else None
    arguments = (
        len(rows),
        key,
        value,
        headers,
        partitions,
        times,
        1234,
        partition_count,
        partition_count - 1,
        bytes_max,
        seal,
    )
    assert outcome(compiled.write_batches, *arguments) == outcome(reference.write_batches, *arguments)


@both
def test_buffers_that_are_too_short_for_their_rows_are_refused(columns: ModuleType) -> None:
    whole = bytes_slice([b"a", b"b", b"c"], 0)
    for key in [
        (whole[0], whole[1][:-1], whole[2], 0),
        (b"", whole[1], whole[2], 0),
        (None, whole[1], whole[2], 1),
        (None, whole[1], b"a", 0),
    ]:
        with pytest.raises(ValueError):  # noqa: PT011
            columns.write_batches(3, key, None, None, None, None, 0, 1, 0, 1000, True)
    for start in (-1, 2**40, 2**62):
        with pytest.raises(ValueError):  # noqa: PT011
            columns.write_batches(3, (*whole[:3], start), None, None, None, None, 0, 1, 0, 1000, True)
        with pytest.raises(ValueError):  # noqa: PT011
            columns.write_batches(3, whole, None, None, (None, bytes(12), start), None, 0, 1, 0, 1000, True)


@both
def test_lists_of_headers_beyond_the_headers_are_refused(columns: ModuleType) -> None:
    names = bytes_slice([b"a"], 0)
    for lists in ([0, 2], [-1, 1], [1, 0]):
        with pytest.raises(ValueError):  # noqa: PT011
            columns.write_batches(
                1,
                None,
                None,
                (None, array("i", lists).tobytes(), names, names, 0),
                None,
                None,
                0,
                1,
                0,
                1000,
                True,
            )


@both
def test_a_header_without_a_key_is_refused_with_its_row(columns: ModuleType) -> None:
    lists = array("i", [0, 1, 2]).tobytes()
    headers = (None, lists, bytes_slice([b"a", None], 0), bytes_slice([b"x", b"y"], 0), 0)
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        columns.write_batches(2, None, None, headers, None, None, 0, 1, 0, 1000, True)
    assert refused.value.args[1] == 1
