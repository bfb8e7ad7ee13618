"""The commit rule of a majority, of which a quorum of one is a case."""

from sparklog.model import LeaderEpoch, Micros, NodeId, Offset, Uuid
from sparklog_server.raft.election_state import ElectionState, parse
from sparklog_server.raft.leading import Leading
from sparklog_server.raft.voters import VoterSet
from tests.raft.world import NOW

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def voters(*nodes: NodeId) -> VoterSet:
    return VoterSet({node: Uuid(bytes([node]) * 16) for node in nodes})


def leading(start: int, *nodes: NodeId) -> Leading:
    return Leading(LeaderEpoch(5), Offset(start), voters(*nodes), own=ONE, now=NOW)


def fetched(leader: Leading, node: NodeId, offset: int) -> bool:
    return leader.follower_fetched(node, Uuid(bytes([node]) * 16), Offset(offset), Offset(100), NOW)


def test_a_single_voter_commits_what_it_has_synced() -> None:
    leader = leading(0, ONE)
    assert leader.own_synced(Offset(3))
    assert leader.high_watermark == 3


def test_two_of_three_commit() -> None:
    leader = leading(0, ONE, TWO, THREE)
    assert not leader.own_synced(Offset(9))
    assert fetched(leader, TWO, 4)
    assert leader.high_watermark == 4
    assert fetched(leader, THREE, 7)
    assert leader.high_watermark == 7


def test_of_two_voters_both_are_needed() -> None:
    leader = leading(0, ONE, TWO)
    assert not leader.own_synced(Offset(9))
    assert fetched(leader, TWO, 2)


def test_records_of_an_earlier_epoch_on_a_majority_are_not_committed_by_themselves() -> None:
    # Figure 8 of the Raft paper: another leader could still overwrite them.
    leader = leading(10, ONE, TWO, THREE)
    leader.own_synced(Offset(11))
    assert not fetched(leader, TWO, 10)
    assert leader.high_watermark == 0
    assert fetched(leader, TWO, 11)
    assert leader.high_watermark == 11


def test_the_high_watermark_never_goes_back() -> None:
    leader = leading(0, ONE, TWO, THREE)
    leader.own_synced(Offset(9))
    fetched(leader, TWO, 9)
    assert not fetched(leader, TWO, 1)
    assert leader.high_watermark == 9


def test_the_vote_file_is_kafkas() -> None:
    state = ElectionState(
        LeaderEpoch(2), NodeId(-1), ONE, Uuid(b"'\xc6\x80<\x07\xdcD\x2b\x1f\xb2\x23T\x0fz\xcc\x81")
    )
    content = b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPAfcRCsfsiNUD3rMgQ","data_version":1}\n'  # noqa: E501
    assert state.render() == content
    assert parse(content) == state


def test_a_vote_file_of_version_0_is_read() -> None:
    content = b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}'  # noqa: E501
    assert parse(content) == ElectionState(epoch=LeaderEpoch(2), leader_id=ONE)


def test_an_observer_that_has_not_fetched_for_five_minutes_is_forgotten() -> None:
    leader = leading(0, ONE)
    fetched(leader, TWO, 3)
    fetched(leader, TWO, 5)
    (key,), (replica,) = leader.observers(NOW), leader.observers(NOW).values()
    assert (key[0], replica.end_offset) == (TWO, 5)
    later = NOW._replace(mono_us=Micros(NOW.mono_us + 300_000_000))
    assert leader.observers(later) == {}


def test_the_observers_that_are_described_are_bounded() -> None:
    leader = leading(0, ONE)
    for node in range(2, 1_200):
        leader.follower_fetched(NodeId(node), Uuid(b"d" * 16), Offset(0), Offset(0), NOW)
    assert len(leader.observers(NOW)) == 1_000
