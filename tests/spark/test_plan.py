"""What to read next, from offsets alone. No Spark here."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import SettingsError
from sparklog.model import Offset, TopicPartition
from sparklog.spark import plan
from sparklog.spark.offsets import StreamOffset
from sparklog.spark.options import Place, Position
from sparklog.spark.plan import OffsetRange

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def at(**offsets: int) -> dict[TopicPartition, Offset]:
    return {{"a": A, "b": B, "c": C}[name]: Offset(offset) for name, offset in offsets.items()}


def piece(partition: TopicPartition, start: int, limit: int) -> OffsetRange:
    return OffsetRange(partition, Offset(start), Offset(limit))


def test_a_replayed_first_batch_reads_what_it_read_before_the_crash() -> None:
    # Started at "latest" = 0, read up to 3, crashed; asked again, "latest" is 9.
    stored_end = StreamOffset(began=at(a=0), reached=at(a=3))
    start_now = StreamOffset.beginning(at(a=9))
    assert plan.ranges_between(start_now, stored_end) == [piece(A, 0, 3)]


def test_a_new_partition_is_read_from_its_earliest_record() -> None:
    start = StreamOffset.beginning(at(a=5))
    end = plan.next_offset(start, latest=at(a=5, b=7), earliest_of_new=at(b=2), limit=None)
    assert plan.ranges_between(start, end) == [piece(B, 2, 7)]


def test_nothing_new_is_the_same_text() -> None:
    start = StreamOffset(began=at(a=1, b=0), reached=at(a=5, b=7))
    end = plan.next_offset(start, latest=at(b=7, a=5), earliest_of_new={}, limit=100)
    assert json.dumps(end.to_json()) == json.dumps(start.to_json())


def test_a_position_never_goes_back_by_itself() -> None:
    start = StreamOffset.beginning(at(a=5))
    assert plan.next_offset(start, latest=at(a=3), earliest_of_new={}, limit=None) == start
    assert plan.behind_position(start, at(a=3)) == ["a-0 ends at offset 3, but was read up to offset 5"]
    assert plan.behind_position(start, at(b=3)) == ["a-0 is gone, read up to offset 5"]


def test_after_loss_reading_begins_anew_where_the_log_starts() -> None:
    start = StreamOffset.beginning(at(a=5, b=5))
    again = plan.begin_anew(start, at(a=1), gone=[B])
    assert again == StreamOffset.beginning(at(a=1))
    assert plan.ranges_between(start, plan.next_offset(again, latest=at(a=3), earliest_of_new={}, limit=None)) == [piece(A, 1, 3)]


def test_a_topic_made_anew_is_read_from_its_start_even_if_that_is_where_reading_once_began() -> None:
    start = StreamOffset(began=at(a=0), reached=at(a=5))
    end = plan.next_offset(plan.begin_anew(start, at(a=0), gone=[]), latest=at(a=3), earliest_of_new={}, limit=2)
    assert plan.ranges_between(start, end) == [piece(A, 0, 2)]


def test_a_limit_is_shared_by_backlog_as_sparks_kafka_connector_does() -> None:
    # 10 of 100: shares 6.6, 3.3 and 0.1; rounded down above one, up below.
    assert plan.rate_limited(10, at(a=0, b=0, c=0), at(a=66, b=33, c=1)) == at(a=6, b=3, c=1)


def test_a_limit_near_the_largest_offset_does_not_overflow() -> None:
    assert plan.rate_limited(2**63 - 1, at(a=5), at(a=9)) == at(a=9)


BACKLOGS = st.lists(st.integers(0, 10**12), min_size=1, max_size=12)


@given(BACKLOGS, st.integers(1, 10**13))
def test_a_limited_batch_moves_every_partition_and_never_passes_the_end(backlogs: list[int], limit: int) -> None:
    end = {TopicPartition("t", i): Offset(size) for i, size in enumerate(backlogs)}
    start = dict.fromkeys(end, Offset(0))
    limited = plan.rate_limited(limit, start, end)
    assert all(limited[tp] <= end[tp] and (limited[tp] > 0) == (end[tp] > 0) for tp in end)
    assert sum(limited.values()) <= limit * (1 + 1e-9) + len(end)


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 1000)), min_size=1, max_size=6)


@given(RANGES, st.integers(1, 60))
def test_splitting_keeps_every_offset_once_and_reaches_the_number_asked_for(sizes: list[tuple[int, int]], wanted: int) -> None:
    ranges = [piece(TopicPartition("t", i), start, start + size) for i, (start, size) in enumerate(sizes)]
    pieces = plan.split(ranges, wanted)
    offsets = [(p.partition, offset) for p in pieces for offset in range(p.start, p.limit)]
    assert offsets == [(r.partition, offset) for r in ranges for offset in range(r.start, r.limit)]
    assert len(pieces) == max(len(ranges), min(wanted, sum(map(len, ranges))))
    assert all(len(p) for p in pieces)


def test_the_larger_range_is_split_first() -> None:
    assert plan.split([piece(A, 0, 10), piece(B, 0, 100)], 3) == [piece(A, 0, 10), piece(B, 0, 50), piece(B, 50, 100)]


def test_positions_become_offsets() -> None:
    known = {"option": "startingOffsets", "earliest": at(a=1, b=2), "latest": at(a=8, b=9)}
    assert plan.resolve(Position(Place.EARLIEST), **known) == at(a=1, b=2)
    assert plan.resolve(Position(Place.LATEST), **known) == at(a=8, b=9)
    assert plan.resolve(Position(None, {A: -1, B: -2}), **known) == at(a=8, b=2)
    assert plan.resolve(Position(None, {A: 4, B: 5}), **known) == at(a=4, b=5)


def test_offsets_must_name_every_partition_and_no_other() -> None:
    with pytest.raises(SettingsError, match=r"missing: a-1; not among those read: b-0"):
        plan.resolve(Position(None, {A: 4, C: 5}), option="startingOffsets", earliest=at(a=0, b=0), latest=at(a=8, b=9))


def test_loss_is_judged_by_where_the_log_starts() -> None:
    ranges = [piece(A, 3, 9), piece(B, 3, 9), piece(C, 0, 4)]
    log_start = at(a=3, b=5)
    assert plan.lost(ranges, log_start) == [
        "a-1: offsets 3 to 4 are gone, the log starts at 5",
        "b-0 is gone, offsets 0 to 3 with it",
    ]
    assert plan.without_lost(ranges, log_start) == [piece(A, 3, 9), piece(B, 5, 9)]


def test_a_batch_that_starts_beyond_its_end_is_refused() -> None:
    assert plan.ranges_of(at(a=1, b=4), at(a=3, b=4)) == [piece(A, 1, 3)]
    with pytest.raises(SettingsError, match="a-0: startingOffsets 4 lies beyond the end of the read at offset 3"):
        plan.ranges_of(at(a=4), at(a=3))
