"""Snapshots of the metadata log: their triggers, the replay they save, the files removed with them, and
damaged ones.
"""

from functools import partial
from random import Random

import pytest

from sparklog.model import LeaderEpoch, Millis, Offset, OffsetAndEpoch
from sparklog.record.batch import decode_records, iterate_headers
from sparklog.record.control import SnapshotFooter, SnapshotHeader, parse_control
from sparklog_server.disk.door import StorageError
from sparklog_server.log.segment.damage import LogDamaged
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.raft.snapshots import SnapshotDamaged, id_of, is_outdated, listed, read
from sparklog_server.simulation.disk import NO_SPACE, SimulatedDisk
from tests.log.history import Fuse, PowerCut
from tests.raft.world import LOG, NOW, World, topic

HOUR_MS = 3_600_000
BYTES = "metadata.log.max.record.bytes.between.snapshots"
KEEP_BYTES = "metadata.max.retention.bytes"


def snapshots_of(disk: SimulatedDisk) -> list[OffsetAndEpoch]:
    return [found for name in disk.list(LOG) if (found := id_of(name)) is not None]


def state_of(image: MetadataImage) -> tuple[object, ...]:
    """The parts of an image that must be equal after any way of recovery."""
    return image.topics_by_name, image.configs, image.features, image.next_producer_id, image.partition_count


def lived(count: int = 1, **given: str) -> World:
    """A quorum that made `count` topics and as many snapshots, an hour apart."""
    world = World(given={key.replace("_", "."): value for key, value in given.items()})
    world.join()
    for number in range(count):
        world.propose(topic(f"t{number}", 20), number)
        world.settle()
        world.wait(HOUR_MS)
    return world


def test_metadata_that_changed_gets_a_snapshot_within_the_hour_and_metadata_that_did_not_gets_none() -> None:
    world = lived()
    end = world.quorum.image.offset + 1
    assert snapshots_of(world.disk) == [(end, 1)]
    assert world.quorum.deadline_us is None
    world.wait(HOUR_MS)
    assert snapshots_of(world.disk) == [(end, 1)]


def test_many_bytes_call_for_a_snapshot_at_once_also_if_they_were_only_replayed() -> None:
    world = World(given={BYTES: "2000", "metadata.log.max.snapshot.interval.ms": "0"})
    world.join()
    assert snapshots_of(world.disk) == []
    world.propose(topic("t", 50), "t")
    world.settle()
    assert len(snapshots_of(world.disk)) == 1
    world.wait(500)  # the recovery point is written
    assert world.quorum.deadline_us is None

    world = World(given={"metadata.log.max.snapshot.interval.ms": "0"})
    world.join()
    world.propose(topic("t", 50), "t")
    world.stop()
    world.settings = World(given={BYTES: "2000"}).settings
    world.open()
    world.settle()
    assert len(snapshots_of(world.disk)) == 1


def test_a_snapshot_is_a_header_the_image_in_batches_and_a_footer_with_dense_offsets_of_its_own() -> None:
    world = lived()
    (snapshot,) = snapshots_of(world.disk)
    assert snapshot == OffsetAndEpoch(Offset(world.quorum.image.offset + 1), LeaderEpoch(1))
    content = world.disk.read(f"{LOG}/{snapshot.offset:020d}-0000000001.checkpoint")
    assert content is not None
    records = decode_records(content, include_control=True)
    assert [record.offset for record in records] == list(range(len(records)))
    assert parse_control(records[0]) == SnapshotHeader(last_contained_log_timestamp=NOW.wall_ms)
    assert parse_control(records[-1]) == SnapshotFooter()
    assert {header.leader_epoch for _, header in iterate_headers(content)} == {1}
    assert [record.timestamp for record in records] == [world.now.wall_ms] * len(records)


def test_the_next_life_goes_on_from_the_newest_snapshot_and_the_log_behind_it() -> None:
    world = lived(2)
    world.propose(topic("after", 3), "after")
    world.settle()
    before = state_of(world.quorum.image)
    for ending in (world.stop, world.crash):
        ending()
        if ending == world.stop:
            world.open()
        world.settle()
        assert state_of(world.quorum.image) == before
    world.join(b"M")
    assert world.quorum.image.partition_count == 43


def test_after_a_crash_only_what_follows_the_newest_snapshot_is_doubted() -> None:
    world = lived()
    (snapshot,) = snapshots_of(world.disk)
    world.disk.restart()
    path = f"{LOG}/00000000000000000000.log"
    content = world.disk.read(path)
    assert content is not None
    world.disk.write(
        path, content[:80] + bytes([content[80] ^ 1]) + content[81:]
    )  # its CRC would show the damage, were it checked
    world.open()
    world.settle()
    assert world.quorum.image.partition_count == 20
    assert world.quorum.high_watermark > snapshot.offset


def test_too_many_bytes_take_the_oldest_snapshots_and_then_nothing_is_lost() -> None:
    world = lived(4, metadata_max_retention_bytes="1")
    assert len(snapshots_of(world.disk)) == 1
    before = state_of(world.quorum.image)
    world.crash()
    world.settle()
    assert state_of(world.quorum.image) == before
    assert len(lived(4).disk.list(LOG)) > len(world.disk.list(LOG))


def test_too_great_an_age_takes_all_snapshots_but_the_newest() -> None:
    world = lived(3)
    assert len(snapshots_of(world.disk)) == 3
    for _ in range(3):
        world.wait(8 * 24 * HOUR_MS)
    assert len(snapshots_of(world.disk)) == 1


def rolled() -> World:
    """A log of several segments; the first ones were removed with their snapshots."""
    given = {"metadata.log.segment.bytes": str(8 << 20), "metadata.log.segment.ms": "1000", KEEP_BYTES: "1"}
    world = World(given=given)
    world.join()
    for number in range(4):
        world.propose(topic(f"t{number}", 20), number)
        world.settle()
        world.wait(HOUR_MS)
    return world


def test_the_log_before_the_oldest_snapshot_goes_in_whole_segments() -> None:
    world = rolled()
    (snapshot,) = snapshots_of(world.disk)
    segments = [name for name in world.disk.list(LOG) if name.endswith(".log")]
    assert 0 < int(segments[0][:20]) <= snapshot.offset
    assert not [name for name in world.disk.list(LOG) if name.endswith(".deleted")]
    before = state_of(world.quorum.image)
    world.crash()
    world.settle()
    assert state_of(world.quorum.image) == before


def damage(disk: SimulatedDisk, snapshot: OffsetAndEpoch, random: Random) -> None:
    path = f"{LOG}/{snapshot.offset:020d}-{snapshot.epoch:010d}.checkpoint"
    content = bytearray(disk.read(path) or b"")
    if random.random() < 0.5:
        content = content[: random.randrange(len(content))]
    else:
        batches = [position for position, _ in iterate_headers(content)]
        at = random.choice([position + inside for position in batches for inside in (3, 9, 16, 20, 40, 60)])
        content[at] ^= 1 << random.randrange(8)
    disk.write(path, bytes(content))


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_snapshot_is_set_aside_where_an_older_one_and_the_log_tell_the_same(seed: int) -> None:
    world = lived(3)
    before = state_of(world.quorum.image)
    *_, newest = snapshots_of(world.disk)
    world.stop()
    damage(world.disk, newest, Random(seed))
    with pytest.raises(SnapshotDamaged):
        read(world.disk, LOG, newest)
    world.open()
    world.settle()
    assert state_of(world.quorum.image) == before
    assert "metadata-snapshot-damaged" in world.told
    assert newest not in snapshots_of(world.disk)
    assert [name for name in world.disk.list(LOG) if name.endswith(".checkpoint.damaged")]


def test_a_damaged_snapshot_is_refused_where_the_log_before_it_is_gone_with_place_and_remedy() -> None:
    world = rolled()
    (snapshot,) = snapshots_of(world.disk)
    world.stop()
    damage(world.disk, snapshot, Random(1))
    with pytest.raises(LogDamaged, match=r"\.checkpoint: at byte \d+: .* a snapshot that reaches it"):
        world.open()
    assert snapshots_of(world.disk) == [snapshot]


def test_a_log_whose_snapshot_was_removed_is_refused() -> None:
    world = rolled()
    (snapshot,) = snapshots_of(world.disk)
    world.stop()
    world.disk.remove(f"{LOG}/{snapshot.offset:020d}-0000000001.checkpoint")
    with pytest.raises(LogDamaged, match="no snapshot is there"):
        world.open()


def test_a_snapshot_whose_log_is_gone_is_gone_on_from_but_one_whose_log_is_cut_is_refused() -> None:
    world = lived()
    before = state_of(world.quorum.image)
    world.stop()
    world.disk.write(f"{LOG}/00000000000000000000.log", b"")
    with pytest.raises(LogDamaged, match=r"the log ends at offset 0; "):
        world.open()
    world.disk.remove(f"{LOG}/00000000000000000000.log")
    world.open()
    world.settle()
    assert state_of(world.quorum.image) == before
    assert world.quorum.log_end_offset > snapshots_of(world.disk)[0].offset


def test_a_snapshot_that_rotted_does_not_take_the_place_of_an_older_one() -> None:
    world = lived(2)
    before = state_of(world.quorum.image)
    damage(world.disk, snapshots_of(world.disk)[1], Random(2))
    for _ in range(3):
        world.wait(8 * 24 * HOUR_MS)
    assert "metadata-snapshot-damaged" in world.told
    assert not world.halts
    world.crash()
    world.settle()
    assert state_of(world.quorum.image) == before


def test_a_full_disk_costs_the_snapshot_alone_and_a_broken_one_ends_the_node() -> None:
    world = World()
    world.join()
    world.disk.capacity_bytes = world.disk.used_bytes + 100
    world.wait(HOUR_MS)
    assert (snapshots_of(world.disk), world.halts) == ([], [])
    assert not [name for name in world.disk.list(LOG) if "checkpoint.part" in name]
    world.disk.capacity_bytes = None
    world.wait(60_000)
    assert len(snapshots_of(world.disk)) == 1

    world = World()
    world.join()
    world.disk.fault = lambda call, path: "I/O error" if call == "sync" and path.endswith(".part") else None
    world.wait(HOUR_MS)
    assert [halt for halt in world.halts if ".checkpoint.part" in halt]


@pytest.mark.parametrize(("call", "suffix"), [("read", ".log"), ("open", ".checkpoint"), ("list", "")])
def test_a_snapshot_or_a_removal_that_cannot_be_begun_for_want_of_descriptors_is_begun_a_minute_later(
    call: str, suffix: str
) -> None:
    world = lived(1, metadata_max_retention_bytes="1")
    world.propose(topic("u"), "u")
    world.settle()
    world.disk.fault = lambda asked, path: NO_SPACE if asked == call and path.endswith(suffix) else None
    world.wait(HOUR_MS)
    assert (world.halts, world.told.count("metadata-snapshot-failed")) == ([], 1)
    world.disk.fault = None
    world.wait(60_000)
    assert [snapshot.offset for snapshot in snapshots_of(world.disk)] == [world.quorum.image.offset + 1]


def test_names_of_other_files_are_no_snapshots() -> None:
    assert id_of("00000000000000000012-0000000003.checkpoint") == (12, 3)
    for name in (
        "bootstrap.checkpoint",
        "12-3.checkpoint",
        "00000000000000000012-0000000003.checkpoint.part",
        "0" * 20 + "_0.checkpoint",
    ):
        assert id_of(name) is None


def test_what_interrupted_work_left_is_removed() -> None:
    disk = SimulatedDisk()
    disk.make_directory(LOG)
    for name in (
        "00000000000000000012-0000000003.checkpoint.part",
        "00000000000000000012-0000000003-77.checkpoint.part",
    ):
        disk.write(f"{LOG}/{name}", b"")
    disk.write(f"{LOG}/00000000000000000012-0000000003.checkpoint", b"")
    assert listed(disk, LOG) == [(12, 3)]
    assert disk.list(LOG) == ["00000000000000000012-0000000003.checkpoint"]


@pytest.mark.parametrize(
    ("retention_bytes", "retention_ms", "outdated"),
    [(29, -1, True), (30, -1, False), (-1, 99, True), (-1, 100, False), (-1, -1, False)],
)
def test_the_oldest_is_outdated_by_size_or_by_age(
    retention_bytes: int, retention_ms: int, outdated: bool
) -> None:
    is_gone = partial(
        is_outdated,
        log_bytes=10,
        retention_bytes=retention_bytes,
        retention_ms=retention_ms,
        now_ms=Millis(1100),
    )
    assert is_gone([10, 10], Millis(1000)) is outdated
    assert not is_gone([1000], Millis(0))


def _life(world: World, at: int | None) -> dict[str, int]:
    """Topics, snapshots, retention and restarts, with the power cut at one call of the disk; returns the
    topics whose creation was acknowledged.
    """
    promised: dict[str, int] = {}
    world.disk.fault = Fuse(at)
    for round_number in range(3):
        for number in range(2):
            name = f"t{round_number}-{number}"
            world.propose(topic(name, 5), name)
            world.settle()
            promised.update(
                {token: 5 for token in world.replies if isinstance(token, str) and token.startswith("t")}
            )
        world.wait(HOUR_MS)
    world.stop()
    return promised


def _calls() -> int:
    world = _young()
    _life(world, None)
    assert isinstance(world.disk.fault, Fuse)
    return world.disk.fault.count


def _young() -> World:
    world = World(given={"metadata.log.segment.ms": "1000", KEEP_BYTES: "1"})
    world.join()
    return world


def test_a_crash_at_any_call_leaves_a_directory_that_starts_with_all_that_was_promised() -> None:
    for at in range(_calls()):
        world = _young()
        with pytest.raises(PowerCut):
            _life(world, at)
        told = {token for token in world.replies if isinstance(token, str) and token.startswith("t")}
        world.disk.fault = Fuse(at % 7)
        world.disk.crash(Random(at))
        try:
            world.open()  # truncated once more
        except PowerCut:
            pass
        except StorageError as error:
            raise AssertionError(f"call {at}") from error
        world.disk.fault = None
        world.disk.crash(Random(at + 1))
        world.open()
        world.settle()
        assert told <= set(world.quorum.image.topics_by_name), at
        world.wait(HOUR_MS)
        before = state_of(world.quorum.image)
        world.stop()
        world.open()
        world.settle()
        assert state_of(world.quorum.image) == before
