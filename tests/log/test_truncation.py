"""Truncation as a job: what the log answers while the job runs, and what a crash at any point leaves."""

from random import Random

import pytest

from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, Offset
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import EPOCH, NOW, Place, batch, open_log, read_all, sync
from tests.log.test_crashes import agrees_with_a_full_scan

SETTINGS = LogConfig(segment_bytes=1000, index_interval_bytes=200)
CUTS = (0, 1, 17, 20, 38)


class PowerCut:
    """A fault that lets a number of calls of the disk through and fails every one after them."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, call: str, path: str) -> str | None:
        self.calls -= 1
        return None if self.calls >= 0 else "Input/output error"


def filled(disk: SimulatedDisk) -> tuple[PartitionLog, list[Place]]:
    """A log of several segments, in two epochs, the last records not synced."""
    log = open_log(disk, SETTINGS)
    for at in range(40):
        if at == 36:
            sync(disk, log)
        log.append(batch(producer_id=7, sequence=at), LeaderEpoch(at // 25), NOW)
    return log, read_all(log)


@pytest.mark.parametrize("offset", CUTS)
def test_while_the_job_of_a_truncation_is_due_the_log_answers_as_it_will_afterwards(offset: int) -> None:
    disk = SimulatedDisk()
    log, places = filled(disk)
    truncation = log.begin_truncation(Offset(offset))
    assert truncation is not None
    for _ in range(2):
        assert log.log_end_offset == offset
        assert log.recovery_point == min(offset, 36)
        assert read_all(log) == places[:offset]
        assert log.latest_epoch == (-1 if offset == 0 else offset > 25)
        if log.is_truncating:
            truncation.run()
            assert read_all(log) == places[:offset]
            log.truncated(truncation)
    assert not log.is_truncating
    again = bytearray(places[offset].content)
    scan.stamp(again, 0, -1)
    assert not log.append(memoryview(again), EPOCH, NOW).is_duplicate
    agrees_with_a_full_scan(log, read_all(log))


def test_a_log_refuses_appends_until_its_truncation_is_adopted() -> None:
    log, _ = filled(SimulatedDisk())
    assert log.begin_truncation(Offset(20)) is not None
    with pytest.raises(AssertionError):
        log.append(batch(), EPOCH, NOW)
    with pytest.raises(AssertionError):
        log.append_own(bytearray(batch()), EPOCH, NOW)
    assert log.retire(Offset(20), NOW) is None


def test_a_truncation_to_the_end_of_the_log_has_no_job() -> None:
    log, places = filled(SimulatedDisk())
    assert log.begin_truncation(Offset(40)) is None
    assert read_all(log) == places


@pytest.mark.parametrize("offset", CUTS)
def test_a_crash_at_any_point_of_a_truncation_leaves_a_prefix_that_recovery_opens(offset: int) -> None:
    for calls in range(200):
        disk = SimulatedDisk()
        log, places = filled(disk)
        truncation = log.begin_truncation(Offset(offset))
        assert truncation is not None
        disk.fault = PowerCut(calls)
        is_done = True
        try:
            truncation.run()
            log.truncated(truncation)
        except StorageError:
            is_done = False
        disk.fault = None
        disk.crash(Random(calls))
        again = open_log(disk, SETTINGS, recovery_point=min(offset, 36))
        found = read_all(again)
        assert found == places[: len(found)]
        assert len(found) >= min(offset, 36)
        assert len(found) == offset or not is_done
        agrees_with_a_full_scan(again, found)
        if is_done:
            return
    pytest.fail("the truncation makes more calls than that")


def test_a_restarted_log_is_empty_and_starts_at_its_offset() -> None:
    disk = SimulatedDisk()
    log, _ = filled(disk)
    restart = log.begin_restart(Offset(1000), NOW)
    for _ in range(2):
        assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (1000, 1000, -1)
        assert read_all(log) == []
        if log.is_truncating:
            restart.run()
            log.truncated(restart)
    assert log.recovery_point == 1000
    assert log.append(batch(producer_id=7, sequence=5), LeaderEpoch(9), NOW).base_offset == 1000
    sync(disk, log)
    disk.crash(Random(1))
    again = open_log(disk, SETTINGS, recovery_point=1001)
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1001)
    assert again.epochs.entries == [(9, 1000)]


def test_a_sync_that_begins_during_a_restart_hides_no_record_from_readers() -> None:
    disk = SimulatedDisk()
    log, _ = filled(disk)
    restart = log.begin_restart(Offset(1000), NOW)
    log.begin_sync()
    restart.run()
    log.truncated(restart)
    log.append(batch(), LeaderEpoch(9), NOW)
    log.append(batch(), LeaderEpoch(9), NOW)
    assert log.read(Offset(1000), log.log_end_offset, 1 << 20, at_least_one=True) is not None


def test_a_crash_at_any_point_of_a_restart_leaves_a_prefix_or_the_new_start() -> None:
    for calls in range(200):
        disk = SimulatedDisk()
        log, places = filled(disk)
        restart = log.begin_restart(Offset(1000), NOW)
        disk.fault = PowerCut(calls)
        is_done = True
        try:
            restart.run()
            log.truncated(restart)
        except StorageError:
            is_done = False
        disk.fault = None
        disk.crash(Random(calls))
        again = open_log(disk, SETTINGS)
        found = read_all(again)
        assert found == places[: len(found)]
        agrees_with_a_full_scan(again, found)
        if again.log_start_offset == 1000:
            assert (again.log_end_offset, again.latest_epoch) == (1000, -1)
        if is_done:
            assert again.log_start_offset == 1000
            return
    pytest.fail("the restart makes more calls than that")
