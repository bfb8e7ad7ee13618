"""The committed end, the caught-up rule and the ISR of a leadership."""

import msgspec
import pytest

from sparklog.errors import ErrorCode
from sparklog.model import ZERO_UUID, Instant, LeaderEpoch, Micros, Millis, NodeId, Offset, Uuid
from sparklog_server.metadata.entries import BrokerImage, PartitionImage
from sparklog_server.replica.isr import InSyncReplicas, InSyncRules, IsrState
from sparklog_server.replica.leader import LeaderReplica, PartitionUnavailable

SECOND = 1_000_000
LAG_US = 30 * SECOND
NOW = Instant(Micros(100 * SECOND), Millis(1))


def at(seconds: int) -> Instant:
    return Instant(Micros(NOW.mono_us + seconds * SECOND), NOW.wall_ms)


def brokers(*, fenced: tuple[int, ...] = (), stopping: tuple[int, ...] = ()) -> InSyncRules:
    """Brokers 1 to 3, registered with the epochs 11 to 13."""
    rules = InSyncRules(LAG_US)
    rules.brokers = {
        NodeId(node): BrokerImage(
            NodeId(node),
            10 + node,
            Uuid(bytes(16)),
            (),
            None,
            node in fenced,
            node in stopping,
            (),
            (),
            {},
            Offset(0),
        )
        for node in (1, 2, 3)
    }
    return rules


RULES = brokers()


def leader(*, replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...], start: int = 0) -> LeaderReplica:
    placement = PartitionImage(
        replicas=tuple(map(NodeId, replicas)),
        isr=tuple(map(NodeId, isr)),
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(5),
        partition_epoch=7,
        directories=(ZERO_UUID,) * len(replicas),
    )
    return LeaderReplica(placement, node_id=NodeId(1), epoch_start=Offset(start), now=NOW)


def fetched(
    one: LeaderReplica, node: int, offset: int, end: int, now: Instant = NOW, epoch: int = 0, start: int = 0
) -> None:
    one.followers[NodeId(node)].fetched(Offset(offset), Offset(start), Offset(end), epoch or 10 + node, now)


def may_join(one: LeaderReplica, high_watermark: int, rules: InSyncRules = RULES, start: int = 0) -> bool:
    return one.may_join(NodeId(2), rules, high_watermark=Offset(high_watermark), log_start=Offset(start))


def committed(one: LeaderReplica, own_end: int, now: Instant = NOW, rules: InSyncRules = RULES) -> int:
    return one.committed_end(Offset(own_end), Offset(own_end), rules, now)


def test_a_lone_leader_commits_what_it_holds_alone() -> None:
    assert committed(leader(replicas=(1,), isr=(1,)), 7) == 7


def test_the_committed_end_is_the_lowest_end_among_the_in_sync_replicas() -> None:
    three = leader(isr=(1, 2, 3))
    assert committed(three, 10) == -1
    fetched(three, 2, 8, 10)
    fetched(three, 3, 5, 10)
    assert committed(three, 10) == 5


def test_a_replica_that_lags_outside_the_isr_does_not_hold_the_committed_end_back() -> None:
    two_of_three = leader(isr=(1, 2))
    fetched(two_of_three, 2, 9, 10)
    assert committed(two_of_three, 10) == 9


def test_a_caught_up_replica_that_may_join_holds_the_committed_end_back() -> None:
    joining = leader(isr=(1, 2))
    fetched(joining, 2, 10, 10)
    fetched(joining, 3, 9, 9)
    assert committed(joining, 10) == 9


def test_a_caught_up_replica_that_may_not_join_does_not_hold_the_committed_end_back() -> None:
    # KAFKA-15021: in a controlled shutdown acks=all would wait for the stopping replica.
    stopping = leader(isr=(1, 2))
    fetched(stopping, 2, 10, 10)
    fetched(stopping, 3, 9, 9)
    assert committed(stopping, 10, rules=brokers(stopping=(3,))) == 10


def test_a_follower_cannot_commit_what_the_leader_does_not_hold() -> None:
    two = leader(replicas=(1, 2), isr=(1, 2))
    fetched(two, 2, 10, 3)
    assert committed(two, 3) == 3


def test_progress_follows_a_follower_that_lost_records_in_a_crash() -> None:
    two = leader(isr=(1, 2))
    fetched(two, 2, 1000, 1000)
    fetched(two, 2, 500, 1000, epoch=22)
    assert two.followers[NodeId(2)].log_end_offset == 500
    assert not may_join(two, 1000, RULES)


def test_a_late_fetch_of_an_earlier_incarnation_is_stale() -> None:
    two = leader(isr=(1, 2))
    fetched(two, 2, 500, 1000, epoch=22)
    assert two.followers[NodeId(2)].is_stale(12)
    assert not two.followers[NodeId(2)].is_stale(-1)


def test_a_follower_that_is_always_one_fetch_behind_stays_in_sync() -> None:
    two = leader(replicas=(1, 2), isr=(1, 2))
    for second in range(60):
        fetched(two, 2, 10 * second, 10 * second + 10, at(second))
    assert two.lagging(Offset(1000), RULES, at(60)) == ()


def test_a_follower_that_falls_behind_ever_more_leaves() -> None:
    two = leader(replicas=(1, 2), isr=(1, 2))
    for second in range(60):
        fetched(two, 2, second, 10 * second + 10, at(second))
    assert two.lagging(Offset(1000), RULES, at(60)) == (2,)


def test_an_idle_follower_at_the_end_of_the_log_does_not_lag() -> None:
    two = leader(replicas=(1, 2), isr=(1, 2))
    fetched(two, 2, 10, 10)
    assert two.lagging(Offset(10), RULES, at(3600)) == ()


def test_a_member_of_the_isr_has_the_lag_time_for_its_first_fetch() -> None:
    three = leader(isr=(1, 2))
    assert three.lagging(Offset(10), RULES, at(30)) == ()
    assert three.lagging(Offset(10), RULES, at(31)) == (2,)


def test_a_replica_joins_once_it_has_reached_the_high_watermark_and_the_epoch_start() -> None:
    one = leader(isr=(1,), start=8)
    fetched(one, 2, 5, 10)
    assert not may_join(one, 6, RULES)
    assert not may_join(one, 5, RULES)  # KAFKA-7128: not at the start of the epoch
    fetched(one, 2, 8, 10)
    assert may_join(one, 8, RULES)


def test_a_replica_joins_once_it_has_taken_over_the_log_start() -> None:
    # Else it could lead with records below it that were never committed: no leader compares them any more.
    one = leader(isr=(1,))
    fetched(one, 2, 10, 10, start=3)
    assert not may_join(one, 10, start=10)
    fetched(one, 2, 10, 10, start=10)
    assert may_join(one, 10, start=10)


def test_a_fenced_stopping_or_reborn_replica_may_not_join() -> None:
    one = leader(isr=(1,))
    fetched(one, 2, 10, 10)
    assert not may_join(one, 10, brokers(fenced=(2,)))
    assert not may_join(one, 10, brokers(stopping=(2,)))
    fetched(one, 2, 10, 10, epoch=11)
    assert not may_join(one, 10, RULES)


def test_a_broker_that_is_no_replica_is_told_that_metadata_differ() -> None:
    with pytest.raises(PartitionUnavailable) as refused:
        leader(replicas=(1, 2), isr=(1,)).progress_of(NodeId(3))
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def isr(*members: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, members))


def test_a_proposed_member_counts_before_it_is_committed() -> None:
    known = InSyncReplicas(isr(1, 2), 7)
    known.expand(NodeId(3))
    assert (known.maximal, known.minimal) == (isr(1, 2, 3), isr(1, 2))


def test_a_member_proposed_for_removal_counts_until_that_is_committed() -> None:
    known = InSyncReplicas(isr(1, 2, 3), 7)
    known.shrink(isr(3))
    assert (known.maximal, known.minimal) == (isr(1, 2, 3), isr(1, 2))
    assert known.commit(isr(1, 2), 8)
    assert (known.maximal, known.minimal, known.state) == (isr(1, 2), isr(1, 2), IsrState.COMMITTED)


def test_a_refused_proposal_leaves_the_isr_as_it_was() -> None:
    known = InSyncReplicas(isr(1, 2), 7)
    known.expand(NodeId(3))
    known.withdraw()
    assert known.maximal == isr(1, 2)


def test_the_metadata_of_before_a_proposal_decide_nothing() -> None:
    known = InSyncReplicas(isr(1, 2), 7)
    known.expand(NodeId(3))
    assert not known.commit(isr(1, 2), 7)
    assert known.is_changing


def test_an_incarnation_that_is_far_behind_holds_nothing_back_that_its_predecessor_had() -> None:
    two_of_three = leader(isr=(1, 2))
    fetched(two_of_three, 2, 1000, 1000)
    fetched(two_of_three, 3, 1000, 1000)
    fetched(two_of_three, 3, 0, 1000, epoch=23)
    rules = brokers()
    rules.brokers = dict(rules.brokers)
    rules.brokers[NodeId(3)] = msgspec.structs.replace(rules.brokers[NodeId(3)], epoch=23)
    assert committed(two_of_three, 1000, rules=rules) == 1000
