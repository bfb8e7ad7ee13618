"""Retention: the segments it removes, those it keeps, and the files on the disk before and after a crash."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec
import pytest

from sparklog.model import Instant, Micros, Millis, Offset
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import OffsetOutOfRange, PartitionLog
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import DIRECTORY, EPOCH, NOW, SMALL, START_MS, batch, open_log, read_all, sync

KEEPING = msgspec.structs.replace(SMALL, segment_bytes=1000, retention_ms=-1)
BATCHES_PER_SEGMENT = 2


def at(ms: int) -> Instant:
    """This long after the start."""
    return Instant(Micros(ms * 1000), Millis(START_MS + ms))


def filled(disk: SimulatedDisk, settings: LogConfig = KEEPING, *, segments: int = 4) -> PartitionLog:
    """A log with segments of 900 bytes each, a second apart, all synced; the last is active."""
    log = open_log(disk, settings)
    for index in range(segments * BATCHES_PER_SEGMENT):
        ms = index // BATCHES_PER_SEGMENT * 1000
        log.append(batch(1, value=b"v" * 375, timestamp=START_MS + ms), EPOCH, at(ms))
    sync(disk, log)
    return log


def retire(log: PartitionLog, *, ms: int = 0, high_watermark: int | None = None) -> Callable[[], None] | None:
    """One check of retention with its renames; returns the removal."""
    job = log.retire(log.log_end_offset if high_watermark is None else Offset(high_watermark), at(ms))
    return None if job is None else job()


def with_retention(**changed: int | bool) -> LogConfig:
    return msgspec.structs.replace(KEEPING, **changed)


def logs_on(disk: SimulatedDisk) -> list[int]:
    return [int(name[:20]) for name in disk.list(DIRECTORY) if name.endswith(".log")]


def test_segments_older_than_retention_ms_go_and_the_log_starts_behind_them() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    assert logs_on(disk) == [0, 2, 4, 6]
    log.settings = with_retention(retention_ms=2500)
    assert retire(log, ms=2500) is None
    assert retire(log, ms=3501) is not None
    assert log.log_start_offset == 4
    assert logs_on(disk) == [4, 6]
    assert [place.base_offset for place in read_all(log)] == [4, 5, 6, 7]
    with pytest.raises(OffsetOutOfRange):
        log.read(Offset(3), log.log_end_offset, 1000, at_least_one=True)


def test_the_largest_log_within_retention_bytes_is_kept() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    size = sum(len(place.content) for place in read_all(log)) // 4
    log.settings = with_retention(retention_bytes=2 * size + 1)
    retire(log)
    assert log.log_start_offset == 2
    log.settings = with_retention(retention_bytes=2 * size)
    retire(log)
    assert log.log_start_offset == 4


def test_nothing_goes_without_delete_among_the_policies_but_what_lies_below_the_log_start() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    log.settings = with_retention(retention_ms=0, retention_bytes=0, is_deleted=False)
    assert retire(log, ms=100_000) is None
    log.move_log_start(Offset(5))
    assert retire(log, ms=100_000) is not None
    assert log.log_start_offset == 5
    assert logs_on(disk) == [4, 6]


def test_nothing_goes_that_is_not_committed_or_not_durable() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    log.settings = with_retention(retention_ms=0)
    retire(log, ms=100_000, high_watermark=3)
    assert log.log_start_offset == 2
    disk = SimulatedDisk()
    log = open_log(disk, with_retention(retention_ms=0))
    for _ in range(6):
        log.append(batch(1, value=b"v" * 375), EPOCH, NOW)
    assert retire(log, ms=100_000) is None


def test_the_active_segment_is_rolled_first_and_goes_after_the_next_sync() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    log.settings = with_retention(retention_ms=0)
    retire(log, ms=100_000)
    assert (log.log_start_offset, logs_on(disk)) == (6, [6, 8])
    sync(disk, log)
    retire(log, ms=100_000)
    assert (log.log_start_offset, logs_on(disk)) == (8, [8])
    sync(disk, log)
    assert retire(log, ms=200_000) is None
    assert log.append(batch(1), EPOCH, NOW).base_offset == 8


def test_every_file_of_a_segment_waits_as_deleted_until_it_is_removed() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    log.move_log_start(Offset(4))
    remove = retire(log)
    deleted = [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")]
    suffixes = {0: ("index", "log", "timeindex"), 2: ("index", "log", "snapshot", "timeindex")}
    assert deleted == [f"{base:020d}.{suffix}.deleted" for base in (0, 2) for suffix in suffixes[base]]
    assert remove is not None
    remove()
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")]
    assert f"{4:020d}.snapshot" in disk.list(DIRECTORY)


def test_a_slice_given_before_is_still_readable() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    given = log.read(Offset(0), Offset(2), 10_000, at_least_one=True)
    assert given is not None
    content = given.read()
    given.file.retain()
    log.move_log_start(Offset(4))
    remove = retire(log)
    assert remove is not None
    remove()
    assert given.read() == content


def test_epochs_begin_at_the_log_start() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    log.move_log_start(Offset(5))
    assert log.epochs.entries == [(EPOCH, 5)]


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_between_any_two_renames_leaves_a_log_without_a_hole(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk()
    log = filled(disk)
    before = [place.content for place in read_all(log)]
    log.move_log_start(Offset(6))
    job = log.retire(log.log_end_offset, NOW)
    assert job is not None
    left = random.randrange(14)

    def fail_after(call: str, path: str) -> str | None:
        nonlocal left
        left -= call in ("rename", "remove")
        return "power cut" if left < 0 else None

    disk.fault = fail_after
    with suppress(StorageError):
        job()()
    disk.fault = None
    disk.crash(random)
    again = open_log(disk, KEEPING, recovery_point=8, log_start_offset=random.choice((0, 6)))
    found = [place.content for place in read_all(again)]
    assert found == before[len(before) - len(found) :]
    assert len(found) >= 2
    disk.remove(*again.leftovers)  # as the log directory does, once the log start offset is checkpointed
    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")]
