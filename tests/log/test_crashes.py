"""Power cuts: synced records survive, the log is a prefix of the appended records, and every index agrees
with a full scan.
"""

from random import Random

import pytest

from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, Offset
from sparklog.record.batch import read_header
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog, RecordsRefused
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import (
    EPOCH,
    NOW,
    START_MS,
    Place,
    batch,
    offset_for_timestamp,
    open_log,
    read_all,
    sync,
    truncate,
)

SETTINGS = LogConfig(segment_bytes=3000, index_interval_bytes=200)


def agrees_with_a_full_scan(log: PartitionLog, places: list[Place], *, by_time: bool = True) -> None:
    """Look up every offset, every epoch's start and some timestamps, and compare with the batches themselves.

    Without `by_time` where records were removed from batches, since a batch header does not tell the times at
    which the remaining ones are found.
    """
    for place in places:
        for offset in range(place.base_offset, place.next_offset):
            found = log.read(Offset(offset), log.log_end_offset, 1, at_least_one=True)
            assert found is not None
            assert found.read() == place.content
    headers = [read_header(place.content) for place in places]
    for header in headers[:: max(len(headers) // 10, 1)]:
        assert log.epochs.epoch_at(Offset(header.base_offset)) == header.leader_epoch
        if not by_time:
            continue
        first = next(other for other in headers if other.max_timestamp >= header.max_timestamp)
        answer = offset_for_timestamp(log, header.max_timestamp, log.log_end_offset)
        assert answer is not None
        assert first.base_offset <= answer[1] < first.next_offset


class Run:
    """A random history on one disk, over several processes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk()
        self.log = open_log(self.disk, SETTINGS)
        self.epoch = 0
        self.sequence = 0
        self.durable: list[Place] = []
        self.appended: list[Place] = []
        self.checkpoint = 0

    def live(self) -> None:
        """Append, sync, truncate and fail a number of times."""
        for _ in range(self.random.randrange(1, 120)):
            fate = self.random.random()
            if fate < 0.04:
                self.epoch += 1
                self.log.assign_epoch(LeaderEpoch(self.epoch), self.log.log_end_offset)
            elif fate < 0.14:
                sync(self.disk, self.log)
                self.durable = list(self.appended)
                if self.random.random() < 0.5:
                    self.checkpoint = self.log.recovery_point
            elif fate < 0.16:
                self._truncate()
            else:
                self._append()

    def _append(self) -> None:
        count = self.random.randrange(1, 4)
        sent = batch(
            count,
            value=b"%d" % len(self.appended) + b"x" * self.random.randrange(200),
            timestamp=START_MS + self.random.randrange(1000),
            producer_id=7,
            sequence=self.sequence,
        )
        is_failing = self.random.random() < 0.05
        self.disk.fault = (
            (lambda call, _: "Input/output error" if call in ("append", "replace") else None)
            if is_failing
            else None
        )
        try:
            result = self.log.append(sent, LeaderEpoch(self.epoch), NOW)
        except StorageError:
            return
        finally:
            self.disk.fault = None
        self.sequence += count
        self.appended.append(Place(result.base_offset, result.last_offset + 1, bytes(sent)))

    def _truncate(self) -> None:
        """Truncate as a follower does: never below the durable offset, or the test itself would break the
        guarantee.
        """
        durable_end = self.durable[-1].next_offset if self.durable else 0
        keep = self.random.randrange(durable_end, self.log.log_end_offset + 1)
        truncate(self.log, keep)
        self.appended = [place for place in self.appended if place.next_offset <= self.log.log_end_offset]
        self._know_sequence()

    def _know_sequence(self) -> None:
        last = read_header(self.appended[-1].content) if self.appended else None
        self.sequence = 0 if last is None else last.last_sequence + 1

    def crash(self) -> None:
        """Cut the power, open again, and check every guarantee."""
        self.disk.crash(self.random)
        self.log = open_log(self.disk, SETTINGS, recovery_point=self.checkpoint)
        found = read_all(self.log)
        assert len(found) >= len(self.durable), "what was synced is gone"
        assert found == self.appended[: len(found)], "not a prefix of what was appended"
        assert self.log.log_end_offset == (found[-1].next_offset if found else 0)
        agrees_with_a_full_scan(self.log, found)
        self._check_producer(found)
        self.appended = found
        self._know_sequence()

    def _check_producer(self, found: list[Place]) -> None:
        if found:
            again = memoryview(bytearray(found[-1].content))
            scan.stamp(again, 0, -1)
            result = self.log.append(again, LeaderEpoch(self.epoch), NOW)
            assert result.is_duplicate
            assert result.base_offset == found[-1].base_offset
            gap = batch(producer_id=7, sequence=read_header(found[-1].content).last_sequence + 2)
            with pytest.raises(RecordsRefused):
                self.log.append(gap, LeaderEpoch(self.epoch), NOW)


@pytest.mark.parametrize("seed", range(60))
def test_after_power_cuts_every_promise_holds(seed: int) -> None:
    run = Run(seed)
    for _ in range(4):
        run.live()
        run.crash()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_after_many_more_power_cuts_every_promise_holds(seed: int) -> None:
    test_after_power_cuts_every_promise_holds(seed)


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_between_clean_stops_is_told_from_them(seed: int) -> None:
    run = Run(seed)
    run.live()
    run.log.close(NOW)
    run.log = open_log(run.disk, SETTINGS, was_clean=True)
    run.durable = run.appended = read_all(run.log)
    run.checkpoint = run.log.recovery_point
    run._know_sequence()
    run.live()
    run.crash()


def test_a_killed_process_loses_nothing_it_wrote_even_if_it_never_synced() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    for _ in range(100):
        log.append(batch(), EPOCH, NOW)
    appended = read_all(log)
    disk.restart()
    again = open_log(disk, SETTINGS)
    assert read_all(again) == appended
    agrees_with_a_full_scan(again, appended)


def test_what_recovery_repaired_is_synced_with_the_next_sync() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, SETTINGS)
    for _ in range(100):
        log.append(batch(), EPOCH, NOW)
    appended = read_all(log)
    disk.restart()
    again = open_log(disk, SETTINGS)
    sync(disk, again)
    disk.crash(Random(1))
    assert read_all(open_log(disk, SETTINGS, recovery_point=again.recovery_point)) == appended


def test_a_first_sync_that_is_cut_short_leaves_no_log_that_starts_where_nobody_said() -> None:
    """The epochs on the disk imply that the first segment exists, so they are written after it, also when the
    log was rolled meanwhile.
    """
    for synced_count in range(4):
        for seed in range(20):
            disk = SimulatedDisk()
            log = open_log(disk, SETTINGS)
            log.append(batch(value=bytes(2000)), EPOCH, NOW)
            files, _ = log.begin_sync()
            log.append(batch(value=bytes(2000)), EPOCH, NOW)
            disk.sync(files[:synced_count])
            disk.crash(Random(seed))
            again = open_log(disk, SETTINGS)
            assert again.log_start_offset == 0
