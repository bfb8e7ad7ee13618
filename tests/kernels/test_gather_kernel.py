"""The compiled `gather` kernel and its plain-Python twin build the same batches."""

from importlib import import_module
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.kernels import gather_reference as reference
from tests.kernels.hostile import contents, names

try:
    compiled: ModuleType | None = import_module("sparklog.kernels.gather_compiled")
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="the compiled kernels are not built (make setup)"
)
both = pytest.mark.parametrize(
    "gather", [reference, pytest.param(compiled, marks=needs_compiled)], ids=["reference", "compiled"]
)
given_contents = st.one_of(
    contents, st.text(max_size=40), contents.map(lambda one: None if one is None else bytearray(one))
)
records = st.tuples(
    given_contents,
    given_contents,
    st.lists(st.tuples(names, contents), max_size=3),
    st.integers(-(2**63), 2**63 - 1),
)
lists = st.lists(given_contents, max_size=20)


@needs_compiled
@given(st.lists(records, max_size=20), st.integers(0, 600))
def test_twins_build_the_same_batch(
    given_records: list[
        tuple[
            bytes | bytearray | str | None,
            bytes | bytearray | str | None,
            list[tuple[str, bytes | None]],
            int,
        ]
    ],
    limit: int,
) -> None:
    built = []
    for gather in (compiled, reference):
        assert gather is not None
        batch = gather.Records(61, limit)
        indices = [batch.append(*record) for record in given_records]
        assert batch.size <= max(limit, 61)
        facts = (batch.size, batch.record_count, batch.base_timestamp, batch.max_timestamp)
        built.append((indices, facts, batch.take(), batch.append(None, b"", (), 0)))
    assert built[0] == built[1]


@needs_compiled
@given(lists, st.booleans(), st.integers(0, 20), st.integers(61, 400))
def test_twins_take_the_same_part_of_a_list(
    values: list[bytes | bytearray | str | None], has_keys: bool, start: int, limit: int
) -> None:
    built = []
    for gather in (compiled, reference):
        assert gather is not None
        batch = gather.Records(61, limit)
        try:
            taken: object = batch.extend(values, values[::-1] if has_keys else None, 7, start)
        except ValueError as refused:
            taken = refused.args
        built.append((taken, batch.take()))
    assert built[0] == built[1]


@both
def test_a_value_that_is_neither_bytes_nor_text_is_refused_and_those_before_it_stay(
    gather: ModuleType,
) -> None:
    batch = gather.Records(61)
    with pytest.raises(TypeError, match="int is neither bytes nor text"):
        batch.extend([b"a", "b", 3, b"d"], None, 0, 0)
    assert batch.record_count == 2
    for wrong in (1.5, [b"x"], object()):
        with pytest.raises(TypeError, match="is neither bytes nor text"):
            batch.append(wrong, None, (), 0)


@both
def test_a_view_with_gaps_is_written_without_them(gather: ModuleType) -> None:
    ours, theirs = gather.Records(0), gather.Records(0)
    ours.append(None, memoryview(b"abcdef")[::2], (), 0)
    theirs.append(None, b"ace", (), 0)
    assert ours.take() == theirs.take()


@both
def test_a_timestamp_needs_64_bits(gather: ModuleType) -> None:
    with pytest.raises(OverflowError):
        gather.Records(0).append(None, b"", (), 2**63)


@both
def test_text_that_is_no_unicode_is_refused(gather: ModuleType) -> None:
    batch = gather.Records(61)
    with pytest.raises(UnicodeEncodeError):
        batch.append(None, "\ud800", (), 0)
    assert batch.record_count == 0


@both
def test_a_place_keeps_what_it_is_made_of(gather: ModuleType) -> None:
    owner, batch = object(), object()
    place = gather.Place(owner, batch, 3, 1_700_000_000_000)
    assert (place._owner, place._batch, place._index, place._timestamp_ms) == (
        owner,
        batch,
        3,
        1_700_000_000_000,
    )
