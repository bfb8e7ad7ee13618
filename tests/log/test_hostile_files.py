"""Files that the broker did not write: damaged, missing, or foreign."""

from random import Random

import pytest

from sparklog.model import Millis, Offset
from sparklog.record.batch import iterate_headers
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import (
    DIRECTORY,
    EPOCH,
    NOW,
    SMALL,
    START_MS,
    Place,
    batch,
    offset_for_timestamp,
    open_log,
    read_all,
    sync,
)
from tests.log.test_crashes import agrees_with_a_full_scan


def stopped(disk: SimulatedDisk, count: int = 120) -> list[Place]:
    """A log of several segments, stopped cleanly."""
    log = open_log(disk)
    for at in range(count):
        log.append(batch(2, timestamp=START_MS + at, producer_id=7, sequence=2 * at), EPOCH, NOW)
    places = read_all(log)
    log.close(NOW)
    return places


def names(disk: SimulatedDisk, suffix: str) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(suffix)]


def reopened(disk: SimulatedDisk) -> PartitionLog:
    return open_log(disk, was_clean=True)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("damage", ["missing", "empty", "random", "cut"])
def test_a_log_answers_right_whatever_became_of_its_side_files(suffix: str, damage: str) -> None:
    random = Random(5)
    disk = SimulatedDisk()
    places = stopped(disk)
    for path in names(disk, suffix):
        content = disk.read(path) or b""
        if damage == "missing":
            disk.remove(path)
        elif damage == "empty":
            disk.write(path, b"")
        elif damage == "random":
            disk.write(path, random.randbytes(len(content)))
        else:
            disk.write(path, content[: len(content) // 2 + 1])
    log = reopened(disk)
    assert read_all(log) == places
    if suffix != ".timeindex" or damage in ("missing", "cut"):
        agrees_with_a_full_scan(log, places)
    last = batch(2, timestamp=START_MS + 119, producer_id=7, sequence=238)
    assert log.append(last, EPOCH, NOW).is_duplicate


def test_index_entries_that_point_into_batches_are_not_believed() -> None:
    disk = SimulatedDisk()
    places = stopped(disk)
    for path in names(disk, ".index"):
        content = bytearray(disk.read(path) or b"")
        for at in range(7, len(content), 8):
            content[at] ^= 1
        disk.write(path, bytes(content))
    assert read_all(reopened(disk), max_bytes=600) == places
    agrees_with_a_full_scan(reopened(disk), places)


def test_orphans_and_left_overs_are_removed_and_strangers_left_alone() -> None:
    disk = SimulatedDisk()
    places = stopped(disk)
    for name in (f"{77:020d}.index", f"{0:020d}.log.deleted", f"{0:020d}.index.tmp", f"{5:020d}.log.cleaned"):
        disk.write(f"{DIRECTORY}/{name}", b"left over")
    disk.write(f"{DIRECTORY}/notes.txt", b"hello")
    log = reopened(disk)
    assert read_all(log) == places
    left = disk.list(DIRECTORY)
    assert "notes.txt" in left
    assert not [name for name in left if "left over" in str(disk.read(f"{DIRECTORY}/{name}"))]


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_behind_the_recovery_point_are_cut_away(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk()
    log = open_log(disk)
    for at in range(40):
        log.append(batch(2, timestamp=START_MS + at), EPOCH, NOW)
    sync(disk, log)
    places = read_all(log)
    disk.restart()
    path = names(disk, ".log")[-1]
    disk.open(path).append(
        random.choice(
            [
                random.randbytes(random.randrange(1, 300)),
                bytes(100),
                places[0].content,
                places[-1].content[:80],
            ]
        )
    )
    again = open_log(disk, recovery_point=80)
    assert read_all(again) == places
    again.append(batch(), EPOCH, NOW)
    assert len(read_all(again)) == 41


def test_a_segment_of_garbage_alone_becomes_an_empty_log() -> None:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    disk.open(f"{DIRECTORY}/{0:020d}.log", create=True).append(bytes(range(256)) * 10)
    log = open_log(disk)
    assert (log.log_end_offset, read_all(log)) == (0, [])
    log.append(batch(), EPOCH, NOW)
    assert len(read_all(log)) == 1


def test_a_clean_mark_over_a_torn_tail_is_not_believed() -> None:
    disk = SimulatedDisk()
    places = stopped(disk)
    path = names(disk, ".log")[-1]
    file = disk.open(path)
    file.truncate(file.size - 10)
    log = reopened(disk)
    assert read_all(log) == places[:-1]


def test_a_log_start_beyond_the_end_empties_the_log_after_a_crash() -> None:
    disk = SimulatedDisk()
    stopped(disk)
    log = open_log(disk, log_start_offset=1000)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert log.append(batch(), EPOCH, NOW).base_offset == 1000


def test_a_lost_segment_in_the_middle_cuts_what_was_not_durable_behind_it() -> None:
    disk = SimulatedDisk()
    places = stopped(disk)
    second, third = names(disk, ".log")[1:3]
    disk.remove(second)
    log = open_log(disk, recovery_point=0)
    assert read_all(log) == [place for place in places if place.base_offset < int(second[-24:-4])]
    assert third not in names(disk, ".log")


def test_rot_below_the_recovery_point_costs_no_other_batch() -> None:
    """A failing CRC in durable records is left to readers: truncating there would lose acknowledged
    records.
    """
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig())
    for _ in range(20):
        log.append(batch(), EPOCH, NOW)
    sync(disk, log)
    disk.restart()
    path = names(disk, ".log")[0]
    content = bytearray(disk.read(path) or b"")
    content[len(content) // 2 - 10] ^= 1
    disk.write(path, bytes(content))
    assert open_log(disk, recovery_point=20).log_end_offset == 20
    assert open_log(disk, recovery_point=0).log_end_offset == 9


@pytest.mark.parametrize("offset", [1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_a_rotten_offset_in_a_segment_without_indexes_costs_no_other_batch(offset: int) -> None:
    """No CRC covers the base offset of a batch."""
    disk = SimulatedDisk()
    log = open_log(disk, LogConfig(segment_bytes=40_000))
    for at in range(900):
        log.append(batch(timestamp=START_MS + at), EPOCH, NOW)
    log.close(NOW)
    path, following = names(disk, ".log")[:2]
    content = bytearray(disk.read(path) or b"")
    positions = [position for position, _ in iterate_headers(bytes(content))]
    for position in positions[5:-5]:
        content[position : position + 8] = offset.to_bytes(8, "big", signed=True)
    disk.write(path, bytes(content))
    disk.remove(path.replace(".log", ".index"), path.replace(".log", ".timeindex"))
    log = open_log(disk, log.settings, was_clean=True)
    last = Offset(len(positions) - 1)
    found = log.read(last, log.log_end_offset, 1 << 20, at_least_one=True)
    assert found is not None
    assert found.read().endswith(bytes(content[positions[-1] :]))
    assert offset_for_timestamp(log, Millis(START_MS + last + 1), log.log_end_offset) == (
        START_MS + last + 1,
        last + 1,
        EPOCH,
    )
    assert following.endswith(f"{last + 1:020d}.log")


def test_small_segments_opened_with_other_settings_read_the_same() -> None:
    disk = SimulatedDisk()
    places = stopped(disk)
    log = open_log(
        disk,
        LogConfig(segment_bytes=1 << 20, index_interval_bytes=SMALL.index_interval_bytes * 4),
        was_clean=True,
    )
    assert read_all(log) == places
