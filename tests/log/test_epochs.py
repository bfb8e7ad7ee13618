"""Leader epochs: their start and end offsets, also after a truncation or a restart."""

import pytest

from sparklog.model import LeaderEpoch, Offset
from sparklog_server.disk.checkpoint import CheckpointCorrupt
from sparklog_server.log.segment.leader_epoch_cache import LeaderEpochCache
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import NOW, batch, open_log, read_all, sync, truncate


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    made = LeaderEpochCache()
    for epoch, start in entries:
        made.assign(LeaderEpoch(epoch), Offset(start))
    return made


def test_the_end_of_an_epoch_is_the_start_of_the_next_known_one() -> None:
    epochs = cache((2, 10), (5, 30), (6, 40))
    end = Offset(50)
    assert epochs.end_offset(LeaderEpoch(2), end) == (30, 2)
    assert epochs.end_offset(LeaderEpoch(4), end) == (30, 2)
    assert epochs.end_offset(LeaderEpoch(5), end) == (40, 5)
    assert epochs.end_offset(LeaderEpoch(6), end) == (50, 6)
    assert epochs.end_offset(LeaderEpoch(1), end) == (10, 1)
    assert epochs.end_offset(LeaderEpoch(7), end) == (-1, -1)
    assert cache().end_offset(LeaderEpoch(0), end) == (-1, -1)


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next() -> None:
    assert cache((1, 0), (2, 10), (3, 10)).entries == [(1, 0), (3, 10)]


def test_an_epoch_keeps_its_first_start() -> None:
    assert cache((1, 0), (1, 5)).entries == [(1, 0)]


def test_entries_that_contradict_a_new_one_go() -> None:
    assert cache((1, 0), (4, 10), (6, 20), (5, 15)).entries == [(1, 0), (4, 10), (5, 15)]


def test_truncation_forgets_at_either_end() -> None:
    epochs = cache((1, 0), (2, 10), (3, 20))
    epochs.truncate_end(Offset(20))
    assert epochs.entries == [(1, 0), (2, 10)]
    epochs.truncate_start(Offset(10))
    assert epochs.entries == [(2, 10)]
    epochs.truncate_start(Offset(12))
    assert epochs.entries == [(2, 12)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1\n0\n",
        b"0\n2\n1 0\n",
        b"0\n1\n1\n",
        b"0\n1\nx y\n",
        b"0\n2\n3 0\n2 5\n",
        b"0\n1\n-1 0\n",
        b"\xff",
    ],
)
def test_a_checkpoint_that_is_not_one_is_refused(content: bytes) -> None:
    with pytest.raises(CheckpointCorrupt):
        LeaderEpochCache.parse(content)


def test_epochs_reach_the_disk_with_the_sync_that_covers_their_records() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for epoch in (1, 1, 4, 4, 9):
        log.append(batch(), LeaderEpoch(epoch), NOW)
    sync(disk, log)
    assert disk.read("data/t-0/leader-epoch-checkpoint") == b"0\n3\n1 0\n4 2\n9 4\n"


def test_epochs_of_records_whose_deletion_a_crash_has_undone_are_read_from_the_batches() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for at in range(200):
        log.append(batch(2), LeaderEpoch(at // 50), NOW)
    log.move_log_start(Offset(250))
    sync(disk, log)
    assert disk.read("data/t-0/leader-epoch-checkpoint") == b"0\n2\n2 250\n3 300\n"
    assert log.recovery_point == 400
    found = open_log(disk, recovery_point=400)
    assert found.epochs.entries == [(0, 0), (1, 100), (2, 200), (3, 300)]
    assert found.end_offset_for_epoch(LeaderEpoch(1)) == (200, 1)


def test_an_epoch_without_records_is_forgotten_by_a_restart() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append(batch(), LeaderEpoch(1), NOW)
    log.assign_epoch(LeaderEpoch(2), log.log_end_offset)
    assert log.latest_epoch == 2
    log.close(NOW)
    assert open_log(disk, was_clean=True).latest_epoch == 1


def test_truncation_takes_records_epochs_and_indexes_back_together() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for at in range(200):
        log.append(batch(2), LeaderEpoch(at // 50), NOW)
    sync(disk, log)
    places = read_all(log)
    truncate(log, 131)  # in the middle of a batch, which is removed whole
    assert log.log_end_offset == 130
    assert read_all(log) == places[:65]
    assert log.epochs.entries == [(0, 0), (1, 100)]
    assert log.recovery_point == 130
    for _ in range(100):
        log.append(batch(2), LeaderEpoch(7), NOW)
    sync(disk, log)
    assert [place.base_offset for place in read_all(log)] == list(range(0, 330, 2))
    log.close(NOW)
    assert [place.base_offset for place in read_all(open_log(disk, was_clean=True))] == list(range(0, 330, 2))


@pytest.mark.parametrize("offset", [1, 2])
def test_a_truncation_without_records_to_remove_still_removes_the_epochs_from_there(offset: int) -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    log.append(batch(1), LeaderEpoch(4), NOW)
    log.assign_epoch(LeaderEpoch(5), Offset(offset))  # of a leader that wrote nothing
    sync(disk, log)
    assert log.begin_truncation(Offset(offset)) is None
    assert log.epochs.entries == [(4, 0)]
    sync(disk, log)
    assert disk.read("data/t-0/leader-epoch-checkpoint") == b"0\n1\n4 0\n"


def test_truncation_to_zero_leaves_an_empty_log() -> None:
    disk = SimulatedDisk()
    log = open_log(disk)
    for _ in range(100):
        log.append(batch(), LeaderEpoch(1), NOW)
    truncate(log, 0)
    assert (log.log_end_offset, read_all(log), log.latest_epoch) == (0, [], -1)
    log.append(batch(), LeaderEpoch(2), NOW)
    assert len(read_all(log)) == 1
