"""Elections: pre-votes, votes, resignation, and how long a quorum is without a leader."""

import pytest

from sparklog.effects import Loss
from sparklog.errors import ErrorCode
from sparklog.model import LeaderEpoch, NodeId, Offset, OffsetAndEpoch, Uuid
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.vote import VoteRequest, VoteResponse
from sparklog_server.raft import requests
from sparklog_server.raft.election_state import FILE_NAME, parse
from sparklog_server.raft.peers import Purpose
from sparklog_server.raft.requests import Myself
from sparklog_server.raft.roles import LEGAL, Role
from tests.raft.quorum_world import CLUSTER, MS, Machine, QuorumWorld

SEEDS = pytest.mark.parametrize("seed", range(20))
STATE = f"/data/__cluster_metadata-0/{FILE_NAME}"


def led(seed: int = 0, *, count: int = 3, voters: int | None = None) -> tuple[QuorumWorld, Machine]:
    """A quorum with a leader that has committed a record, and followers that know it."""
    world = QuorumWorld(seed, count=count, voters=voters).start()
    world.run_until(lambda: world.leader is not None)
    world.run(700)
    leader = world.leader
    assert leader is not None
    leader.append(b"first")
    world.run(1000)
    assert all(machine.high_watermark == leader.high_watermark > 1 for machine in world.machines.values())
    return world, leader


def others(world: QuorumWorld, machine: Machine) -> list[Machine]:
    return [other for other in world.machines.values() if other is not machine]


def epochs(world: QuorumWorld) -> list[int]:
    return [machine.node.epoch for machine in world.machines.values() if machine.node is not None]


def vote(
    candidate: int, epoch: int, end: tuple[int, int], voter: int = 1, *, is_pre_vote: bool = False
) -> VoteRequest:
    return requests.vote_request(
        Myself(CLUSTER, NodeId(candidate), Uuid(bytes([64 + candidate]) * 16)),
        NodeId(voter),
        Uuid(bytes([64 + voter]) * 16),
        LeaderEpoch(epoch),
        OffsetAndEpoch(Offset(end[0]), LeaderEpoch(end[1])),
        is_pre_vote=is_pre_vote,
    )


def of_directories(request: VoteRequest, *, voter: bytes = b"", candidate: bytes = b"") -> VoteRequest:
    """The same request to another directory of the voter, or from another one of the candidate."""
    data = request.topics[0].partitions[0]
    data.voter_directory_id = voter or data.voter_directory_id
    data.replica_directory_id = candidate or data.replica_directory_id
    return request


def answer_to(world: QuorumWorld, machine: Machine, request: VoteRequest) -> tuple[int, bool] | None:
    """The error and the vote; None while the answer waits for the disk."""
    answers: list[VoteResponse] = []
    assert machine.node is not None
    machine.node.handle_vote(request, answers.append, world.instant)
    if not answers:
        return None
    data = answers[0].topics[0].partitions[0]
    return data.error_code, data.vote_granted


@SEEDS
def test_three_empty_nodes_have_a_leader_within_a_quarter_of_a_second(seed: int) -> None:
    world = QuorumWorld(seed).start()
    assert world.run_until(lambda: world.leader is not None) < 250


@SEEDS
def test_a_killed_leader_is_replaced_within_a_quarter_of_a_second(seed: int) -> None:
    world, leader = led(seed)
    leader.stop(power=False)
    assert world.run_until(lambda: world.leader is not None) < 250


@SEEDS
def test_a_paused_leader_is_replaced_within_three_and_a_half_seconds_and_then_follows(seed: int) -> None:
    world, leader = led(seed)
    leader.is_paused = True
    assert world.run_until(lambda: world.leader is not leader) < 3500
    leader.resume()
    world.run(2000)
    assert leader.node is not None
    assert leader.node.role is Role.FOLLOWER
    world.settle()


@SEEDS
def test_a_pre_vote_without_answers_lasts_one_to_two_election_timeouts(seed: int) -> None:
    world, leader = led(seed)
    cut_off = others(world, leader)[0]
    world.cut([cut_off.id], [other.id for other in others(world, cut_off)])
    node = cut_off.node
    assert node is not None
    world.run_until(lambda: node.role is Role.PROSPECTIVE)
    lasted_ms = world.run_until(lambda: node.role is not Role.PROSPECTIVE)
    assert 1 <= lasted_ms * MS / world.config.election_timeout_us <= 2


@SEEDS
def test_a_voter_that_was_cut_off_does_not_depose_the_leader(seed: int) -> None:
    world, leader = led(seed)
    cut_off = others(world, leader)[0]
    world.cut([cut_off.id], [other.id for other in others(world, cut_off)])
    world.run(20_000)
    assert cut_off.node is not None
    assert cut_off.node.epoch == 1
    assert world.seen["prospective"] > 10
    before = parse(cut_off.disk.read(STATE))
    world.heal()
    world.run(5000)
    assert world.leader is leader
    assert epochs(world) == [1, 1, 1]
    assert parse(cut_off.disk.read(STATE)) == before  # a pre-vote leaves no trace


@SEEDS
def test_a_voter_that_hears_no_leader_but_is_heard_does_not_disturb_the_quorum(seed: int) -> None:
    world, leader = led(seed)
    deaf = others(world, leader)[0]
    world.cut([leader.id], [deaf.id], one_way=True)
    world.run(30_000)
    assert world.leader is leader
    assert epochs(world) == [1, 1, 1]


def test_a_leader_that_no_majority_fetches_from_resigns_within_one_and_a_half_fetch_timeouts() -> None:
    world, leader = led()
    world.cut([leader.id], [other.id for other in others(world, leader)])
    world.run(3100)
    assert leader.node is not None
    assert not leader.node.is_leader


@SEEDS
def test_a_leader_that_resigns_is_followed_by_the_voter_with_the_longest_log(seed: int) -> None:
    world, leader = led(seed)
    behind, ahead = others(world, leader)
    world.cut([behind.id], [leader.id])
    leader.append(b"not on all")
    world.run(20)
    world.heal()
    assert leader.node is not None
    leader.node.resign(world.instant)
    leader.after()
    assert leader.node.role is Role.RESIGNED
    assert world.run_until(lambda: world.leader is not None) < 1200
    assert world.leader is ahead or epochs(world) != [2, 2, 2]
    world.settle()


def test_a_leader_whose_sync_hangs_resigns_and_does_not_stand_again_before_it_returns() -> None:
    world, leader = led()
    leader.is_stuck = True
    leader.append(b"never synced here")
    world.run(2500)
    assert world.leader is not leader
    assert "raft-resigned" in leader.told
    world.run(10_000)
    assert leader.node is not None
    assert leader.node.role is not Role.CANDIDATE
    assert world.leader is not None
    world.settle()


def test_a_vote_is_heard_after_it_is_synced_and_a_second_candidate_is_refused() -> None:
    world, _ = led()
    voter = world.machines[NodeId(1)]
    for other in others(world, voter):
        other.stop(power=False)
    voter.is_stuck = True
    assert answer_to(world, voter, vote(2, 9, (100, 1))) is None
    voter.release()
    world.run(20)
    assert parse(voter.disk.read(STATE)).voted_id == 2
    assert answer_to(world, voter, vote(3, 9, (100, 1))) == (ErrorCode.NONE, False)
    assert answer_to(world, voter, vote(2, 9, (100, 1))) == (ErrorCode.NONE, True)
    voter.stop(power=True)
    voter.start()
    assert answer_to(world, voter, vote(3, 9, (100, 1))) == (ErrorCode.NONE, False)
    assert answer_to(world, voter, vote(2, 9, (100, 1))) == (ErrorCode.NONE, True)


def test_a_vote_is_for_a_directory_and_not_for_another_one_of_the_same_candidate() -> None:
    world, leader = led()
    voter = others(world, leader)[0]
    for other in others(world, voter):
        other.stop(power=False)
    assert answer_to(world, voter, vote(2, 9, (100, 1), voter.id)) is None
    world.run(20)
    assert answer_to(world, voter, vote(2, 9, (100, 1), voter.id)) == (ErrorCode.NONE, True)
    wiped = of_directories(vote(2, 9, (100, 1), voter.id), candidate=b"?" * 16)
    assert answer_to(world, voter, wiped) == (ErrorCode.NONE, False)


def test_a_candidate_with_a_shorter_log_gets_no_vote() -> None:
    world, leader = led()
    voter = others(world, leader)[0]
    assert voter.node is not None
    end, epoch = voter.node.log_end_offset, voter.node.durable.last_epoch
    leader.stop(power=False)
    voter.node.lost(leader.id, Purpose.REPLICATION, Loss.REFUSED, world.instant)
    shorter = vote(7, 1, (end - 1, epoch), voter.id, is_pre_vote=True)
    assert answer_to(world, voter, shorter) == (ErrorCode.NONE, False)


def test_a_pre_vote_is_refused_while_the_leader_is_alive_and_granted_when_its_link_is_refused() -> None:
    world, leader = led()
    voter = others(world, leader)[0]
    asked = vote(7, 1, (100, 1), voter.id, is_pre_vote=True)
    assert answer_to(world, voter, asked) == (ErrorCode.NONE, False)
    assert voter.node is not None
    voter.node.lost(leader.id, Purpose.REPLICATION, Loss.REFUSED, world.instant)
    assert answer_to(world, voter, asked) == (ErrorCode.NONE, True)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(2, 0, (5, 0)), ErrorCode.INVALID_REQUEST),  # a vote in the epoch of its own last record
        (vote(2, 1, (5, 2), is_pre_vote=True), ErrorCode.INVALID_REQUEST),
        (vote(2, 1, (-1, 0)), ErrorCode.INVALID_REQUEST),
        (vote(2, 5, (5, 1), voter=3), ErrorCode.INVALID_VOTER_KEY),
        (of_directories(vote(2, 5, (5, 1)), voter=b"?" * 16), ErrorCode.INVALID_VOTER_KEY),
    ],
)
def test_a_vote_that_cannot_be_meant_is_refused(request_: VoteRequest, error: ErrorCode) -> None:
    world = QuorumWorld()
    machine = world.machines[NodeId(1)]
    machine.start()
    answers: list[VoteResponse] = []
    assert machine.node is not None
    machine.node.handle_vote(request_, answers.append, world.instant)
    machine.after()
    world.run(15)
    found = [answer.topics[0].partitions[0] for answer in answers]
    assert [(data.error_code, data.vote_granted) for data in found] == [(error, False)]


def test_requests_of_another_cluster_or_log_are_refused() -> None:
    world, leader = led()
    assert leader.node is not None
    answers: list[VoteResponse] = []
    strange = vote(2, 5, (5, 1))
    strange.cluster_id = "another"
    leader.node.handle_vote(strange, answers.append, world.instant)
    other_log = vote(2, 5, (5, 1))
    other_log.topics[0].topic_name = "t"
    leader.node.handle_vote(other_log, answers.append, world.instant)
    assert [answer.error_code for answer in answers] == [
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REQUEST,
    ]
    assert epochs(world) == [1, 1, 1]


def test_a_fetch_of_another_epoch_or_at_a_follower_names_the_leader() -> None:
    world, leader = led()
    follower = others(world, leader)[0]
    answers: list[FetchResponse] = []
    me = Myself(CLUSTER, NodeId(9), Uuid(b"9" * 16))
    end = OffsetAndEpoch(Offset(0), LeaderEpoch(0))
    for machine, epoch in ((leader, 0), (leader, 2), (follower, 1)):
        assert machine.node is not None
        asked = requests.fetch_request(me, LeaderEpoch(epoch), end, Offset(0), 1 << 20)
        machine.node.handle_fetch(asked, answers.append, world.instant)
    found = [answer.responses[0].partitions[0] for answer in answers]
    assert [data.error_code for data in found] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]
    assert {data.current_leader and data.current_leader.leader_id for data in found} == {leader.id}


def test_a_voter_whose_disk_was_replaced_is_an_observer_and_its_old_vote_is_not_given_again() -> None:
    world, leader = led()
    wiped = others(world, leader)[0]
    wiped.stop(power=False)
    wiped.disk = type(wiped.disk)()
    wiped.directory_id = Uuid(b"w" * 16)
    wiped.start()
    world.run(3000)
    assert wiped.node is not None
    assert wiped.node.role is Role.FOLLOWER
    assert answer_to(world, wiped, vote(7, 5, (100, 1), wiped.id)) is None  # the epoch first goes to disk
    assert wiped.node.role is Role.UNATTACHED
    leader.stop(power=False)
    world.run(8000)
    assert world.leader is None  # one of three voters is left
    assert Role.CANDIDATE not in (wiped.node.role, Role.PROSPECTIVE)


@SEEDS
def test_an_observer_follows_and_finds_the_next_leader(seed: int) -> None:
    world, leader = led(seed, count=4, voters=3)
    observer = world.machines[NodeId(4)]
    assert observer.node is not None
    assert observer.node.role is Role.FOLLOWER
    leader.stop(power=False)
    world.run_until(lambda: world.leader is not None)
    assert world.leader is not observer
    world.settle()


@SEEDS
def test_votes_that_split_again_and_again_end_with_a_leader(seed: int) -> None:
    world = QuorumWorld(seed, count=5)
    world.sync_us_max = 150_000
    world.start()
    world.run_until(lambda: world.leader is not None, 15_000)


def test_the_table_of_moves_leads_every_role_to_an_end() -> None:
    assert set(LEGAL) == set(Role)
    assert all(Role.CLOSED in LEGAL[role] for role in Role if role is not Role.CLOSED)
    assert [role for role in Role if Role.LEADER in LEGAL[role]] == [Role.CANDIDATE]


def test_the_only_voter_waits_for_room_in_one_epoch() -> None:
    world = QuorumWorld(count=1)
    machine = world.machines[NodeId(1)]
    machine.start()
    machine.fill()
    world.run(5000)
    assert machine.node is not None
    assert (machine.node.role, machine.node.epoch) == (Role.CANDIDATE, 1)
    machine.disk.fault = None
    world.run(1100)
    assert machine.node.is_leader
    assert machine.node.epoch == 1
    assert machine.high_watermark > 0
    assert world.events < 50
