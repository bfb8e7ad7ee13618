"""A log is truncated while syncs and checkpoints of the removed records are in flight: neither may cover the
records written in their place.
"""

from random import Random

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant, LeaderEpoch, Micros, NodeId, Offset, TopicPartition
from sparklog_server.agenda import Agenda
from sparklog_server.disk.door import StorageError
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.replica.directory import ReplicaDirectory
from sparklog_server.replica.isr import InSyncRules
from sparklog_server.replica.partition import Noted, Partition
from sparklog_server.replica.replica_manager import unreadable
from sparklog_server.replica.traffic import TopicTraffic
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import EPOCH, NOW, SMALL, T0, TOPIC_ID, batch, open_log, read_all, sync, truncate

LATER = Instant(Micros(60_000_000), NOW.wall_ms)


class World:
    """One partition in a directory, as the broker holds it."""

    def __init__(self, topic: str = T0.topic) -> None:
        self.disk = SimulatedDisk()
        self.directory = self._opened()
        log = self.directory.log_dir.create(TopicPartition(topic, 0), TOPIC_ID, SMALL, NOW)
        self.partition = self.opened(log)
        self.directory.partitions[self.partition] = None
        self.lead()

    def _opened(self) -> ReplicaDirectory:
        log_dir = LogDir.open(
            self.disk, "data", node_id=NodeId(1), cluster_id=None, entropy=Random(1).randbytes, defaults=SMALL, now=NOW  # noqa: E501
        )  # fmt: skip
        return ReplicaDirectory(
            log_dir,
            Agenda(),
            checkpoint_interval_ms=5000,
            log_start_interval_ms=5000,
            unsynced_bytes_max=1 << 30,
            reserve_bytes=0,
            failed=[],
            assignments={},
            trace=lambda *_, **__: None,
        )

    def opened(self, log: PartitionLog, *, high_watermark: int = 0, waits_for_sync: bool = True) -> Partition:
        return Partition(
            log,
            self.directory,
            node_id=NodeId(1),
            high_watermark=Offset(high_watermark),
            flush="always" if waits_for_sync else "never",
            replica_count=1,
            parked_max=10,
            rules=InSyncRules(30_000_000),
            noted=Noted(),
            traffic=TopicTraffic(),
        )

    def lead(self, epoch: int = EPOCH) -> bool:
        return self.place(1, epoch)

    def place(self, leader: int, epoch: int) -> bool:
        """Apply an image that names the partition's leader, which is also its only in-sync replica."""
        placement = PartitionImage(
            replicas=(NodeId(1), NodeId(2)),
            isr=(NodeId(leader),),
            leader=NodeId(leader),
            leader_epoch=LeaderEpoch(epoch),
            partition_epoch=0,
            directories=(ZERO_UUID, ZERO_UUID),
        )
        return self.partition.placed(placement, NOW)

    def append(self, count: int, value: bytes) -> None:
        for _ in range(count):
            self.partition.append(batch(value=value), NOW)

    def sync(self) -> None:
        files = self.directory.begin_sync(NOW)
        assert files is not None
        self.disk.sync(files)
        self.directory.synced(NOW)

    def checkpoint(self) -> None:
        self.directory.begin_checkpoint()()
        self.checkpoint_finished()

    def checkpoint_finished(self) -> None:
        self.directory.checkpoint_finished(None, NOW)
        self.run_truncations()

    def cut(self, offset: int) -> bool:
        """Begin to cut the log, and run the job if it has begun."""
        has_begun = self.directory.cut(self.partition, Offset(offset), NOW)
        self.run_truncations()
        return has_begun

    def run_truncations(self) -> None:
        for partition, truncation in self.directory.take_truncations():
            truncation.run()
            self.directory.truncated(partition, truncation, None)

    def filled(self) -> "World":
        """Forty records, synced and checkpointed."""
        self.append(40, b"old")
        self.sync()
        self.checkpoint()
        return self

    def recovered(self, random: Random) -> list[bytes]:
        """Cut the power; returns the records that the log has then."""
        self.disk.crash(random)
        log = self._opened().log_dir.logs[T0]
        return [place.content for place in read_all(log)]


def test_a_sync_that_began_before_a_cut_vouches_for_nothing_written_after_it() -> None:
    log = open_log(disk := SimulatedDisk())
    for _ in range(40):
        log.append(batch(value=b"old"), EPOCH, NOW)
    files, end_offset = log.begin_sync()
    disk.sync(files)
    truncate(log, 10)
    for _ in range(50):
        log.append(batch(value=b"new"), LeaderEpoch(4), NOW)
    truncate(log, 20)
    log.synced(end_offset)
    assert log.recovery_point == 10
    sync(disk, log)
    assert log.recovery_point == 20


def test_a_segment_that_is_cut_while_its_indexes_are_synced_keeps_them_in_memory() -> None:
    log = open_log(disk := SimulatedDisk())
    for _ in range(60):
        log.append(batch(value=b"old"), EPOCH, NOW)
    assert log.has_sealed_unsynced
    files, end_offset = log.begin_sync()
    truncate(log, 10)
    for _ in range(60):
        log.append(batch(value=b"new"), LeaderEpoch(4), NOW)
    disk.sync(files)
    log.synced(end_offset)
    assert log.segments.first_unsettled_offset == 0  # sealed again, and not synced in this state
    assert len(read_all(log, max_bytes=300)) == 70


def test_a_disk_that_fails_behind_a_sync_of_what_was_cut_takes_its_directory_offline() -> None:
    world = World().filled()
    world.append(40, b"more")
    files = world.directory.begin_sync(NOW)
    assert files is not None
    assert world.cut(60)
    world.disk.sync(files)
    world.disk.fault = lambda call, _: "Input/output error" if call in ("list", "remove") else None
    world.directory.synced(NOW)
    assert isinstance(world.directory.error, StorageError)
    assert world.partition.error is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_high_watermark_does_not_pass_what_a_late_sync_has_not_made_durable() -> None:
    world = World()
    world.append(40, b"old")
    files = world.directory.begin_sync(NOW)
    assert files is not None
    assert world.cut(10)
    world.append(50, b"new")
    world.directory.synced(NOW)
    assert world.partition.high_watermark == 10


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_below_the_checkpoint_lowers_it_first(seed: int) -> None:
    world = World().filled()
    assert not world.cut(10)
    assert world.partition.log.log_end_offset == 40
    assert world.directory.is_checkpoint_due(NOW)
    job = world.directory.begin_checkpoint()
    job()
    assert world.partition.log.log_end_offset == 40
    world.checkpoint_finished()
    assert world.partition.log.log_end_offset == 10
    world.append(50, b"new" * 20)
    old, new = batch(value=b"old"), batch(value=b"new" * 20)
    found = world.recovered(Random(seed))
    assert [len(content) for content in found] == [len(old)] * 10 + [len(new)] * (len(found) - 10)


def test_a_cut_within_the_last_durable_batch_lowers_the_checkpoint_too() -> None:
    world = World()
    world.append(8, b"old")
    world.partition.log.append(batch(2), LeaderEpoch(EPOCH), NOW)  # offsets 8 and 9
    world.sync()
    world.checkpoint()
    assert not world.cut(9)
    world.checkpoint()
    assert world.partition.log.log_end_offset == 8
    assert len(world.recovered(Random(1))) == 8


@pytest.mark.parametrize("seed", range(20))
def test_a_checkpoint_on_its_way_when_the_cut_is_asked_for_is_waited_for_and_followed_by_another(
    seed: int,
) -> None:
    world = World()
    world.append(40, b"old")
    world.sync()
    stale = world.directory.begin_checkpoint()
    assert not world.cut(10)
    assert not world.directory.is_checkpoint_due(NOW)  # never two at once
    stale()
    world.checkpoint_finished()
    assert world.partition.log.log_end_offset == 40
    assert world.directory.is_checkpoint_due(NOW)
    world.checkpoint()
    assert world.partition.log.log_end_offset == 10
    world.append(50, b"new" * 20)
    new = len(batch(value=b"new" * 20))
    assert {len(content) for content in world.recovered(Random(seed))[10:]} <= {new}


@pytest.mark.parametrize("seed", range(20))
def test_a_checkpoint_does_not_cover_a_log_that_is_yet_to_begin_anew(seed: int) -> None:
    world = World()  # replica seed 2096: a full disk puts the job off
    world.append(3, b"old")
    world.place(NodeId(2), EPOCH + 1)
    assert world.directory.restart(world.partition, Offset(1000), NOW)
    world.sync()
    world.directory.begin_checkpoint()()
    world.disk.crash(Random(seed))
    log_dir = world._opened().log_dir
    assert not log_dir.damaged
    assert log_dir.logs[T0].log_end_offset == 1000


def test_a_cut_above_what_any_checkpoint_says_is_made_at_once() -> None:
    world = World().filled()
    world.append(5, b"more")
    assert world.cut(42)
    assert world.partition.log.log_end_offset == 42


def test_a_cut_waits_until_compacted_segments_have_their_names() -> None:
    world = World()
    world.append(6, b"x")
    segments = world.partition.log.segments
    segments.is_swapping = True
    assert not world.cut(4)
    world.directory.begin_cuts(NOW)
    assert world.partition.log.log_end_offset == 6
    segments.is_swapping = False
    world.directory.begin_cuts(NOW)
    world.run_truncations()
    assert world.partition.log.log_end_offset == 4


def test_a_cut_is_forgotten_with_its_partition_and_with_its_directory() -> None:
    world = World().filled()
    assert not world.cut(10)
    del world.directory.partitions[world.partition]
    world.checkpoint()
    assert world.partition.log.log_end_offset == 40
    world = World().filled()
    assert not world.cut(10)
    world.directory.storage_failed(StorageError("data", "sync", "EIO"))
    assert world.directory.deadline() is None
    assert world.partition.log.log_end_offset == 40


def test_a_directory_that_fails_while_its_disk_is_full_asks_for_no_turn() -> None:
    directory = World().filled().directory
    directory.room.ran_out(StorageError("data/t-0", "append", "No space left on device", is_full=True), NOW)
    assert directory.deadline() is not None
    directory.storage_failed(StorageError("data", "sync", "Input/output error"))
    assert directory.deadline() is None


def test_a_file_that_cannot_be_read_takes_its_partition_offline_only_while_it_is_one_of_its_own() -> None:
    world = World().filled()
    own = world.partition.log.segments.all[0].file
    removed = world.disk.open(own.path)  # of a deleted topic, or before a compaction, with readers still open
    error = StorageError(own.path, "read", "Input/output error")
    for file, is_closed in ((removed, False), (own, True)):
        unreadable([world.directory], file, error)
        assert world.partition.log.is_closed is is_closed


def test_a_sync_of_a_partition_that_is_removed_meanwhile_is_not_counted() -> None:
    world = World()
    world.append(3, b"v")
    assert world.directory.begin_sync(NOW) is not None
    world.directory.partitions.clear()
    assert world.directory.synced(NOW) == []
    assert world.partition.high_watermark == 0
