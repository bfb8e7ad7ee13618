"""The kraft.version of a node that is alone: 1 in a new directory, 0 in one of an earlier release."""

from msgspec import structs

from sparklog.errors import ErrorCode
from sparklog.model import LeaderEpoch, Millis, NodeId, Offset
from sparklog.record.batch import decode_records
from sparklog.record.control import (
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    Voter,
    VoterEndpoint,
    build_control,
    parse_control,
)
from sparklog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from sparklog_server.continuations import Continuations
from sparklog_server.log.log_config import LogConfig
from sparklog_server.metadata.features import KRAFT_VERSION
from sparklog_server.metadata.records import FeatureLevelRecord, batch_of
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.snapshots import read
from sparklog_server.raft.voter_history import Membership
from sparklog_server.raft.voters import VoterSet
from sparklog_server.simulation.disk import NO_SPACE, SimulatedDisk
from tests.raft.world import DIRECTORY, LOG, NOW, World, untold

OWN = NodeId(1)


def membership(world: World) -> Membership:
    return world.quorum.raft.state.history.latest


def upgraded(world: World, level: int = 1, *, validate_only: bool = False) -> int:
    """Let the controller raise the level; returns the error code."""
    update = FeatureUpdateKey(KRAFT_VERSION, level, upgrade_type=1 if level else 2)
    world.propose(UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only), "raised")
    world.settle()
    return world.replies["raised"].error_code


def of_an_earlier_release(disk: SimulatedDisk) -> None:
    """The metadata log of a lone broker before kraft.version 1: no snapshot, no record of voters."""
    disk.make_directory(LOG)
    voter = Voter(1, DIRECTORY)
    change = LeaderChange(version=0, leader_id=1, voters=[voter], granting_voters=[voter])
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
    ]
    features = batch_of(records, Millis(0), leader_epoch=LeaderEpoch(1))
    features[:8] = (1).to_bytes(8, "big")
    log = build_control(change, timestamp_ms=0, leader_epoch=1) + features
    disk.write(f"{LOG}/{0:020d}.log", bytes(log))
    disk.write(f"{LOG}/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    disk.write(
        f"{LOG}/quorum-state",
        b'{"leaderId":-1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"RERERERERERERERERERERA",'
        b'"data_version":1}\n',
    )


def test_the_log_of_a_new_node_begins_with_its_voter_in_the_batch_of_the_first_leader() -> None:
    world = World()
    world.settle()
    (batches, *_) = world.quorum.raft.durable.read(Offset(0), Offset(3))
    control = [parse_control(record) for record in decode_records(batches, include_control=True)][:3]
    assert isinstance(control[0], LeaderChange)
    assert control[1:] == Membership(Offset(0), VoterSet({OWN: DIRECTORY}), 1).control()
    assert membership(world) == Membership(Offset(2), VoterSet({OWN: DIRECTORY}, {OWN: ()}), 1)


def test_a_crash_at_any_time_of_the_first_start_leaves_kraft_version_1() -> None:
    for seed in range(20):
        world = World(seed)
        for _ in range(seed % 4):
            world.sync()
        world.crash()
        world.settle()
        assert membership(world).kraft_version == 1
        assert membership(world).offset > 0


def test_later_epochs_and_snapshots_keep_the_voters_without_new_records() -> None:
    world = World(given={"metadata.log.max.record.bytes.between.snapshots": "1"})
    world.join()
    world.settle()
    written = membership(world)
    world.stop()
    world.open()
    world.settle()
    assert world.quorum.epoch == 2
    assert structs.replace(membership(world), offset=Offset(0)) == structs.replace(written, offset=Offset(0))
    snapshots = world.quorum.raft.snapshots
    assert snapshots
    found = read(world.disk, LOG, snapshots[-1])
    assert isinstance(found.control[0], KRaftVersion)
    assert isinstance(found.control[1], KRaftVoters)
    records = world.quorum.raft.durable.read_control(world.quorum.raft.log.log_start_offset)
    assert sum(len(decode_records(batch, include_control=True)) for batch in records) <= 4


def test_a_leader_with_other_endpoints_writes_them_once() -> None:
    world = World()
    world.stop()
    reached = (VoterEndpoint("CONTROLLER", "b.example", 9093),)
    for epoch in (2, 3):
        node = RaftNode.open(
            world.disk,
            "/data",
            LogConfig(),
            node_id=OWN,
            directory_id=DIRECTORY,
            voters=VoterSet({}),
            endpoints=reached,
            continuations=(continuations := Continuations()),
            trace=untold,
            now=NOW,
        )
        node.start(NOW)
        world.continuations, world.effects = continuations, continuations.effects
        world.settle()
        assert node.epoch == epoch
        assert node.state.leading is not None
        assert node.state.voters == VoterSet({OWN: DIRECTORY}, {OWN: reached})
        assert (node.state.history.latest.offset < node.state.leading.epoch_start_offset) == (epoch == 3)
        node.close(NOW)
        world.disk.restart()


def test_the_directory_of_an_earlier_release_opens_and_stays_at_kraft_version_0() -> None:
    disk = SimulatedDisk()
    of_an_earlier_release(disk)
    older = World(disk=disk)
    older.join()
    assert (older.quorum.epoch, older.quorum.image.features["metadata.version"]) == (2, 30)
    assert membership(older) == Membership(Offset(-1), VoterSet({OWN: DIRECTORY}), 0)
    older.stop()
    older.open()
    older.settle()
    assert membership(older).kraft_version == 0
    assert 1 in older.quorum.image.brokers


def test_the_upgrade_of_an_earlier_directory_appends_its_voter_in_one_batch() -> None:
    disk = SimulatedDisk()
    of_an_earlier_release(disk)
    world = World(disk=disk)
    world.join()
    end_offset = world.quorum.log_end_offset
    assert upgraded(world, validate_only=True) == 0
    assert world.quorum.log_end_offset == end_offset
    assert upgraded(world) == 0
    assert membership(world) == Membership(Offset(end_offset + 1), VoterSet({OWN: DIRECTORY}, {OWN: ()}), 1)
    (batch,) = list(world.quorum.raft.durable.read_control(end_offset))
    assert len(decode_records(batch, include_control=True)) == 2
    assert world.quorum.kraft_version == 1
    assert upgraded(world) == 0  # again, which appends nothing
    assert upgraded(world, level=0) == ErrorCode.INVALID_UPDATE_VERSION
    assert world.quorum.log_end_offset == end_offset + 3
    world.stop()
    world.open()
    world.settle()
    assert world.quorum.kraft_version == 1


def test_an_upgrade_is_whole_or_absent_after_a_crash() -> None:
    seen = set()
    for seed in range(20):
        world = World(seed, given={"controller.quorum.voters": "1@127.0.0.1:9093"})
        world.join()
        world.propose(UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(KRAFT_VERSION, 1)]), "raised")
        for _ in range(seed % 3):
            world.sync()
        world.crash()
        world.settle()
        voters = VoterSet({OWN: DIRECTORY}, {OWN: ()} if membership(world).kraft_version else {})
        assert membership(world).voters == voters
        seen.add(membership(world).kraft_version)
    assert seen == {0, 1}


def test_an_upgrade_without_room_changes_nothing() -> None:
    world = World(given={"controller.quorum.voters": "1@127.0.0.1:9093"})
    world.join()
    world.disk.fault = lambda call, _path: NO_SPACE if call == "append" else None
    assert upgraded(world) == ErrorCode.INVALID_UPDATE_VERSION
    assert membership(world).kraft_version == 0
    world.disk.fault = None
    assert upgraded(world) == 0


def test_a_node_with_voters_in_its_settings_stays_at_kraft_version_0() -> None:
    world = World(given={"controller.quorum.voters": "1@127.0.0.1:9093"})
    world.settle()
    assert membership(world).kraft_version == 0
