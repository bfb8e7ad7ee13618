"""The compiled `clean` kernel and its plain-Python twin keep the same records of correct and of hostile
batches.
"""

from array import array
from collections.abc import Callable
from importlib import import_module
from struct import pack_into
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.kernels import clean_reference as reference
from sparklog.record.batch import build_batch, decode_records, read_header
from tests.kernels.hostile import damages, interesting, reseal
from tests.properties import examples

try:
    compiled: ModuleType | None = import_module("sparklog.kernels.clean_compiled")
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="the compiled kernels are not built (make setup)"
)
both = pytest.mark.parametrize(
    "clean", [reference, pytest.param(compiled, marks=needs_compiled)], ids=["reference", "compiled"]
)
SEED = bytes(range(16))
NOW = 10_000
keys = st.sampled_from([b"", b"a", b"b", b"cc", b"k" * 9, b"k" * 40, None])
no_headers: list[tuple[str, bytes | None]] = []
records = st.tuples(
    keys,
    st.none() | st.binary(max_size=9),
    st.just(no_headers),
    st.integers(-1, 2 * NOW) | st.sampled_from([0, 2**61, -(2**61)]),
)
batches = st.tuples(
    st.lists(records, min_size=1, max_size=6),
    st.sampled_from([0, 0, 0, 0x08, 0x10, 0x10, 0x40, 0x50, 0x30, 0x70, 0x20, 1]),
    st.sampled_from([-1, 7, 8]),
    st.integers(0, 3),
)
histories = st.lists(batches, min_size=1, max_size=8)


def build(
    history: list[tuple[list[tuple[bytes | None, bytes | None, list[object], int]], int, int, int]],
) -> bytearray:
    """A log of batches with gaps between them and any attributes."""
    log = bytearray()
    offset = 0
    for fields, attributes, producer_id, gap in history:
        if attributes & 0x20:
            fields = [(b"\0\0\0" + bytes([gap & 1]), b"\0" * 6, [], NOW)]
        offset += gap
        one = build_batch(
            fields, base_offset=offset, producer_id=producer_id, producer_epoch=gap, base_sequence=0
        )  # type: ignore[arg-type]
        pack_into(">h", one, 21, attributes)
        if attributes & 0x40 and not fields[0][3] & 1:
            pack_into(">q", one, 27, NOW + gap - 1)
        reseal(one, 0)
        log += one
        offset += len(fields)
    return log


def outcome(
    clean: ModuleType, log: bytearray, limit: int, start: int, keep_end: int, room: int, growth: int
) -> object:
    """The result of the kernel for a log, or the status of its refusal."""
    table = clean.KeyOffsets(16, limit, SEED)
    rules = clean.Rules([(7, 9, 1), (8, -1, 2)], [(7, 2, 5), (7, 8, 11), (8, 0, 3)], NOW, NOW + 500)
    try:
        mapped = clean.map_keys(log, 0, table, rules, start)
        seen = [
            mapped,
            len(table),
            table.latest_offset,
            [table.find(key) for key in (b"", b"a", b"b", b"cc", b"k" * 9, b"k" * 40)],
        ]
        target = bytearray(room)
        result = clean.filter_batches(log, 0, target, 0, table, rules, keep_end, growth)
        state = memoryview(array("q", [0, -1, 0]))
        return (
            seen,
            result,
            rules.seen_aborted(),
            bytes(target),
            clean.index_entries(target, result[2], 70, 1, state, 90),
            list(state),
        )
    except ValueError as error:
        return error.args[0]


@needs_compiled
@examples(300)
@given(
    histories,
    st.integers(1, 8),
    st.integers(0, 8),
    st.integers(0, 20),
    st.sampled_from([0, 200, 4000]),
    st.sampled_from([0, 9, 4000]),
)
def test_twins_agree_on_what_stays(
    history: list[object], limit: int, start: int, keep_end: int, room: int, growth: int
) -> None:
    log = build(history)  # type: ignore[arg-type]
    given = (limit, start, keep_end, room, growth)
    assert compiled is not None
    assert outcome(compiled, bytearray(log), *given) == outcome(reference, bytearray(log), *given)


@needs_compiled
@example(
    [
        ([(b"", None, [], 0)], 48, -1, 0),
        ([(b"", None, [], 0)] * 5, 0, -1, 0),
        ([(b"", None, [], 0)], 0, -1, 0),
    ],
    [(0.0, 128)],
    0,
    0,
)
@examples(300)
@given(histories, damages, st.integers(0, 3), st.integers(0, 70))
def test_twins_refuse_the_same_bytes(
    history: list[object], damage: list[tuple[float, int]], whose_crc: int, cut: int
) -> None:
    log = build(history)  # type: ignore[arg-type]
    for place, byte in damage:
        log[int(place * len(log))] = byte
    del log[len(log) - cut % len(log) :]
    if whose_crc:
        reseal(log, 0)
    assert compiled is not None
    assert outcome(compiled, log, 5, 0, 6, 4000, 4000) == outcome(reference, log, 5, 0, 6, 4000, 4000)


@both
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), interesting), min_size=1, max_size=9))
def test_the_last_record_of_each_key_stays_where_it_was(
    clean: ModuleType, pairs: list[tuple[bytes, int]]
) -> None:
    log = build_batch([(key, bytes([value]), [], NOW + value) for key, value in pairs], base_offset=40)
    table = clean.KeyOffsets(8, 4, SEED)
    rules = clean.Rules([], [], NOW, NOW)
    assert clean.map_keys(log, 0, table, rules, 0) == (clean.END, len(log))
    target = bytearray(len(log))
    filled = clean.filter_batches(log, 0, target, 0, table, rules, -1, 0)[2]
    left = decode_records(target[:filled])
    assert {(record.key, record.value, record.offset) for record in left} == {
        (key, bytes([value]), 40 + index)
        for index, (key, value) in enumerate(pairs)
        if key not in dict(pairs[index + 1 :])
    }
    assert [record.timestamp - NOW for record in left] == [(record.value or b"")[0] for record in left]
    assert read_header(target).last_offset == read_header(log).last_offset


@both
def test_a_full_table_says_how_far_it_came(clean: ModuleType) -> None:
    log = build_batch([(b"%d" % index, b"v", [], NOW) for index in (1, 2, 1, 3, 1, 4)])
    table = clean.KeyOffsets(9, 3, SEED)
    rules = clean.Rules([], [], NOW, NOW)
    assert clean.map_keys(log, 0, table, rules, 0) == (clean.FULL, 0)
    assert (len(table), table.latest_offset, table.find(b"1")) == (3, 4, 4)
    assert clean.filter_batches(log, 0, bytearray(999), 0, table, rules, -1, 0)[4:6] == (6, 4)


@both
def test_a_tombstone_gets_a_horizon_keeps_it_and_goes(clean: ModuleType) -> None:
    log = build_batch([(b"a", None, [], 1), (b"b", b"v", [], 5)])
    table = clean.KeyOffsets(9, 3, SEED)
    kept: list[list[tuple[bytes | None, int]]] = []
    for now in (NOW, NOW + 499, NOW + 500):
        rules = clean.Rules([], [], now, now + 500)
        clean.map_keys(log, 0, table, rules, 0)
        target = bytearray(999)
        filled = clean.filter_batches(log, 0, target, 0, table, rules, -1, 999)[2]
        log = target[:filled]
        header = read_header(log)
        assert (header.has_delete_horizon, header.base_timestamp, header.max_timestamp) == (
            True,
            NOW + 500,
            5,
        )
        kept.append([(record.key, record.timestamp) for record in decode_records(log)])
    assert kept == [[(b"a", 1), (b"b", 5)], [(b"a", 1), (b"b", 5)], [(b"b", 5)]]


@both
def test_a_batch_whose_crc_differs_is_not_given_a_new_one(clean: ModuleType) -> None:
    log = build_batch([(b"a", b"v", [], 1)])
    log[-2] ^= 1
    with pytest.raises(ValueError, match="CRC"):
        clean.filter_batches(
            log, 0, bytearray(999), 0, clean.KeyOffsets(9, 3, SEED), clean.Rules([], [], 0, 0), -1, 0
        )


@both
@pytest.mark.parametrize(
    "wrong",
    [
        lambda clean: clean.KeyOffsets(4, 4, SEED),
        lambda clean: clean.KeyOffsets(4, 2, b"short"),
        lambda clean: clean.Rules([(2, 0, 0), (1, 0, 0)], [], 0, 0),
        lambda clean: clean.map_keys(b"", 1, clean.KeyOffsets(4, 2, SEED), clean.Rules([], [], 0, 0), 0),
    ],
)
def test_wrong_arguments_are_refused(clean: ModuleType, wrong: Callable[[ModuleType], object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        wrong(clean)
