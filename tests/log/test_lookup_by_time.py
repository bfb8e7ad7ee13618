"""Lookups by timestamp: the first record that is as late, whatever order the timestamps came in."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.model import Millis, Offset
from sparklog.record.compression import Codec
from sparklog_server.log.settings import LogSettings
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import EPOCH, NOW, START_MS, batch, new_log, open_log, records_of, sync

TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4)), min_size=1, max_size=150)


@settings(max_examples=60, deadline=None)
@given(TIMES, st.booleans(), st.booleans(), st.integers(0, 100))
def test_the_first_record_at_or_after_a_timestamp_is_found(
    times: list[tuple[int, int]], is_synced: bool, is_reopened: bool, cut: int
) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, LogSettings(segment_bytes=2500, index_interval_bytes=200))
    for at, count in times:
        log.append(batch(count, timestamp=START_MS + at, codec=Codec.ZSTD if at % 5 == 0 else Codec.NONE), EPOCH, NOW)
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
        assert log.offset_for_timestamp(Millis(START_MS + at), limit) == expected
    greatest = max(record.timestamp for record in records)
    timestamp, offset = log.max_timestamp()
    assert timestamp == greatest
    assert records[offset].timestamp == greatest


def test_an_empty_log_has_no_timestamps() -> None:
    log = new_log()
    assert log.max_timestamp() == (-1, -1)
    assert log.offset_for_timestamp(Millis(0), Offset(0)) is None


def test_records_below_the_log_start_are_not_found() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for at in range(20):
        log.append(batch(2, timestamp=START_MS + 2 * at), EPOCH, NOW)
    log.close(NOW)
    log = open_log(disk, was_clean=True, log_start_offset=11)
    assert log.offset_for_timestamp(Millis(START_MS), log.log_end_offset) == (START_MS + 11, 11, EPOCH)
