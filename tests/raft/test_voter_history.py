"""The voters as records of the log: from a formatted directory to every node and snapshot."""

from sparklog.model import LeaderEpoch, Millis, NodeId, Offset, OffsetAndEpoch, Uuid
from sparklog.record.control import build_control
from sparklog_server.raft.peers import Endpoint
from sparklog_server.raft.roles import Role
from sparklog_server.raft.snapshots import file_name, read, write_bootstrap
from sparklog_server.raft.voter_history import Membership, VoterHistory
from sparklog_server.raft.voters import VoterSet, endpoint_of
from tests.raft.quorum_world import QuorumWorld

LOG = "/data/__cluster_metadata-0"


def voters(*nodes: int) -> VoterSet:
    return VoterSet(
        {NodeId(node): Uuid(bytes([64 + node]) * 16) for node in nodes},
        {NodeId(node): endpoint_of(f"n{node}", node) for node in nodes},
    )


def formatted(count: int = 3, *, observers: int = 0) -> QuorumWorld:
    """Directories that were formatted with kraft.version 1; observers know a bootstrap server only."""
    world = QuorumWorld(count=count + observers)
    world.voters = VoterSet({})
    world.bootstrap = tuple(Endpoint(f"n{node}", node) for node in range(1, count + 1))
    control = Membership(Offset(-1), voters(*range(1, count + 1)), 1).control()
    for machine in list(world.machines.values())[:count]:
        machine.disk.make_directory(LOG)
        write_bootstrap(machine.disk, LOG, control, wall_ms=Millis(0))
    return world.start()


def test_a_record_of_voters_counts_from_its_append_until_it_is_truncated() -> None:
    history = VoterHistory(voters(1))
    batch = bytes(build_control(voters(1, 2).record(), timestamp_ms=0, base_offset=7, leader_epoch=1))
    assert history.appended(batch)
    assert history.at(Offset(7)).voters == voters(1)
    assert history.at(Offset(8)).voters == voters(1, 2)
    history.truncate(Offset(8))
    assert history.at(Offset(9)).voters == voters(1, 2)
    history.truncate(Offset(7))
    assert history.latest.voters == voters(1)


def test_the_first_leader_writes_the_voters_of_its_formatted_directory_into_the_log() -> None:
    world = formatted(observers=1)
    world.run(3000)
    for machine in world.machines.values():
        assert machine.node is not None
        latest = machine.node.state.history.latest
        assert (latest.voters, latest.kraft_version) == (voters(1, 2, 3), 1)
        assert latest.offset >= 0
    assert world.machines[NodeId(4)].node is not None
    assert world.machines[NodeId(4)].high_watermark > 0
    world.settle()


def test_voters_survive_restarts_snapshots_and_the_loss_of_the_log_before_them() -> None:
    world = formatted(observers=1)
    world.run_until(lambda: world.leader is not None)
    world.machines[NodeId(4)].stop(power=False)
    for _ in range(60):
        assert world.leader is not None
        world.leader.append(b"r" * 100)
        world.run(3)
    world.run(600)
    for machine in world.machines.values():
        machine.snapshot()
    snapshot = world.machines[NodeId(1)].node
    assert snapshot is not None
    found = read(world.machines[NodeId(1)].disk, LOG, snapshot.snapshots[-1])
    assert found.control == tuple(Membership(Offset(0), voters(1, 2, 3), 1).control())
    world.settle()
    for machine in world.machines.values():
        machine.stop(power=True)
        machine.start()
        assert machine.node is not None
        assert machine.node.state.voters == voters(1, 2, 3)
        assert machine.node.log.log_start_offset > 20
    world.settle()


def test_the_snapshot_of_a_formatted_directory_is_never_sent() -> None:
    world = formatted(observers=1)
    world.run(2000)
    observer = world.machines[NodeId(4)]
    assert observer.node is not None
    assert observer.node.role is Role.FOLLOWER
    name = file_name(OffsetAndEpoch(Offset(0), LeaderEpoch(0)))
    assert name == "00000000000000000000-0000000000.checkpoint"
    assert observer.disk.read(f"{LOG}/{name}") is None
    assert observer.node.log.log_start_offset == 0


def test_a_quorum_of_one_grows_no_voter_by_an_observer_that_follows() -> None:
    world = formatted(1, observers=2)
    world.run(2000)
    assert world.leader is world.machines[NodeId(1)]
    world.settle()
