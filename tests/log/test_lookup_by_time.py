"""Lookups by timestamp: the first record that is late enough, with timestamps in any order."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.effects import take_all
from sparklog.model import Millis, Offset
from sparklog.record.batch import build_batch
from sparklog.record.compression import Codec
from sparklog_server.disk.door import StorageError
from sparklog_server.log.cleaning.cleaner import Round
from sparklog_server.log.cleaning.compaction import judge, plan_round
from sparklog_server.log.cleaning.swap import commit
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.lookup.time_lookup import TimeSearch
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import (
    EPOCH,
    NOW,
    START_MS,
    batch,
    max_timestamp,
    new_log,
    offset_for_timestamp,
    open_log,
    records_of,
    sync,
)
from tests.properties import examples

TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4)), min_size=1, max_size=150)


@examples(60)
@given(TIMES, st.booleans(), st.booleans(), st.integers(0, 100))
def test_the_first_record_at_or_after_a_timestamp_is_found(
    times: list[tuple[int, int]], is_synced: bool, is_reopened: bool, cut: int
) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_bytes=2500, index_interval_bytes=200))
    for at, count in times:
        log.append(
            batch(count, timestamp=START_MS + at, codec=Codec.ZSTD if at % 5 == 0 else Codec.NONE), EPOCH, NOW
        )
    if is_synced:
        sync(disk, log)
    if is_reopened:
        log.close(NOW)
        log = open_log(disk, log.settings, was_clean=True)
    records = records_of(log)
    limit = Offset(log.log_end_offset - min(cut, log.log_end_offset) // 2)
    for at in range(-1, 70, 3):
        first = next((record for record in records if record.timestamp >= START_MS + at), None)
        expected = None if first is None or first.offset >= limit else (first.timestamp, first.offset, EPOCH)
        assert offset_for_timestamp(log, Millis(START_MS + at), limit) == expected
    greatest = max(record.timestamp for record in records)
    timestamp, offset = max_timestamp(log)
    assert timestamp == greatest
    assert records[offset].timestamp == greatest


def test_an_empty_log_has_no_timestamps() -> None:
    log = new_log()
    assert max_timestamp(log) == (-1, -1)
    assert offset_for_timestamp(log, Millis(0), Offset(0)) is None


def test_records_below_the_log_start_are_not_found() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for at in range(20):
        log.append(batch(2, timestamp=START_MS + 2 * at), EPOCH, NOW)
    log.close(NOW)
    log = open_log(disk, was_clean=True, log_start_offset=11)
    assert offset_for_timestamp(log, Millis(START_MS), log.log_end_offset) == (START_MS + 11, 11, EPOCH)


def test_a_search_says_nothing_while_the_files_of_a_compacted_segment_are_on_their_way_to_their_names() -> (
    None
):
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_bytes=2500, index_interval_bytes=200, is_compacted=True))
    for at in range(100):
        log.append(memoryview(build_batch([(b"key", b"%d" % at, (), START_MS + at)])), EPOCH, NOW)
    sync(disk, log)
    choice = judge(log, log.log_end_offset, NOW.wall_ms)
    plan = plan_round(
        log, choice, table_bytes_max=1 << 20, load_factor=0.9, seed=bytes(16), now_ms=NOW.wall_ms
    )
    cleaned = Round(disk, plan).work(1 << 20).cleaned
    assert cleaned is not None
    assert log.segments.swap_in(cleaned)
    outcomes: list[tuple[TimeSearch, object, bool]] = []

    def search_between(call: str, _: str) -> None:
        if call == "rename":
            search = log.time_search(Millis(START_MS), log.log_end_offset)
            outcomes.append((search, take_all(search.outcome()), search.is_current))

    disk.fault = search_between
    commit(disk, cleaned.swap)
    disk.fault = None
    assert any(
        isinstance(outcome, StorageError) for _, outcome, _ in outcomes
    )  # between the two renames the log has no name
    assert not any(is_current for _, _, is_current in outcomes)
    log.segments.swapped(cleaned.base_offset)
    assert not any(search.is_current for search, _, _ in outcomes)
    found = offset_for_timestamp(log, Millis(START_MS), log.log_end_offset)
    assert found is not None
    assert found[1] > 0
