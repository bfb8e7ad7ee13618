"""The rule of the committed end, with one replica and with three."""

from sparklog.model import Instant, LeaderEpoch, Micros, Millis, NodeId, Offset
from sparklog_server.replica.leader import LeaderReplica

NOW = Instant(Micros(1), Millis(1))
LEO = Offset(100)


def leader(*, followers: tuple[int, ...] = (), isr: tuple[int, ...] = (1,)) -> LeaderReplica:
    return LeaderReplica(
        LeaderEpoch(1),
        followers=tuple(map(NodeId, followers)),
        isr=tuple(map(NodeId, isr)),
        acknowledged_end=Offset(0),
        now=NOW,
    )


def test_a_lone_leader_commits_what_it_may_promise_alone() -> None:
    alone = leader()
    assert alone.own_end_moved(Offset(7)) == 7


def test_the_committed_end_is_the_lowest_end_among_the_in_sync_replicas() -> None:
    three = leader(followers=(2, 3), isr=(1, 2, 3))
    assert three.own_end_moved(Offset(10)) == 0
    assert three.follower_fetched(NodeId(2), Offset(8), LEO, NOW) == 0
    assert three.follower_fetched(NodeId(3), Offset(5), LEO, NOW) == 5


def test_a_follower_outside_the_isr_does_not_hold_the_committed_end_back() -> None:
    two_of_three = leader(followers=(2, 3), isr=(1, 2))
    two_of_three.own_end_moved(Offset(10))
    assert two_of_three.follower_fetched(NodeId(2), Offset(9), LEO, NOW) == 9


def test_a_follower_cannot_commit_what_the_leader_has_not_acknowledged() -> None:
    two = leader(followers=(2,), isr=(1, 2))
    two.own_end_moved(Offset(3))
    assert two.follower_fetched(NodeId(2), Offset(10), LEO, NOW) == 3


def test_the_committed_end_never_moves_back() -> None:
    alone = leader()
    alone.own_end_moved(Offset(9))
    assert alone.own_end_moved(Offset(4)) == 9
    two = leader(followers=(2,), isr=(1, 2))
    two.own_end_moved(Offset(9))
    two.follower_fetched(NodeId(2), Offset(8), LEO, NOW)
    assert two.follower_fetched(NodeId(2), Offset(6), LEO, NOW) == 8
