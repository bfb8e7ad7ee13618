"""Below the recovery point no file may be missing: deleted or truncated files are refused by name, after a
clean stop too.
"""

from random import Random

import pytest

from sparklog.model import Offset, TopicPartition
from sparklog_server.disk.ballast import BALLAST_BYTES
from sparklog_server.disk.checkpoint import parse_offsets, render_offsets
from sparklog_server.disk.removal import remove_all
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.segment.damage import LogDamaged
from sparklog_server.simulation.disk import NO_SPACE, SimulatedDisk
from tests.log.compacting import compact
from tests.log.history import SETTINGS, reopened
from tests.log.logs import EPOCH, NOW, T0, TOPIC_ID, Place, batch, read_all, sync

INDEXES = (".index", ".timeindex")
END = 120
VOUCHED, LATER = TopicPartition("u", 0), TopicPartition("v", 0)


def filled(disk: SimulatedDisk, *, is_keyed: bool = False) -> tuple[LogDir, PartitionLog]:
    """A log of several segments, all synced and checkpointed."""
    log_dir = reopened(disk)
    log = log_dir.create(T0, TOPIC_ID, SETTINGS, NOW)
    for at in range(60):
        log.append(
            batch(2, value=b"%d" % at + bytes(60), key=b"%d" % (at % 7 if is_keyed else at)), EPOCH, NOW
        )
    sync(disk, log)
    log_dir.checkpoints.write({T0: log.log_end_offset})
    return log_dir, log


def stopped(
    *, cleanly: bool, is_keyed: bool = False, is_compacted: bool = False
) -> tuple[SimulatedDisk, list[Place]]:
    """The directory after a clean stop, or after the process was killed."""
    disk = SimulatedDisk()
    log_dir, log = filled(disk, is_keyed=is_keyed)
    if is_compacted:
        assert compact(disk, log)
        disk.write("data/cleaner-offset-checkpoint", render_offsets({T0: log.first_dirty_offset}))
    places = read_all(log)
    if cleanly:
        log_dir.close({T0: log.log_end_offset}, NOW)
    else:
        disk.restart()
    return disk, places


def logs_of(disk: SimulatedDisk) -> list[str]:
    return [f"data/t-0/{name}" for name in disk.list("data/t-0") if name.endswith(".log")]


def base_of(path: str) -> int:
    return int(path[-24:-4])


def begin_life(disk: SimulatedDisk) -> LogDir:
    """Open the directory, write its checkpoints, and remove the files that no checkpoint covers any more."""
    log_dir = reopened(disk)
    log_dir.checkpoints.write(
        {topic_partition: log.log_end_offset for topic_partition, log in log_dir.logs.items()}
    )
    left = log_dir.take_left_overs()
    if left is not None:
        remove_all(left)
    return log_dir


def damage_of(disk: SimulatedDisk) -> LogDamaged:
    """The reason of the log's refusal, which is the same at the next start."""
    told = []
    for _ in range(2):
        log_dir = reopened(disk)
        assert T0 not in log_dir.logs
        told.append(log_dir.damaged[T0].error)
        log_dir.close({}, NOW)
    assert str(told[0]) == str(told[1])
    return told[0]


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("takes_indexes", [True, False])
def test_any_log_that_is_deleted_is_missed(takes_indexes: bool, cleanly: bool) -> None:
    paths = logs_of(stopped(cleanly=cleanly)[0])
    limits = [*map(base_of, paths[1:]), END]
    for path, limit in zip(paths, limits, strict=True):
        disk, _ = stopped(cleanly=cleanly)
        disk.remove(path, *(path.replace(".log", suffix) for suffix in INDEXES if takes_indexes))
        damage = damage_of(disk)
        assert (damage.start, damage.end, damage.recovery_point) == (base_of(path), limit, END)


@pytest.mark.parametrize("cleanly", [True, False])
def test_several_logs_that_are_deleted_are_missed(cleanly: bool) -> None:
    count = len(logs_of(stopped(cleanly=cleanly)[0]))
    for taken in (slice(0, 2), slice(1, 3), slice(count - 2, count), slice(0, count)):
        disk, _ = stopped(cleanly=cleanly)
        paths = logs_of(disk)[taken]
        disk.remove(*paths, *(path.replace(".log", suffix) for path in paths for suffix in INDEXES))
        assert damage_of(disk).start == base_of(paths[0])


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_log_that_is_cut_between_two_batches_is_missed(cleanly: bool) -> None:
    disk, places = stopped(cleanly=cleanly)
    for path in logs_of(disk):
        size = 0
        inside = [place for place in places if place.base_offset >= base_of(path)]
        for place in inside[:8]:
            disk, _ = stopped(cleanly=cleanly)
            file = disk.open(path)
            if size >= file.size:
                break
            file.truncate(size)
            damage = damage_of(disk)
            assert damage.path == path
            assert damage.start == place.base_offset
            size += len(place.content)


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_directory_that_is_deleted_or_emptied_is_missed(cleanly: bool) -> None:
    for is_emptied in (False, True):
        disk, _ = stopped(cleanly=cleanly)
        disk.remove(*([f"data/t-0/{name}" for name in disk.list("data/t-0")] if is_emptied else ["data/t-0"]))
        damage = damage_of(disk)
        assert (damage.path, damage.start, damage.end) == ("data/t-0", 0, END)


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_segment_of_a_compacted_log_that_is_deleted_or_cut_below_its_index_is_missed(cleanly: bool) -> None:
    paths = logs_of(stopped(cleanly=cleanly, is_keyed=True, is_compacted=True)[0])
    assert len(paths) > 1
    for path in paths:
        disk, _ = stopped(cleanly=cleanly, is_keyed=True, is_compacted=True)
        disk.remove(path)
        assert damage_of(disk).start == base_of(path)
    disk, _ = stopped(cleanly=cleanly, is_keyed=True, is_compacted=True)
    assert not reopened(disk).damaged


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_hole_that_a_cleaner_may_have_left_is_told_and_served(cleanly: bool) -> None:
    for cleaned_to in (END, 0):
        disk, places = stopped(cleanly=cleanly)
        disk.write("data/cleaner-offset-checkpoint", render_offsets({T0: Offset(cleaned_to)}))
        paths = logs_of(disk)
        disk.remove(paths[1], *(paths[1].replace(".log", suffix) for suffix in INDEXES))
        lost = range(base_of(paths[1]), base_of(paths[2]))
        log_dir = reopened(disk)
        if cleaned_to:
            assert read_all(log_dir.logs[T0]) == [place for place in places if place.base_offset not in lost]
            assert list(log_dir.logs[T0].holes) == [(lost.start, lost.stop)]
        else:
            assert T0 in log_dir.damaged


def test_what_retention_has_taken_is_not_missed_however_late_the_crash_comes() -> None:
    """Until the log start offset is checkpointed the files keep their other name, also over restarts."""
    for calls in range(12):
        disk = SimulatedDisk()
        _, log = filled(disk)
        assert log.move_log_start(Offset(70))
        job = log.retire(log.log_end_offset, NOW)
        assert job is not None
        job()
        disk.restart()
        left = iter(range(calls))
        disk.fault = lambda call, _, left=left: (
            "no power" if call in ("remove", "sync") and next(left, None) is None else None
        )
        try:
            begin_life(disk)
        except Exception as error:  # any error of the disk
            assert "no power" in str(error)  # noqa: PT017
        disk.fault = None
        disk.crash(Random(calls))
        log_dir = begin_life(disk)
        assert not log_dir.damaged
        assert 0 < log_dir.logs[T0].log_start_offset <= 70
        assert (
            parse_offsets(disk.read("data/log-start-offset-checkpoint") or b"")[T0]
            == log_dir.logs[T0].log_start_offset
        )
        assert not [name for name in disk.list("data/t-0") if name.endswith(".deleted")]


def test_a_partition_that_was_renamed_to_be_deleted_is_not_missed_however_late_the_crash_comes() -> None:
    for calls in range(8):
        disk = SimulatedDisk()
        log_dir, _ = filled(disk)
        log_dir.delete_job([T0])()
        disk.restart()
        left = iter(range(calls))
        disk.fault = lambda call, _, left=left: (
            "no power" if call in ("remove", "sync") and next(left, None) is None else None
        )
        try:
            begin_life(disk)
        except Exception as error:  # any error of the disk
            assert "no power" in str(error)  # noqa: PT017
        disk.fault = None
        disk.crash(Random(calls))
        log_dir = begin_life(disk)
        assert (log_dir.damaged, log_dir.logs) == ({}, {})
        assert not [name for name in disk.list("data") if name.endswith("-delete")]


def test_a_start_on_a_full_disk_writes_nothing_and_removes_what_no_checkpoint_vouches_for() -> None:
    disk = SimulatedDisk()
    log_dir, log = filled(disk)
    log.move_log_start(Offset(70))
    job = log.retire(log.log_end_offset, NOW)
    assert job is not None
    job()
    for topic_partition in (VOUCHED, LATER):
        other = log_dir.create(topic_partition, TOPIC_ID, SETTINGS, NOW)
        other.append(batch(2), EPOCH, NOW)
        sync(disk, other)
        if topic_partition is VOUCHED:
            log_dir.checkpoints.write({T0: log.log_end_offset})
    disk.write("data/log-start-offset-checkpoint", b"0\n0\n")
    log_dir.delete_job([VOUCHED, LATER])()
    disk.restart()
    disk.remove("data/.sparklog-ballast")
    disk.capacity_bytes = disk.used_bytes
    for _ in range(2):
        disk.fault = lambda call, _: NO_SPACE if call in ("append", "replace", "create") else None
        log_dir = reopened(disk)
        assert not log_dir.damaged
        assert [name.partition(".")[0] for name in disk.list("data") if name.endswith("-delete")] == [
            str(VOUCHED)
        ]
        disk.restart()
    disk.fault = None
    begin_life(disk)
    assert not [
        name
        for name in (*disk.list("data"), *disk.list("data/t-0"))
        if name.endswith(("-delete", ".deleted"))
    ]


def test_a_directory_that_is_missing_and_that_no_topic_claims_is_forgotten() -> None:
    disk, _ = stopped(cleanly=True)
    disk.remove("data/t-0")
    log_dir = reopened(disk)
    assert log_dir.damaged[T0].is_missing
    log_dir.forget_missing(())
    assert not log_dir.damaged
    log_dir.close({}, NOW)
    assert not reopened(disk).damaged


def test_directories_that_are_missing_are_deleted_together() -> None:
    disk = SimulatedDisk()
    log_dir, _ = filled(disk)
    names = [TopicPartition("u", index) for index in range(3)]
    for topic_partition in names:
        log = log_dir.create(topic_partition, TOPIC_ID, SETTINGS, NOW)
        log.append(batch(2), EPOCH, NOW)
        sync(disk, log)
    log_dir.close({}, NOW)
    disk.remove("data/u-0", "data/u-1")
    log_dir = reopened(disk)
    remove_all(log_dir.delete_job(names)())
    assert list(log_dir.damaged) == []
    assert disk.list("data/u-2") == []


def test_a_log_that_cannot_be_renamed_for_want_of_room_goes_without_a_copy() -> None:
    disk, _ = stopped(cleanly=False)
    disk.remove("data/recovery-point-offset-checkpoint")
    first, second, *_ = logs_of(disk)
    disk.open(first).truncate(disk.size(first) - 1)
    disk.fault = lambda call, path: NO_SPACE if call == "rename" and path.endswith(".log") else None
    log_dir = reopened(disk)
    assert T0 in log_dir.logs
    assert [cut.copy for cut in log_dir.cuts if cut.path == second] == [None]
    assert second not in logs_of(disk)


def test_copies_of_what_is_cut_give_way_to_newer_ones_under_their_bound() -> None:
    disk, _ = stopped(cleanly=False)
    disk.remove("data/recovery-point-offset-checkpoint")
    path = logs_of(disk)[-1]
    for name in ("00000000000000000000.log.cut-5-0", "00000000000000000000.log.cut-1600000000000-7"):
        disk.write(f"data/t-0/{name}", bytes(150 << 20))
    file = disk.open(path)
    file.append(b"torn")
    log_dir = reopened(disk)
    (cut,) = log_dir.cuts
    assert (cut.size, cut.is_followed) == (4, False)
    assert [name.partition("cut-")[2] for name in disk.list("data/t-0") if ".cut-" in name] == [
        "1600000000000-7",
        f"{NOW.wall_ms}-{file.size - 4}",
    ]


def test_what_finds_no_room_for_a_copy_is_cut_all_the_same_and_the_event_says_so() -> None:
    disk, places = stopped(cleanly=False)
    path = logs_of(disk)[-1]
    disk.open(path).append(b"torn" * BALLAST_BYTES)  # more than a start on a full disk has space for
    disk.capacity_bytes = disk.used_bytes
    log_dir = reopened(disk)
    assert read_all(log_dir.logs[T0]) == places
    (cut,) = log_dir.cuts
    assert cut.copy is None
    assert cut.fields["copy"] == "none"
    assert cut.reason.endswith("; no room for a copy")
