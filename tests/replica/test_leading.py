"""The roles of a partition: the requests each serves, the waiters that the end of each releases, and the high
watermark, which outlives them all.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, NodeId, Offset
from sparklog_server.replica.leader import Following, PartitionUnavailable
from sparklog_server.replica.partition import any_role_of, isr_refused
from sparklog_server.replica.purgatory import Waiter
from tests.log.logs import EPOCH, NOW, batch
from tests.replica.test_cutting import World
from tests.replica.test_leader import brokers
from tests.replica.test_purgatory import Named


def leading(*, waits_for_sync: bool = True) -> World:
    """A new partition that leads."""
    world = World()
    world.partition = world.opened(world.partition.log, waits_for_sync=waits_for_sync)
    world.directory.partitions = {world.partition: None}
    world.lead()
    return world


def three_waiters(world: World, released: list[str]) -> list[Waiter]:
    """A waiter of each kind on the partition: for records, for a change, and for a checkpoint."""
    waiters = [Named(name, released) for name in ("produce", "fetch", "deletion")]
    world.partition.park(Offset(100), waiters[0])
    world.partition.watch(waiters[1])
    world.partition.park_until_durable(Offset(100), waiters[2], NOW)
    return list(waiters)


def test_a_leader_that_leads_on_in_a_new_epoch_takes_nothing_back_that_it_has_shown() -> None:
    world = leading(waits_for_sync=False)
    world.append(5, b"shown before it was synced")
    assert world.partition.high_watermark == 5
    world.partition.configure(in_sync_min=1, flush="always", now=NOW)
    world.lead(EPOCH + 1)
    assert world.partition.high_watermark == 5
    world.append(1, b"x")
    assert world.partition.high_watermark == 5
    world.sync()
    assert world.partition.high_watermark == 6


def test_what_the_checkpoint_calls_committed_is_shown_in_the_next_life_only_when_it_is_durable() -> None:
    world = World()
    world.append(5, b"shown by a topic that was not to be synced, and read back after a crash")
    world.partition = world.opened(world.partition.log, high_watermark=5)
    world.directory.partitions = {world.partition: None}
    world.lead()
    assert world.partition.high_watermark == 0
    world.sync()
    assert world.partition.high_watermark == 5


def test_the_high_watermark_of_a_leader_does_not_follow_its_log_back() -> None:
    world = leading(waits_for_sync=False)
    world.append(9, b"committed")
    world.partition.configure(in_sync_min=1, flush="always", now=NOW)  # no record is synced
    assert world.partition.high_watermark == 9


def test_a_write_waits_for_a_replica_outside_the_isr_only_while_that_may_join() -> None:
    world = leading(waits_for_sync=False)
    partition, under, rules = world.partition, world.partition.leader, world.partition._rules
    assert under is not None
    for restore, now in ((brokers(fenced=(2,)), NOW), (brokers(), Instant(Micros(31_000_000), NOW.wall_ms))):
        rules.brokers = brokers().brokers
        end = partition.log.log_end_offset
        partition.follower_fetched(NodeId(2), 12, fetch_offset=end, log_start_offset=Offset(0), now=NOW)
        isr_refused(partition, under, NOW)
        world.append(3, b"v")
        assert partition.high_watermark == end
        rules.brokers = restore.brokers
        partition.eligibility_changed(now)
        assert partition.high_watermark == end + 3


def test_a_partition_that_was_never_placed_serves_nothing() -> None:
    world = World()
    world.partition = world.opened(world.partition.log)
    with pytest.raises(PartitionUnavailable) as refused:
        world.partition.append(batch(), NOW)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("leader", [2, -1])
def test_a_leader_that_resigns_releases_every_waiter_and_keeps_its_high_watermark(leader: int) -> None:
    world, released = leading(), []
    world.append(3, b"committed")
    world.sync()
    under = world.partition.leader
    three_waiters(world, released)
    assert not world.place(leader, EPOCH + 1)
    assert released == ["produce", "fetch", "deletion"]
    assert world.partition.loss_of(under) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.partition.high_watermark == 3
    assert world.directory.high_watermarks() == {world.partition.topic_partition: 3}
    with pytest.raises(PartitionUnavailable) as refused:
        world.partition.leader_for(-1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_knows_its_leader() -> None:
    world = leading()
    world.place(2, EPOCH + 1)
    assert world.partition.role == Following(2, EPOCH + 1)
    world.place(-1, EPOCH + 2)
    assert world.partition.role is None


def test_a_later_epoch_of_the_same_leader_ends_the_waits_of_the_old() -> None:
    world, released = leading(), []
    under = world.partition.leader
    three_waiters(world, released)
    assert world.lead(EPOCH + 2)  # another broker may have led in between
    assert released == ["produce", "fetch", "deletion"]
    assert world.partition.loss_of(under) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.partition.loss_of(world.partition.leader) is ErrorCode.NONE


def test_in_the_next_epoch_of_the_same_leader_produce_requests_wait_on() -> None:
    world, released = leading(), []
    under = world.partition.leader
    three_waiters(world, released)
    assert world.lead(EPOCH + 1)
    assert released == ["fetch"]  # it may claim the epoch before
    assert world.partition.loss_of(under) is ErrorCode.NONE
    with pytest.raises(PartitionUnavailable) as refused:
        world.partition.leader_for(EPOCH)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
    assert world.partition.leader_for(EPOCH + 1) is under


def test_a_change_within_an_epoch_ends_nothing() -> None:
    world, released = leading(), []
    under = world.partition.leader
    three_waiters(world, released)
    assert not world.lead(EPOCH)
    assert released == []
    assert world.partition.leader is under


def test_an_offline_partition_takes_up_no_role() -> None:
    world = leading()
    world.partition.go_offline()
    assert not world.lead(EPOCH + 1)
    world.place(2, EPOCH + 2)
    assert world.partition.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.partition.role is None


def test_a_truncation_ends_the_requests_that_began_before_it() -> None:
    world = leading()
    world.append(3, b"committed")
    world.place(2, EPOCH + 1)
    role = any_role_of(world.partition, EPOCH + 1)
    assert world.partition.loss_of(role) is ErrorCode.NONE
    world.partition.cut_to(Offset(1))
    assert world.partition.loss_of(role) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.partition.loss_of(any_role_of(world.partition, EPOCH + 1)) is ErrorCode.NONE


def test_a_replica_without_a_role_serves_no_reader() -> None:
    world = leading()
    world.place(-1, EPOCH + 1)
    with pytest.raises(PartitionUnavailable) as refused:
        any_role_of(world.partition, -1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.partition.go_offline()
    with pytest.raises(PartitionUnavailable) as refused:
        any_role_of(world.partition, -1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
