"""The first start in a directory that `kafka-storage format` has prepared: bootstrap.checkpoint."""

import pytest

from sparklog.record.control import SnapshotFooter, SnapshotHeader, build_control
from sparklog.wire.schema import Message
from sparklog_server.metadata.records import FeatureLevelRecord, UserScramCredentialRecord, batch_of
from sparklog_server.metadata.scram_secret import scram_secret_of
from sparklog_server.simulation.disk import SimulatedDisk
from tests.raft.world import NOW, World

FILE = "/data/bootstrap.checkpoint"
ALICE = UserScramCredentialRecord(
    name="alice", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
)
LEVEL_30 = FeatureLevelRecord(name="metadata.version", feature_level=30)


def formatted(*records: Message) -> SimulatedDisk:
    """A disk with such a file as Kafka's BatchFileWriter leaves it."""
    disk = SimulatedDisk()
    disk.make_directory("/data")
    header = build_control(SnapshotHeader(last_contained_log_timestamp=5), timestamp_ms=5, leader_epoch=0)
    data = batch_of(records, NOW.wall_ms)
    data[:8] = (1).to_bytes(8, "big")
    end = 1 + len(records)
    footer = build_control(SnapshotFooter(), timestamp_ms=5, base_offset=end, leader_epoch=0)
    disk.write(FILE, bytes(header + data + footer))
    return disk


def levels(*pairs: tuple[str, int]) -> list[FeatureLevelRecord]:
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in pairs]


def test_a_cluster_begins_with_the_levels_and_credentials_of_its_format() -> None:
    features = levels(("group.version", 1), ("kraft.version", 1), ("transaction.version", 1))
    world = World(disk=formatted(LEVEL_30, *features, ALICE))
    world.settle()
    image = world.quorum.image
    assert dict(image.features) == {"metadata.version": 30, "group.version": 1, "transaction.version": 1}
    assert ALICE in image.carried.values()
    assert scram_secret_of(image)
    assert "feature-level-lowered" not in world.told


def test_a_feature_of_kafka_that_this_release_does_not_know_is_left_out_and_logged() -> None:
    features = levels(("share.version", 1), ("streams.version", 1), ("eligible.leader.replicas.version", 1))
    world = World(disk=formatted(LEVEL_30, *features))
    world.settle()
    image = world.quorum.image
    assert dict(image.features) == {"metadata.version": 30, "eligible.leader.replicas.version": 1}
    assert world.told.count("feature-level-lowered") == 2


@pytest.mark.parametrize("level", [0, 1])
def test_a_cluster_with_eligible_leader_replicas_begins_with_its_minimum_of_replicas(level: int) -> None:
    features = levels(("eligible.leader.replicas.version", level))
    world = World(disk=formatted(LEVEL_30, *features))
    world.settle()
    minimum = world.quorum.image.broker_config("").get("min.insync.replicas")
    assert minimum == ("1" if level else None)


def test_the_file_counts_once() -> None:
    world = World(disk=formatted(LEVEL_30))
    world.join()
    world.stop()
    world.disk.remove(FILE)
    world.disk.write(FILE, b"of another cluster")
    world.open()
    world.settle()
    assert dict(world.quorum.image.features) == {"metadata.version": 30}
    assert world.halts == []


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([*levels(("metadata.version", 29))], "metadata.version is 29, and this release supports 30"),
        ([*levels(("group.version", 1))], "metadata.version is 0"),
    ],
)
def test_a_file_of_another_metadata_version_is_refused(records: list[Message], said: str) -> None:
    world = World(disk=formatted(*records))
    world.settle()
    (halt,) = world.halts
    assert said in halt
    assert FILE in halt


def test_a_damaged_file_is_refused_with_its_position() -> None:
    disk = formatted(LEVEL_30)
    content = bytearray(disk.read(FILE) or b"")
    content[-90] ^= 1
    disk.write(FILE, bytes(content))
    world = World(disk=disk)
    world.settle()
    (halt,) = world.halts
    assert f"read snapshot {FILE}: at byte" in halt


def test_a_crash_before_the_records_are_durable_reads_the_file_again() -> None:
    for seed in range(12):
        world = World(seed, disk=formatted(LEVEL_30, *levels(("group.version", 1))))
        for _ in range(seed % 4):
            world.sync()
        world.crash()
        world.settle()
        assert dict(world.quorum.image.features) == {"metadata.version": 30, "group.version": 1}
