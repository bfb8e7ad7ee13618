"""Changes of the voters: their checks and errors, and what becomes of them."""

from collections.abc import Callable

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Millis, NodeId, Offset, Uuid
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from sparklog.wire.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from sparklog.wire.messages.update_raft_voter import Listener as Updated
from sparklog.wire.schema import Message
from sparklog_server.raft.peers import Endpoint
from sparklog_server.raft.quorum_config import QuorumConfig
from sparklog_server.raft.roles import Role
from sparklog_server.raft.snapshots import write_bootstrap
from sparklog_server.raft.voter_history import Membership
from sparklog_server.raft.voters import VoterSet, endpoint_of
from tests.raft.quorum_world import CLUSTER, Machine, QuorumWorld

LOG = "/data/__cluster_metadata-0"


def cluster(voters: int, observers: int = 0, *, is_joining: bool = False) -> QuorumWorld:
    """Formatted voters, and observers that know where the voters are; the world has a leader."""
    world = QuorumWorld(count=voters + observers)
    world.has_endpoints = True
    world.config = QuorumConfig(is_joining=is_joining)
    world.voters = VoterSet({})
    world.bootstrap = tuple(Endpoint(f"n{node}", node) for node in world.machines)
    named = VoterSet(
        {NodeId(n): world.machines[NodeId(n)].directory_id for n in range(1, voters + 1)},
        {NodeId(n): endpoint_of(f"n{n}", n) for n in range(1, voters + 1)},
    )
    for machine in list(world.machines.values())[:voters]:
        machine.disk.make_directory(LOG)
        write_bootstrap(machine.disk, LOG, Membership(Offset(-1), named, 1).control(), wall_ms=Millis(0))
    world.start()
    world.run_until(lambda: world.leader is not None and world.leader.high_watermark > 0)
    world.run(600)
    return world


def leader_of(world: QuorumWorld) -> Machine:
    world.run_until(lambda: world.leader is not None)
    assert world.leader is not None
    return world.leader


def addition(machine: Machine) -> AddRaftVoterRequest:
    listener = Listener("CONTROLLER", f"n{machine.id}", machine.id)
    return AddRaftVoterRequest(CLUSTER, 1_000, machine.id, machine.directory_id, [listener])


def removal(machine: Machine) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(CLUSTER, machine.id, machine.directory_id)


def asked(machine: Machine, request: Message) -> list[Message]:
    """Give a request to a node; its answer comes into the list."""
    node, world, answers = machine.node, machine.world, list[Message]()
    assert node is not None
    if isinstance(request, AddRaftVoterRequest):
        machine.run(lambda: node.handle_add_raft_voter(request, answers.append, world.instant))
    elif isinstance(request, RemoveRaftVoterRequest):
        machine.run(lambda: node.handle_remove_raft_voter(request, answers.append, world.instant))
    else:
        assert isinstance(request, UpdateRaftVoterRequest)
        machine.run(lambda: node.handle_update_raft_voter(request, answers.append, world.instant))
    return answers


def answer_of(machine: Machine, request: Message, ms: int = 5_000) -> int:
    """The error of the answer to a request."""
    answers = asked(machine, request)
    machine.world.run_until(lambda: bool(answers), ms)
    code: int = answers[0].error_code  # type: ignore[attr-defined]
    return code


def voters_of(machine: Machine) -> list[int]:
    assert machine.node is not None
    return sorted(machine.node.state.voters.directories)


def test_an_observer_is_added_and_a_voter_is_removed() -> None:
    world = cluster(1, 2)
    for node in (NodeId(2), NodeId(3)):
        assert answer_of(leader_of(world), addition(world.machines[node])) == ErrorCode.NONE
    world.settle()
    assert [voters_of(machine) for machine in world.machines.values()] == [[1, 2, 3]] * 3
    assert answer_of(leader_of(world), removal(world.machines[NodeId(3)])) == ErrorCode.NONE
    world.settle()
    assert [voters_of(machine) for machine in world.machines.values()] == [[1, 2]] * 3


def test_an_added_voter_counts_at_once_and_a_quorum_of_two_stops_without_it() -> None:
    world = cluster(1, 1)
    leader, other = world.machines[NodeId(1)], world.machines[NodeId(2)]
    assert answer_of(leader, addition(other)) == ErrorCode.NONE
    other.stop(power=False)
    before = leader.high_watermark
    leader.append(b"r")
    world.run(1_000)
    assert leader.high_watermark == before
    other.start()
    world.settle()
    assert leader.high_watermark > before


def test_a_leader_that_is_removed_commits_that_and_resigns() -> None:
    world = cluster(3)
    leader = leader_of(world)
    assert answer_of(leader, removal(leader)) == ErrorCode.NONE
    world.run_until(lambda: world.leader not in (None, leader))
    world.settle()
    assert leader.node is not None
    assert leader.node.role is Role.FOLLOWER
    assert {tuple(voters_of(machine)) for machine in world.machines.values()} == {
        tuple(node for node in (1, 2, 3) if node != leader.id)
    }


def test_a_leader_whose_own_removal_reached_no_voter_leads_again_to_commit_it() -> None:
    world = cluster(2, 1)
    leader = leader_of(world)
    other = world.machines[NodeId(3 - leader.id)]
    world.cut([leader.id], [other.id, 3])
    asked(leader, removal(leader))
    world.run_until(lambda: voters_of(leader) == [other.id])
    world.run_until(lambda: leader.node is not None and not leader.node.is_leader)
    world.heal()
    world.run_until(lambda: voters_of(other) == [other.id])
    world.run_until(lambda: world.leader is other)
    world.settle()


def test_a_voter_whose_disk_is_lost_is_replaced() -> None:
    world = cluster(3)
    leader = leader_of(world)
    lost = next(machine for machine in world.machines.values() if machine is not leader)
    former = removal(lost)
    lost.lose_disk()
    lost.start()
    world.run(500)
    assert answer_of(leader, addition(lost)) == ErrorCode.DUPLICATE_VOTER
    assert answer_of(leader, removal(lost)) == ErrorCode.VOTER_NOT_FOUND
    assert answer_of(leader, former) == ErrorCode.NONE
    assert answer_of(leader, addition(lost)) == ErrorCode.NONE
    world.settle()
    assert lost.node is not None
    assert lost.node.state.is_voter


def test_controllers_join_by_themselves_also_with_a_lost_disk() -> None:
    world = cluster(1, 2, is_joining=True)
    world.run_until(lambda: voters_of(world.machines[NodeId(1)]) == [1, 2, 3])
    world.settle()
    lost = next(machine for machine in world.machines.values() if machine is not leader_of(world))
    lost.lose_disk()
    lost.start()
    world.run_until(lambda: lost.node is not None and lost.node.state.is_voter)
    world.settle()


def test_a_voter_with_another_address_tells_it() -> None:
    world = cluster(3)
    voter = next(machine for machine in world.machines.values() if machine is not leader_of(world))
    voter.stop(power=False)
    world.moved[voter.id] = "elsewhere"
    voter.start()

    def is_told() -> bool:
        node = leader_of(world).node
        return node is not None and node.state.voters.endpoint(voter.id) == ("elsewhere", voter.id)

    world.run_until(is_told)
    world.settle()


def _unknown_cluster(world: QuorumWorld) -> tuple[Machine, Message]:
    request = addition(world.machines[NodeId(4)])
    request.cluster_id = "another"
    return leader_of(world), request


def _not_led(world: QuorumWorld) -> tuple[Machine, Message]:
    return world.machines[NodeId(4)], addition(world.machines[NodeId(4)])


def _no_directory(world: QuorumWorld) -> tuple[Machine, Message]:
    return leader_of(world), AddRaftVoterRequest(
        CLUSTER, 1_000, 4, listeners=[Listener("CONTROLLER", "n4", 4)]
    )


def _no_listener(world: QuorumWorld) -> tuple[Machine, Message]:
    request = addition(world.machines[NodeId(4)])
    request.listeners[0].name = "EXTERNAL"
    return leader_of(world), request


def _down(world: QuorumWorld) -> tuple[Machine, Message]:
    world.machines[NodeId(4)].stop(power=False)
    return leader_of(world), addition(world.machines[NodeId(4)])


def _not_fetching(world: QuorumWorld) -> tuple[Machine, Message]:
    request = addition(world.machines[NodeId(4)])
    request.voter_directory_id = Uuid(b"x" * 16)
    return leader_of(world), request


def _too_old(world: QuorumWorld) -> tuple[Machine, Message]:
    world.kraft_versions = (0, 0)
    return leader_of(world), addition(world.machines[NodeId(4)])


def _listener_of_clients(world: QuorumWorld) -> tuple[Machine, Message]:
    world.serves_votes = False
    return leader_of(world), addition(world.machines[NodeId(4)])


def _another_pending(world: QuorumWorld) -> tuple[Machine, Message]:
    asked(*_not_fetching(world))
    return leader_of(world), removal(world.machines[NodeId(1)])


def _unknown_voter(world: QuorumWorld) -> tuple[Machine, Message]:
    return leader_of(world), removal(world.machines[NodeId(4)])


def _no_voter(world: QuorumWorld) -> tuple[Machine, Message]:
    return leader_of(world), RemoveRaftVoterRequest(CLUSTER, -1)


def _update(world: QuorumWorld, node: int, epoch: int, level: int = 1) -> UpdateRaftVoterRequest:
    directory = world.machines[NodeId(node)].directory_id
    listeners = [Updated("CONTROLLER", f"n{node}", node)]
    return UpdateRaftVoterRequest(CLUSTER, epoch, node, directory, listeners, KRaftVersionFeature(0, level))


def _old_epoch(world: QuorumWorld) -> tuple[Machine, Message]:
    return leader_of(world), _update(world, 1, 0)


def _update_of_no_voter(world: QuorumWorld) -> tuple[Machine, Message]:
    leader = leader_of(world)
    assert leader.node is not None
    return leader, _update(world, 4, leader.node.epoch)


def _update_without_support(world: QuorumWorld) -> tuple[Machine, Message]:
    leader = leader_of(world)
    assert leader.node is not None
    return leader, _update(world, 1, leader.node.epoch, 0)


@pytest.mark.parametrize(
    ("case", "code"),
    [
        (_unknown_cluster, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (_not_led, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_no_directory, ErrorCode.INVALID_REQUEST),
        (_no_listener, ErrorCode.INVALID_REQUEST),
        (_down, ErrorCode.REQUEST_TIMED_OUT),
        (_not_fetching, ErrorCode.REQUEST_TIMED_OUT),
        (_too_old, ErrorCode.INVALID_REQUEST),
        (_listener_of_clients, ErrorCode.INVALID_REQUEST),
        (_another_pending, ErrorCode.REQUEST_TIMED_OUT),
        (_unknown_voter, ErrorCode.VOTER_NOT_FOUND),
        (_no_voter, ErrorCode.INVALID_REQUEST),
        (_old_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        (_update_of_no_voter, ErrorCode.VOTER_NOT_FOUND),
        (_update_without_support, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_may_not_be_is_refused(
    case: Callable[[QuorumWorld], tuple[Machine, Message]], code: ErrorCode
) -> None:
    world = cluster(3, 1)
    assert answer_of(*case(world)) == code
    world.settle()
    assert voters_of(leader_of(world)) == [1, 2, 3]


def test_a_voter_that_a_majority_needs_is_not_removed_before_the_one_that_is_down() -> None:
    world = cluster(3)
    leader = leader_of(world)
    down, other = (machine for machine in world.machines.values() if machine is not leader)
    down.stop(power=False)
    world.run(2_500)
    assert answer_of(leader, removal(other)) == ErrorCode.INVALID_REQUEST
    assert answer_of(leader, removal(down)) == ErrorCode.NONE
    assert answer_of(leader, removal(other)) == ErrorCode.NONE
    assert voters_of(leader) == [leader.id]


def test_the_only_voter_is_not_removed() -> None:
    world = cluster(1, 1)
    assert answer_of(leader_of(world), removal(world.machines[NodeId(1)])) == ErrorCode.INVALID_REQUEST


def test_a_quorum_of_kraft_version_0_changes_no_voters() -> None:
    world = QuorumWorld(count=4, voters=3)
    world.has_endpoints = True
    world.bootstrap = tuple(Endpoint(f"n{node}", node) for node in world.machines)
    world.start()
    world.run(1_000)
    leader = leader_of(world)
    assert answer_of(leader, addition(world.machines[NodeId(4)])) == ErrorCode.UNSUPPORTED_VERSION
    assert answer_of(leader, removal(world.machines[NodeId(1)])) == ErrorCode.UNSUPPORTED_VERSION
    assert leader.node is not None
    assert answer_of(leader, _update(world, 1, leader.node.epoch)) == ErrorCode.NONE


def test_a_change_that_is_not_committed_in_time_goes_with_its_leader() -> None:
    world = cluster(3, 1)
    leader = leader_of(world)
    world.cut([leader.id], [node for node in (1, 2, 3, 4) if node != leader.id])
    answers = asked(leader, removal(leader))
    world.run_until(lambda: bool(answers))
    assert answers[0].error_code == ErrorCode.REQUEST_TIMED_OUT  # type: ignore[attr-defined]
    world.run_until(lambda: world.leader not in (None, leader))
    world.heal()
    world.settle()
    assert voters_of(leader_of(world)) == [1, 2, 3]
