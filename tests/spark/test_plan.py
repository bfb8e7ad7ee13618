"""Planning of the next read, from offsets alone. No Spark here."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.arrow.ranges import OffsetRange, lost, without_lost
from sparklog.errors import SettingsError
from sparklog.model import ZERO_UUID, Offset, TopicPartition, Uuid
from sparklog.spark import plan
from sparklog.spark.offsets import StreamOffset
from sparklog.spark.plan import Loss

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def at(**offsets: int) -> dict[TopicPartition, Offset]:
    return {{"a": A, "b": B, "c": C}[name]: Offset(offset) for name, offset in offsets.items()}


def piece(partition: TopicPartition, start: int, limit: int, topic_id: bytes = ZERO_UUID) -> OffsetRange:
    return OffsetRange(partition, Offset(start), Offset(limit), Uuid(topic_id))


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
    assert plan.behind(start, at(a=3)) == [A]


NOTHING_KNOWN: dict = {"latest": {}, "log_start": {}, "ids": {}, "known_ends": {}, "deleted": frozenset()}


def lost_of(current: StreamOffset, **known: dict) -> list[Loss]:
    return plan.losses(current, **{**NOTHING_KNOWN, **known})


def test_a_topic_that_ends_before_what_was_read_begins_anew_where_its_log_starts() -> None:
    found = lost_of(StreamOffset.beginning(at(a=5)), latest=at(a=3), log_start=at(a=1))
    assert found == [Loss(A, 0, Offset(1), "a-0 ends at offset 3, but was read up to offset 5")]


def test_a_partition_that_is_gone_takes_with_it_what_was_known_to_be_there() -> None:
    found = lost_of(StreamOffset.beginning(at(a=5)), latest=at(b=3), known_ends=at(a=9), deleted={"a"})
    assert found == [Loss(A, 4, None, "a-0 is gone, read up to offset 5")]


def test_a_partition_that_cannot_be_seen_is_no_loss() -> None:
    current = StreamOffset.beginning(at(a=5, c=5))
    assert lost_of(current, latest=at(c=5), known_ends=at(a=9)) == []
    assert [loss.partition for loss in lost_of(current, deleted={"b"})] == [C]


def test_a_topic_made_anew_is_told_by_its_id_though_its_offsets_would_fit() -> None:
    current = StreamOffset.beginning(at(a=5), {"a": Uuid(b"1" * 16)})
    now = {"latest": at(a=9), "log_start": at(a=0), "known_ends": at(a=7)}
    assert lost_of(current, ids={"a": Uuid(b"1" * 16)}, **now) == []
    assert lost_of(current, **now) == []
    told = "topic 'a' was deleted and recreated; a-0 was read up to offset 5 before"
    assert lost_of(current, ids={"a": Uuid(b"2" * 16)}, **now) == [Loss(A, 2, Offset(0), told)]


def test_loss_is_told_by_the_log_start_offset_and_counted() -> None:
    found = lost_of(StreamOffset.beginning(at(a=5, b=5)), latest=at(a=9, b=9), log_start=at(a=8, b=5))
    assert found == [Loss(A, 3, Offset(8), "a-0: offsets 5 to 7 are gone, the log starts at 8")]


def test_after_loss_reading_begins_anew_and_the_loss_is_recorded() -> None:
    start = StreamOffset(began=at(a=0, b=0), reached=at(a=5, b=5), lost={A: 2})
    again = plan.begin_anew(start, [Loss(A, 3, Offset(8), ""), Loss(B, 0, None, "")])
    assert again == StreamOffset(began=at(a=8), reached=at(a=8), lost={A: 5, B: 0})
    assert plan.ranges_between(start, plan.next_offset(again, latest=at(a=9), earliest_of_new={})) == [
        piece(A, 8, 9)
    ]


def test_a_topic_made_anew_is_read_from_its_start_even_if_that_is_where_reading_once_began() -> None:
    start = StreamOffset(began=at(a=0), reached=at(a=5), ids={"a": Uuid(b"1" * 16)})
    anew = plan.begin_anew(start, [Loss(A, 0, Offset(0), "")])
    for end_of_log in (3, 99):
        end = plan.next_offset(
            anew, latest=at(a=end_of_log), earliest_of_new={}, limit=2, ids={"a": Uuid(b"2" * 16)}
        )
        assert plan.ranges_between(start, end) == [piece(A, 0, 2, b"2" * 16)]
    much = plan.next_offset(anew, latest=at(a=99), earliest_of_new={}, ids={"a": Uuid(b"2" * 16)})
    assert plan.ranges_between(start, much) == [piece(A, 0, 99, b"2" * 16)]


def test_a_position_of_sparks_kafka_connector_goes_on_and_has_a_beginning_from_then_on() -> None:
    start = StreamOffset.from_json({"a": {"0": 5}})
    end = plan.next_offset(start, latest=at(a=9, b=4), earliest_of_new=at(b=1))
    assert plan.ranges_between(start, end) == [piece(A, 5, 9), piece(B, 1, 4)]
    assert StreamOffset.from_json(json.loads(json.dumps(end.to_json()))) == end


def test_a_batch_planned_by_sparks_kafka_connector_is_read_as_it_was_planned() -> None:
    start, end = StreamOffset.from_json({"a": {"0": 5}}), StreamOffset.from_json({"a": {"0": 9, "1": 4}})
    assert plan.unknown_starts(start, end) == [B]
    assert plan.ranges_between(start, end, at(b=2)) == [piece(A, 5, 9), piece(B, 2, 4)]


def test_a_micro_batch_waits_for_enough_but_not_too_long() -> None:
    current, end = StreamOffset.beginning(at(a=0)), StreamOffset(began=at(a=0), reached=at(a=9))

    def is_put_off(least: int | None, waited_ms: float) -> bool:
        return plan.is_put_off(current, end, least=least, waited_ms=waited_ms, delay_ms=1000)

    assert is_put_off(10, 999)
    assert not is_put_off(9, 0)
    assert not is_put_off(10, 1000)
    assert not is_put_off(None, 0)


def test_a_limit_is_shared_by_backlog_as_sparks_kafka_connector_does() -> None:
    # 10 of 100: shares 6.6, 3.3 and 0.1; rounded down above one, up below.
    assert plan.rate_limited(10, at(a=0, b=0, c=0), at(a=66, b=33, c=1)) == at(a=6, b=3, c=1)


def test_a_limit_near_the_largest_offset_does_not_overflow() -> None:
    assert plan.rate_limited(2**63 - 1, at(a=5), at(a=9)) == at(a=9)


def connectors_answer(limit: int, start: dict, end: dict) -> dict:
    """The result of Spark's Kafka connector, in its own order of 64-bit sums: Long * (Long / Double), then
    ceil or floor, saturating.
    """
    sizes = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = float(sum(sizes.values()))
    answer = dict(end)
    for tp, size in sizes.items():
        prorate = float(limit) * (float(size) / total)
        whole = min(2**63 - 1, int(math.ceil(prorate) if prorate < 1 else math.floor(prorate)))
        reached = 2**63 - 1 if whole > 2**63 - 1 - start[tp] else start[tp] + whole
        answer[tp] = min(end[tp], reached)
    return answer


SPANS = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**60)), min_size=1, max_size=12)


@given(SPANS, st.integers(1, 2**63 - 1))
def test_shares_are_those_of_sparks_kafka_connector_to_the_last_offset(
    spans: list[tuple[int, int]], limit: int
) -> None:
    start = {TopicPartition("t", i): Offset(first) for i, (first, _) in enumerate(spans)}
    end = {TopicPartition("t", i): Offset(first + size) for i, (first, size) in enumerate(spans)}
    assert plan.rate_limited(limit, start, end) == connectors_answer(limit, start, end)


@pytest.mark.parametrize(
    ("limit", "backlogs", "shares"),
    [
        (10, [66, 33, 1], [6, 3, 1]),
        (1, [1000, 1], [1, 1]),
        (7, [3, 3, 3], [2, 2, 2]),
        (100, [3, 0, 5], [3, 0, 5]),
        (5, [10**12, 1], [4, 1]),
        (2**63 - 1, [2**62], [2**62]),
        (3, [0, 0], [0, 0]),
    ],
)
def test_known_shares(limit: int, backlogs: list[int], shares: list[int]) -> None:
    end = {TopicPartition("t", i): Offset(size) for i, size in enumerate(backlogs)}
    assert list(plan.rate_limited(limit, dict.fromkeys(end, Offset(0)), end).values()) == shares


BACKLOGS = st.lists(st.integers(0, 10**12), min_size=1, max_size=12)


@given(BACKLOGS, st.integers(1, 10**13))
def test_a_limited_batch_moves_every_partition_and_never_passes_the_end(
    backlogs: list[int], limit: int
) -> None:
    end = {TopicPartition("t", i): Offset(size) for i, size in enumerate(backlogs)}
    start = dict.fromkeys(end, Offset(0))
    limited = plan.rate_limited(limit, start, end)
    assert all(limited[tp] <= end[tp] and (limited[tp] > 0) == (end[tp] > 0) for tp in end)
    assert sum(limited.values()) <= limit * (1 + 1e-9) + len(end)


@given(BACKLOGS, st.integers(1, 10**13), st.floats(0.01, 10**6))
def test_a_limit_in_bytes_takes_the_same_share_of_every_backlog(
    backlogs: list[int], limit: int, size: float
) -> None:
    end = {TopicPartition("t", i): Offset(count) for i, count in enumerate(backlogs)}
    limited = plan.bytes_limited(limit, dict.fromkeys(end, Offset(0)), end, lambda _: size)
    assert all(limited[tp] <= end[tp] and (limited[tp] > 0) == (end[tp] > 0) for tp in end)
    assert sum(limited.values()) * size <= limit * (1 + 1e-9) + len(end) * size


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 1000)), min_size=1, max_size=6)


def connectors_pieces(sizes: list[int], wanted: int) -> list[list[int]]:
    """The sizes of the pieces of each range, as Spark's Kafka connector cuts them: rounded shares,
    remainders to the last.
    """
    total = sum(sizes)

    def share(size: int, of: int, parts: int) -> int:
        return max(math.floor(float(size) / of * parts + 0.5), 1)

    if len(sizes) >= wanted:
        return [[size] for size in sizes]
    unsplit = [size for size in sizes if share(size, total, wanted) == 1]
    answer = []
    for size in sizes:
        parts = (
            1
            if share(size, total, wanted) == 1
            else share(size, total - sum(unsplit), max(wanted - len(unsplit), 1))
        )
        pieces, remaining = [], size
        for part in range(parts):
            pieces.append(remaining // (parts - part))
            remaining -= pieces[-1]
        answer.append([piece for piece in pieces if piece])
    return answer


@given(RANGES, st.integers(1, 60))
def test_splitting_keeps_every_offset_once_in_the_pieces_of_sparks_kafka_connector(
    sizes: list[tuple[int, int]], wanted: int
) -> None:
    ranges = [piece(TopicPartition("t", i), start, start + size) for i, (start, size) in enumerate(sizes)]
    pieces = plan.split(ranges, wanted)
    offsets = [(p.partition, offset) for p in pieces for offset in range(p.start, p.limit)]
    assert offsets == [(r.partition, offset) for r in ranges for offset in range(r.start, r.limit)]
    expected = connectors_pieces([size for _, size in sizes], wanted)
    assert [[len(p) for p in pieces if p.partition == r.partition] for r in ranges] == expected


@pytest.mark.parametrize(
    ("sizes", "wanted", "pieces"),
    [
        ([10, 100], 3, [[10], [50, 50]]),
        ([7], 5, [[1, 1, 1, 2, 2]]),
        ([500, 500], 7, [[125] * 4, [125] * 4]),
        ([3], 40, [[1, 1, 1]]),
        ([1, 1], 1, [[1], [1]]),
        ([2**62], 4, [[2**60] * 4]),
    ],
)
def test_known_pieces(sizes: list[int], wanted: int, pieces: list[list[int]]) -> None:
    ranges = [piece(TopicPartition("t", i), 0, size) for i, size in enumerate(sizes)]
    cut = plan.split(ranges, wanted)
    assert [[len(p) for p in cut if p.partition == r.partition] for r in ranges] == pieces


@given(
    RANGES, st.integers(1, 60) | st.none(), st.integers(1, 1200) | st.none(), st.integers(1, 5000) | st.none()
)
def test_tasks_hold_every_offset_once_and_keep_every_limit(sizes, pieces_min, records_max, bytes_max) -> None:
    ranges = [piece(TopicPartition("t", i), start, start + size) for i, (start, size) in enumerate(sizes)]
    tasks = plan.tasks(
        ranges, pieces_min=pieces_min, records_max=records_max, bytes_max=bytes_max, per_offset=lambda _: 10.0
    )
    pieces = [p for task in tasks for p in task]
    offsets = [(p.partition, offset) for p in pieces for offset in range(p.start, p.limit)]
    assert offsets == [(r.partition, offset) for r in ranges for offset in range(r.start, r.limit)]
    assert all(len(p) <= (records_max or len(p)) for p in pieces)
    assert all(len(p) == 1 or len(p) * 10 <= (bytes_max or len(p) * 10) for p in pieces)
    assert all(len(p) for p in pieces)


def test_a_tiny_micro_batch_is_one_task_unless_tasks_were_asked_for() -> None:
    ranges = [piece(A, 0, 10), piece(B, 5, 10)]
    sized = {"per_offset": lambda _: 100.0, "tiny_bytes": 1501}
    assert plan.tasks(ranges, **sized) == [tuple(ranges)]
    assert plan.tasks(ranges, **{**sized, "tiny_bytes": 1500}) == [(ranges[0],), (ranges[1],)]
    assert plan.tasks(ranges, pieces_min=2, **sized) == [(ranges[0],), (ranges[1],)]
    assert plan.tasks([], **sized) == []


def test_tiny_ranges_share_tasks_and_large_ones_have_their_own() -> None:
    ranges = [
        piece(A, 0, 4),
        piece(B, 0, 4),
        piece(C, 0, 20),
        piece(A, 50, 54),
        piece(B, 50, 54),
        piece(C, 50, 54),
    ]
    dealt = plan.tasks(ranges, per_offset=lambda _: 100.0, tiny_bytes=1000)
    assert dealt == [tuple(ranges[:2]), (ranges[2],), tuple(ranges[3:5]), (ranges[5],)]


def test_a_huge_range_in_tiny_pieces_is_refused_with_the_options_to_change() -> None:
    huge = [piece(A, 0, 2**62)]
    with pytest.raises(
        SettingsError,
        match="'maxRecordsPerPartition', 'maxBytesPerPartition' and 'minPartitions' ask for 4611686018427387904",  # noqa: E501
    ):
        plan.tasks(huge, records_max=1)
    with pytest.raises(SettingsError, match="more than 100000: allow more for each task"):
        plan.tasks(huge, pieces_min=2**31 - 1)
    assert len(plan.tasks([piece(A, 0, 1)], pieces_min=2**31 - 1)) == 1
    assert [len(task[0]) for task in plan.tasks(huge, pieces_min=4)] == [2**60] * 4


def test_loss_is_judged_by_where_the_log_starts() -> None:
    ranges = [piece(A, 3, 9), piece(B, 3, 9), piece(C, 0, 4)]
    log_start = at(a=3, b=5)
    assert lost(ranges, log_start) == [
        "a-1: offsets 3 to 4 are gone, the log starts at 5",
        "b-0 is gone, offsets 0 to 3 with it",
    ]
    assert without_lost(ranges, log_start) == [piece(A, 3, 9), piece(B, 5, 9)]


def test_a_batch_that_starts_beyond_its_end_is_refused() -> None:
    assert plan.ranges_of(at(a=1, b=4), at(a=3, b=4), {}) == [piece(A, 1, 3)]
    with pytest.raises(
        SettingsError, match="a-0: startingOffsets 4 lies beyond the end of the read at offset 3"
    ):
        plan.ranges_of(at(a=4), at(a=3), {})
