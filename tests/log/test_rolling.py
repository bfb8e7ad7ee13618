"""Rolls by age: by the time of the records, or by the clock if they have none."""

import msgspec

from sparklog.model import Instant, Micros, Millis, TopicPartition
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import EPOCH, NOW, SMALL, START_MS, TOPIC_ID, batch, new_log, open_log

AGE_MS = 1000
AGED = msgspec.structs.replace(SMALL, segment_bytes=1 << 20, segment_ms=AGE_MS)


def at(ms: int) -> Instant:
    """This long after the start."""
    return Instant(Micros(ms * 1000), Millis(START_MS + ms))


def bases(log: PartitionLog, disk: SimulatedDisk) -> list[int]:
    """The base offsets of the segments."""
    return [int(name[:20]) for name in disk.list(log.directory) if name.endswith(".log")]


def test_a_record_later_than_segment_ms_behind_the_first_begins_a_segment() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, AGED)
    log.append(batch(timestamp=START_MS), EPOCH, NOW)
    log.append(batch(timestamp=START_MS + AGE_MS), EPOCH, NOW)
    assert bases(log, disk) == [0]
    log.append(batch(timestamp=START_MS + AGE_MS + 1), EPOCH, NOW)
    assert bases(log, disk) == [0, 2]
    log.append(batch(timestamp=START_MS + 2 * AGE_MS), EPOCH, NOW)
    assert bases(log, disk) == [0, 2]


def test_the_clock_alone_closes_nothing_that_has_timestamps() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, AGED)
    log.append(batch(timestamp=START_MS), EPOCH, NOW)
    log.append(batch(timestamp=START_MS), EPOCH, at(100 * AGE_MS))
    assert bases(log, disk) == [0]


def test_records_without_timestamps_age_by_the_clock() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, AGED)
    for ms in (0, AGE_MS, AGE_MS + 1):
        log.append(batch(timestamp=-1), EPOCH, at(ms))
    assert bases(log, disk) == [0, 2]


def test_an_empty_segment_is_never_too_old() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, AGED)
    log.append(batch(timestamp=START_MS + 50 * AGE_MS), EPOCH, at(50 * AGE_MS))
    assert bases(log, disk) == [0]


def test_the_age_is_known_again_after_a_start() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, AGED)
    log.append(batch(timestamp=START_MS), EPOCH, NOW)
    log.close(NOW)
    log = open_log(disk, AGED, was_clean=True, recovery_point=1)
    log.append(batch(timestamp=START_MS + AGE_MS + 1), EPOCH, NOW)
    assert bases(log, disk) == [0, 1]


def test_a_shorter_segment_ms_holds_from_the_next_append_on() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, AGED)
    log.append(batch(timestamp=START_MS), EPOCH, NOW)
    log.settings = msgspec.structs.replace(AGED, segment_ms=10)
    log.append(batch(timestamp=START_MS + 11), EPOCH, NOW)
    assert bases(log, disk) == [0, 1]


def test_batches_of_a_leader_close_a_segment_too() -> None:
    disk = SimulatedDisk()
    log = open_log(disk, AGED)
    source = new_log(AGED)
    for ms in (0, AGE_MS + 1):
        sent = batch(timestamp=START_MS + ms)
        source.append(sent, EPOCH, NOW)
        log.append_as_follower(sent, NOW)
    assert bases(log, disk) == [0, 1]


def rolled_after(partition: int) -> int:
    """The time in ms between the first record of a segment and its roll."""
    settings = msgspec.structs.replace(AGED, segment_jitter_ms=AGE_MS // 2)
    disk = SimulatedDisk()
    directory = f"data/t-{partition}"
    disk.make_directory(directory)
    log = PartitionLog.open(disk, directory, TopicPartition("t", partition), TOPIC_ID, settings, now=NOW)
    for ms in range(AGE_MS + 2):
        log.append(batch(timestamp=START_MS + ms, value=b""), EPOCH, NOW)
        if len(bases(log, disk)) > 1:
            return ms
    raise AssertionError("never")


def test_a_segment_that_begins_with_several_batches_ages_from_the_first() -> None:
    disk = SimulatedDisk()
    log, source = open_log(disk, AGED), new_log(AGED)
    sent = [batch(timestamp=START_MS + ms) for ms in (0, AGE_MS, AGE_MS + 1)]
    for one in sent:
        source.append(one, EPOCH, NOW)
    log.append_as_follower(memoryview(bytearray(sent[0]) + sent[1]), NOW)
    log.append_as_follower(sent[2], NOW)
    assert bases(log, disk) == [0, 2]


def test_jitter_closes_the_segments_of_partitions_at_different_times_but_each_always_at_the_same() -> None:
    ages = [rolled_after(partition) for partition in range(4)]
    assert len(set(ages)) > 1
    assert all(AGE_MS // 2 < age <= AGE_MS + 1 for age in ages)
    assert ages[0] == rolled_after(0)
