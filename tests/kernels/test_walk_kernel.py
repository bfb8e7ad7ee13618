"""Records that arrive in pieces: both kernels agree, and a walk over pieces gives the same result as one call
over the whole.
"""

from importlib import import_module
from itertools import pairwise
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.kernels import scan_reference, walk_reference
from sparklog.record.batch import build_batch
from tests.kernels.hostile import Fields, damaged, damages, one_batch, outcome, record_lists, timestamps
from tests.properties import examples

try:
    compiled: ModuleType | None = import_module("sparklog.kernels.walk_compiled")
except ImportError:
    compiled = None

both = pytest.mark.parametrize(
    "walk",
    [
        walk_reference,
        pytest.param(
            compiled, marks=pytest.mark.skipif(compiled is None, reason="the compiled kernels are not built")
        ),
    ],
    ids=["reference", "compiled"],
)
cuts = st.lists(st.floats(0, 1), max_size=6)
HEADER = 61


def pieces_of(content: bytes, places: list[float]) -> list[bytes]:
    """The content, cut at these places."""
    bounds = sorted([0, *(int(place * len(content)) for place in places), len(content)])
    return [content[begin:end] for begin, end in pairwise(bounds)]


def walked(
    walk: ModuleType, pieces: list[bytes], count: int, **options: object
) -> tuple[int, int, list[tuple[int, int, int]], list[int]]:
    """Least and greatest timestamp, every hit, and the records without a key."""
    one, hits = walk.RecordWalk(count, 1000, **options), []
    for piece in pieces:
        position = 0
        while position < len(piece):
            position = one.feed(piece, position)
            if one.is_hit:
                hits.append((one.hit_index, one.hit_timestamp, one.hit_delta))
    one.finish()
    return one.least, one.greatest, hits, one.keyless


@both
@examples(150)
@given(record_lists, cuts, st.booleans(), timestamps, timestamps)
def test_a_walk_over_pieces_gives_what_the_whole_gives(
    walk: ModuleType, fields: list[Fields], places: list[float], require_keys: bool, low: int, high: int
) -> None:
    body = bytes(one_batch(fields))[HEADER:]
    count = len(fields)
    expected = outcome(scan_reference.check_records, body, count, 1000, False)
    found = outcome(
        lambda: walked(walk, pieces_of(body, places), count, require_keys=require_keys, low=low, high=high)
    )
    if isinstance(expected, tuple) and expected[0] == "refused":
        assert found == expected
    else:
        assert isinstance(found, tuple)
        assert found[:2] == expected
        assert [index for index, _, _ in found[2]] == scan_reference.timestamps_outside(
            body, count, 1000, low, high, 99
        )
        assert found[3] == (scan_reference.keys_missing(body, count, 99) if require_keys else [])


@both
@examples(200)
@given(record_lists, damages, st.integers(0, 9), cuts, st.integers(0, 12))
def test_a_walk_over_pieces_refuses_what_the_whole_refuses(
    walk: ModuleType,
    fields: list[Fields],
    damage: list[tuple[float, int]],
    cut: int,
    places: list[float],
    count: int,
) -> None:
    body = bytes(damaged(one_batch(fields), damage, cut, first=HEADER))[HEADER:]
    expected = outcome(scan_reference.check_records, body, count, 1000, False)
    found = outcome(lambda: walked(walk, pieces_of(body, places), count)[:2])
    is_refused = isinstance(expected, tuple) and expected[0] == "refused"
    assert is_refused == (isinstance(found, tuple) and found[0] == "refused")
    assert is_refused or found == expected


@pytest.mark.skipif(compiled is None, reason="the compiled kernels are not built")
@examples(300)
@given(
    record_lists,
    damages,
    st.integers(0, 9),
    cuts,
    st.integers(0, 12),
    st.booleans(),
    st.booleans(),
    timestamps,
    st.integers(-1, 5),
)
def test_twins_agree_on_hostile_pieces(
    fields: list[Fields],
    damage: list[tuple[float, int]],
    cut: int,
    places: list[float],
    count: int,
    is_strict: bool,
    require_keys: bool,
    high: int,
    from_delta: int,
) -> None:
    assert compiled is not None
    pieces = pieces_of(bytes(damaged(one_batch(fields), damage, cut, first=HEADER))[HEADER:], places)
    options = {"is_strict": is_strict, "require_keys": require_keys, "high": high, "from_delta": from_delta}
    assert outcome(lambda: walked(compiled, pieces, count, **options)) == outcome(
        lambda: walked(walk_reference, pieces, count, **options)
    )


@both
def test_a_record_larger_than_any_piece_is_walked_without_its_bytes_at_hand(walk: ModuleType) -> None:
    headers = [("h" * 300, b"v" * 700), ("i", None)] * 50
    body = bytes(build_batch([(b"k" * 9_000, b"v" * 90_000, headers, 1000), (b"k", b"v", [], 995)]))[HEADER:]
    pieces = [body[at : at + 64] for at in range(0, len(body), 64)]
    assert walked(walk, pieces, 2, high=999, require_keys=True) == (995, 1000, [(0, 1000, 0)], [])


@both
def test_of_many_records_without_a_key_the_first_thousand_are_named(walk: ModuleType) -> None:
    body = bytes(build_batch([(None if index % 3 else b"k", b"v", [], 1000) for index in range(1600)]))[
        HEADER:
    ]
    keyless = walked(walk, [body[at : at + 100] for at in range(0, len(body), 100)], 1600, require_keys=True)[
        3
    ]
    assert keyless == [index for index in range(1600) if index % 3][:1000]
