"""How far jobs read a cold file ahead of one connection."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sparklog_server.daemon.cold_run import AHEAD_BYTES, JOB_BYTES, ColdRun

MIB = 1 << 20


@dataclass
class File:
    size: int


def read(run: ColdRun) -> list[tuple[int, int]]:
    """The ranges that jobs read until there is nothing to read."""
    ranges = []
    while (limit := run.next_limit()) is not None:
        ranges.append((run.limit, limit))
        run.found(limit)
    return ranges


def test_the_first_slice_of_a_reader_is_read_and_no_more() -> None:
    run = ColdRun(File(100 * MIB), 5 * MIB, 7 * MIB)
    assert read(run) == [(5 * MIB, 6 * MIB), (6 * MIB, 7 * MIB)]
    assert not run.is_over


def test_behind_a_slice_that_follows_another_more_is_read() -> None:
    run = ColdRun(File(100 * MIB), 0, MIB)
    read(run)
    assert run.continues_with(MIB, 2 * MIB)
    assert read(run)[-1][1] == 2 * MIB + AHEAD_BYTES


def test_the_rest_of_a_slice_belongs_to_its_run_and_adds_nothing() -> None:
    run = ColdRun(File(100 * MIB), 0, 3 * MIB)
    run.found(2 * MIB)
    assert run.continues_with(MIB, 3 * MIB)
    assert read(run) == [(2 * MIB, 3 * MIB)]


def test_a_slice_from_elsewhere_begins_another_run() -> None:
    run = ColdRun(File(100 * MIB), 0, MIB)
    assert not run.continues_with(50 * MIB, 51 * MIB)
    assert not run.continues_with(MIB // 2, 2 * MIB)


def test_one_job_reads_at_a_time() -> None:
    run = ColdRun(File(100 * MIB), 0, 3 * MIB)
    run.is_reading = True
    assert run.next_limit() is None


def test_a_run_is_over_at_the_end_of_the_file() -> None:
    run = ColdRun(File(3 * MIB), 0, MIB)
    read(run)
    assert run.continues_with(MIB, 2 * MIB)
    assert read(run)[-1] == (2 * MIB, 3 * MIB)
    assert run.is_over


def test_a_slice_that_exceeds_its_file_is_read_to_its_own_end() -> None:
    run = ColdRun(File(MIB), 0, 2 * MIB)
    assert read(run) == [(0, MIB), (MIB, 2 * MIB)]
    assert run.is_over


@given(st.integers(0, 64 * MIB), st.lists(st.integers(1, 3 * MIB), min_size=1, max_size=12), st.data())
def test_jobs_cover_every_slice_once_in_order_and_stay_within_the_window(
    size: int, lengths: list[int], data: st.DataObject
) -> None:
    file = File(max(size, sum(lengths)))
    run, position, reached = ColdRun(file, 0, lengths[0]), 0, 0
    for length in lengths:
        assert position == 0 or run.continues_with(position, position + length)
        ranges = read(run)[: data.draw(st.integers(0, 9))] if position + length <= run.limit else read(run)
        for start, limit in ranges:
            assert start == reached
            assert 0 < limit - start <= JOB_BYTES
            reached = limit
        position += length
        assert run.limit >= position
        assert run.limit <= min(position + AHEAD_BYTES, file.size)
        reached = run.limit
