"""After a clean stop the start scans no log, and the files are those that Kafka would leave."""

from struct import iter_unpack

from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import DIRECTORY, EPOCH, NOW, START_MS, batch, open_log, read_all, sync


def filled(disk: SimulatedDisk) -> PartitionLog:
    log = open_log(disk)
    for at in range(150):
        log.append(batch(2, timestamp=START_MS + at), EPOCH, NOW)
    return log


def test_opening_after_a_clean_stop_reads_only_the_tail_of_the_active_segment() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    places = read_all(log)
    log.close(NOW)
    touched: list[str] = []

    def note(call: str, path: str) -> None:
        if call == "read" and path.endswith(".log"):
            touched.append(path)

    disk.fault = note
    again = open_log(disk, was_clean=True)
    disk.fault = None
    active = [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(".log")][-1]
    assert set(touched) == {active}
    assert len(touched) <= 5
    assert read_all(again) == places
    assert again.recovery_point == again.log_end_offset == 300


def test_every_segment_has_the_index_entries_that_kafka_would_write() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    places = read_all(log)
    log.close(NOW)
    bases = [int(name[:20]) for name in disk.list(DIRECTORY) if name.endswith(".log")]
    for base, limit in zip(bases, [*bases[1:], 1 << 40], strict=True):
        expected, times, position, since = [], [], 0, 0
        inside = [place for place in places if base <= place.base_offset < limit]
        for place in inside:
            if since > 256:
                expected.append((place.next_offset - 1 - base, position))
                times.append((START_MS + (place.base_offset // 2) + 1, place.next_offset - 1 - base))
                since = 0
            since += len(place.content)
            position += len(place.content)
        last = inside[-1]
        closing = (START_MS + (last.base_offset // 2) + 1, last.next_offset - 1 - base)
        if closing not in times:
            times.append(closing)
        assert list(iter_unpack(">ii", disk.read(f"{DIRECTORY}/{base:020d}.index") or b"")) == expected
        assert list(iter_unpack(">qi", disk.read(f"{DIRECTORY}/{base:020d}.timeindex") or b"")) == times


def test_a_clean_stop_leaves_a_snapshot_at_each_roll_and_at_the_end() -> None:
    disk = SimulatedDisk()
    log = filled(disk)
    log.close(NOW)
    listed = disk.list(DIRECTORY)
    bases = [name[:20] for name in listed if name.endswith(".log")]
    assert [name[:20] for name in listed if name.endswith(".snapshot")] == [*bases[1:], f"{300:020d}"]
    assert disk.read(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n3 0\n"


def test_stopping_twice_without_an_append_writes_nothing_anew() -> None:
    disk = SimulatedDisk()
    filled(disk).close(NOW)
    again = open_log(disk, was_clean=True)
    replaced: list[str] = []
    disk.fault = lambda call, path: replaced.append(path) if call == "replace" else None
    again.close(NOW)
    assert replaced == []


def test_an_empty_log_stops_and_opens_cleanly() -> None:
    disk = SimulatedDisk()
    open_log(disk).close(NOW)
    again = open_log(disk, was_clean=True)
    assert again.log_end_offset == 0
    again.append(batch(), EPOCH, NOW)
    assert len(read_all(again)) == 1


def test_a_log_stopped_and_opened_many_times_goes_on_as_one() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for life in range(12):
        for at in range(11):
            log.append(batch(1, timestamp=START_MS + life * 100 + at), EPOCH, NOW)
        if life % 3 == 0:
            sync(disk, log)
        log.close(NOW)
        log = open_log(disk, was_clean=True)
    assert [place.base_offset for place in read_all(log)] == list(range(132))
    snapshots = [name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]
    segments = [name for name in disk.list(DIRECTORY) if name.endswith(".log")]
    assert len(snapshots) <= len(segments)
