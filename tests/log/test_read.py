"""Reads by offset: whole batches, never more than requested, always equal to a full scan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import Offset
from sparklog.record.batch import iterate_headers
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import OffsetOutOfRange, PartitionLog
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import EPOCH, NOW, SMALL, Place, batch, new_log, open_log, read_all, sync
from tests.properties import examples

SHAPES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 400)), min_size=1, max_size=120)


def filled(shapes: list[tuple[int, int]], disk: SimulatedDisk | None = None) -> PartitionLog:
    log = open_log(disk or SimulatedDisk(), LogConfig(segment_bytes=4096, index_interval_bytes=300))
    for count, size in shapes:
        log.append(batch(count, value=b"x" * (size // count)), EPOCH, NOW)
    return log


def expected(places: list[Place], start: int, limit: int) -> list[Place]:
    return [place for place in places if place.next_offset > start and place.next_offset <= limit]


@examples(60)
@given(SHAPES, st.data())
def test_a_read_gives_what_a_full_scan_gives(shapes: list[tuple[int, int]], data: st.DataObject) -> None:
    disk = SimulatedDisk()
    log = filled(shapes, disk)
    places = read_all(log)
    assert [place.base_offset for place in places] == [0, *(place.next_offset for place in places[:-1])]
    if data.draw(st.booleans()):
        sync(disk, log)  # sealed indexes are read from their files from now on
    if data.draw(st.booleans()):
        log.close(NOW)
        log = open_log(disk, log.settings, was_clean=True)
    for _ in range(20):
        start = data.draw(st.integers(0, log.log_end_offset))
        limit = data.draw(st.integers(start, log.log_end_offset + 3))
        max_bytes = data.draw(st.sampled_from([1, 100, 500, 3000, 1 << 20]))
        at_least_one = data.draw(st.booleans())
        wanted = expected(places, start, limit)
        found = log.read(Offset(start), Offset(limit), max_bytes, at_least_one=at_least_one)
        if found is None:
            assert not wanted or (not at_least_one and len(wanted[0].content) > max_bytes) or start >= limit
            continue
        content = found.read()
        got = [header.base_offset for _, header in iterate_headers(content)]
        assert got == [place.base_offset for place in wanted[: len(got)]]
        assert len(content) == sum(len(place.content) for place in wanted[: len(got)])
        assert len(content) <= max_bytes or (at_least_one and len(got) == 1)
        is_segment_end = found.position + found.length == found.file.size
        # A long read may end at an index entry: at most one interval and one batch short of the limit.
        assert len(got) == len(wanted) or is_segment_end or len(content) + 300 + 2 * 600 > max_bytes


def test_a_read_below_the_log_start_or_beyond_the_end_is_out_of_range() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for _ in range(10):
        log.append(batch(), EPOCH, NOW)
    log.close(NOW)
    log = open_log(disk, was_clean=True, log_start_offset=4)
    assert log.log_start_offset == 4
    for start in (3, 11):
        with pytest.raises(OffsetOutOfRange):
            log.read(Offset(start), Offset(20), 100, at_least_one=True)
    assert log.read(Offset(10), Offset(20), 100, at_least_one=True) is None
    assert [place.base_offset for place in read_all(log)] == list(range(4, 10))


def test_nothing_beyond_the_limit_is_given() -> None:
    log = new_log()
    for _ in range(10):
        log.append(batch(2), EPOCH, NOW)
    found = log.read(Offset(0), Offset(6), 1 << 20, at_least_one=True)
    assert found is not None
    assert [header.next_offset for _, header in iterate_headers(found.read())] == [2, 4, 6]
    assert log.read(Offset(6), Offset(6), 1 << 20, at_least_one=True) is None


def test_a_reader_at_the_tail_sees_each_batch_once_across_rolls_and_syncs() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    position, seen = Offset(0), []
    for at in range(300):
        log.append(batch(1 + at % 3), EPOCH, NOW)
        if at % 7 == 0:
            sync(disk, log)
        found = log.read(
            position, log.recovery_point if at % 2 else log.log_end_offset, 1 << 20, at_least_one=True
        )
        for _, header in iterate_headers(found.read() if found else b""):
            assert header.base_offset == position
            position = Offset(header.next_offset)
            seen.append(header.base_offset)
    assert len(seen) > 290


def test_a_slice_outlives_the_segment_it_was_cut_from() -> None:
    log = new_log()
    log.append(batch(), EPOCH, NOW)
    found = log.read(Offset(0), Offset(1), 1 << 20, at_least_one=True)
    assert found is not None
    before = found.read()
    found.file.retain()
    log.close()
    assert found.read() == before


def test_the_last_batch_is_in_memory_while_it_is_small_and_the_last() -> None:
    log = new_log()
    for value in (b"small", b"large" * 120, b"small"):
        start = log.log_end_offset
        log.append(batch(value=value), EPOCH, NOW)
        content = read_all(log)[-1].content
        assert log.tail(start) == (content if value == b"small" else None)
        assert log.tail(Offset(start + 1)) is None
    truncation = log.begin_truncation(Offset(2))
    assert truncation is not None
    assert log.tail(Offset(2)) is None


def test_small_reads_walk_the_log_in_whole_batches() -> None:
    log = filled([(2, 150)] * 100)
    assert read_all(log, max_bytes=1) == read_all(log)
    assert read_all(log, max_bytes=700) == read_all(log)


def test_offsets_missing_after_compaction_are_passed_over() -> None:
    leader, follower = new_log(), new_log(SMALL)
    for _ in range(90):
        leader.append(batch(2), EPOCH, NOW)
    kept = [place for at, place in enumerate(read_all(leader)) if at % 3 == 0]
    for place in kept:
        follower.append_as_follower(place.content, NOW)
    for start in range(follower.log_end_offset):
        found = follower.read(Offset(start), follower.log_end_offset, 1, at_least_one=True)
        assert found is not None
        (first,) = [header.base_offset for _, header in iterate_headers(found.read())]
        assert first == next(place.base_offset for place in kept if place.next_offset > start)
