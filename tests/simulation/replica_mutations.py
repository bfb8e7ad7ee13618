"""Historical bugs of replication, planted one by one. Each is to be found by the simulation of replicas, by
that of whole clusters, or by a test that plays its history.

    python -m tests.simulation.replica_mutations [--seeds N] [--world WORLD | --tests PATH…] [NUMBER…]

Prints for each how many seeds it took, or that tests failed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, NodeId, Offset, Uuid
from sparklog.wire.messages.alter_partition import AlterPartitionRequestPartitionData, BrokerState
from sparklog.wire.messages.fetch import EpochEndOffset as DivergingEpoch
from sparklog.wire.messages.fetch import FetchPartition, PartitionData
from sparklog_server.broker.cluster.replication import Replication
from sparklog_server.broker.handlers import fetch, near_replica, offsets, replica_fetch
from sparklog_server.controller import alter_partition, broker_fencing, brokers
from sparklog_server.controller.elections import Reassignment
from sparklog_server.coordinator.active_shard import ActiveShard
from sparklog_server.coordinator.runtime import CoordinatorRuntime
from sparklog_server.log.partition_log import OffsetOutOfRange, PartitionLog
from sparklog_server.log.producers.producer_state import ProducerState
from sparklog_server.log.recovery import log_loader
from sparklog_server.log.truncation import Truncation
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica import fetcher
from sparklog_server.replica.fetcher import Fetcher
from sparklog_server.replica.follower import Follower, Position
from sparklog_server.replica.isr import InSyncReplicas, InSyncRules
from sparklog_server.replica.leader import LeaderReplica
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.progress import FollowerProgress
from tests.simulation.mutations import MUTATIONS, Planted, main, mutation

__all__ = ["MUTATIONS"]


@mutation("1 a new follower truncates to its high watermark (KIP-101)")
def truncates_to_watermark() -> Planted:
    original = Replication._place

    def place(self: Replication, partition: Partition) -> None:
        before = self._follower_of(partition)
        original(self, partition)
        found = self._follower_of(partition)
        is_new = found is not None and (before is None or before[1] is not found[1])
        if is_new and found is not None and not partition.log.is_truncating:
            self.cut(found[1], partition.high_watermark, Instant(0, 0))  # type: ignore[arg-type]

    with patch.object(Replication, "_place", place):
        yield


@mutation("2 no divergence is told, so that nothing is truncated")
def no_truncation() -> Planted:
    with patch.object(replica_fetch, "divergence", lambda *_: None):
        yield


@mutation("5 the high watermark ignores a replica whose removal is only proposed (KAFKA-8836)")
def shrunk_too_soon() -> Planted:
    with _maximal_is("proposed"):
        yield


@contextmanager
def _maximal_is(which: str) -> Iterator[None]:
    """The high watermark waits for the replicas of this attribute, whatever is proposed."""
    original = InSyncReplicas._move

    def changed(self: InSyncReplicas, *now: Any) -> None:
        original(self, *now)
        self.maximal = getattr(self, which)

    with patch.object(InSyncReplicas, "_move", changed):
        yield


@mutation(
    "6 the high watermark ignores a replica that joins until that is committed",
    "tests/replica/test_leading.py",
)
def joins_too_late() -> Planted:
    with (
        _maximal_is("committed"),
        patch.object(FollowerProgress, "is_caught_up", lambda self, end, *_: self.log_end_offset >= end),
    ):
        yield


@mutation("7 the high watermark is not raised when the ISR has changed (KAFKA-13091)")
def not_re_evaluated() -> Planted:
    with patch.object(Partition, "in_sync_changed", lambda *_: None):
        yield


@mutation("10 a late fetch of the previous incarnation counts (KAFKA-15221)", "tests/replica/test_leader.py")
def late_fetch() -> Planted:
    with patch.object(FollowerProgress, "is_stale", lambda *_: False):
        yield


@mutation("11 a follower takes the high watermark of a diverging response (KAFKA-14704)")
def watermark_of_divergence() -> Planted:
    original = Fetcher._take

    def take(self: Fetcher, follower: Follower, asked: Position, data: PartitionData, now: Instant) -> None:
        if data.diverging_epoch is not None:
            follower.partition.leader_reported(Offset(1 << 60), Offset(0), now)
        original(self, follower, asked, data, now)

    with patch.object(Fetcher, "_take", take):
        yield


@mutation("12 a fetch that diverges counts as progress (KAFKA-13141)")
def diverging_progress() -> Planted:
    original = Partition.leader_for

    with patch.object(replica_fetch, "divergence", _told_but_counted(replica_fetch.divergence)):
        yield
    assert Partition.leader_for is original


def _told_but_counted(divergence: Callable[..., object]) -> Callable[..., object]:
    """`_take` is told of no divergence, and the response of all."""
    import sys

    def told(partition: Partition, asked: object) -> object:
        return None if sys._getframe(1).f_code.co_name == "_take" else divergence(partition, asked)

    return told


@mutation("15 the last fetched epoch is not told (KAFKA-15510)")
def no_last_epoch() -> Planted:
    original = Follower.position

    def position(self: Follower) -> Position:
        return replace(original(self), last_fetched_epoch=LeaderEpoch(-1))

    with patch.object(Follower, "position", position):
        yield


@mutation(
    "19 a replica joins before it has reached the start of the epoch (KAFKA-7128)",
    "tests/replica/test_leader.py",
)
def joins_at_watermark() -> Planted:
    original = LeaderReplica.may_join

    def may_join(
        self: LeaderReplica, replica: NodeId, rules: InSyncRules, *, high_watermark: Offset, log_start: Offset
    ) -> bool:
        with patch.object(LeaderReplica, "epoch_start", Offset(0)):
            return original(self, replica, rules, high_watermark=high_watermark, log_start=log_start)

    with patch.object(LeaderReplica, "may_join", may_join):
        yield


@mutation("20 the high watermark rises with fewer replicas than the minimum (KAFKA-15583)")
def below_minimum() -> Planted:
    with patch.object(Partition, "has_enough_in_sync", property(lambda _: True)):
        yield


@mutation("28 progress never goes back", "tests/replica/test_leader.py")
def progress_by_max() -> Planted:
    original = FollowerProgress.fetched

    def fetched(
        self: FollowerProgress, offset: Offset, start: Offset, end: Offset, epoch: int, now: Instant
    ) -> None:
        original(self, max(offset, self.log_end_offset), start, end, epoch, now)

    with patch.object(FollowerProgress, "fetched", fetched):
        yield


@mutation("30 a token of an ended leadership is answered by the new one")
def timeless_tokens() -> Planted:
    with patch.object(
        Partition, "loss_of", lambda self, _: ErrorCode.NONE if self.leader is not None else self.error
    ):
        yield


@mutation("3 a divergence is told without the epoch of its end (KIP-279)")
def end_without_epoch() -> Planted:
    original = replica_fetch.divergence

    def divergence(partition: Partition, asked: FetchPartition) -> DivergingEpoch | None:
        found = original(partition, asked)
        if found is not None:
            found.epoch = asked.last_fetched_epoch
        return found

    with patch.object(replica_fetch, "divergence", divergence):
        yield


@mutation("8 a fenced replica may join the ISR (KIP-841)")
def fenced_joins() -> Planted:
    with (
        patch.object(InSyncRules, "is_eligible", lambda *_: True),
        patch.object(alter_partition, "_is_eligible", lambda *_: True),
    ):
        yield


@mutation("9 the broker epoch of a replica that joins is not compared (KIP-903)", "tests/controller")
def any_incarnation_joins() -> Planted:
    def is_eligible(image: MetadataImage, partition: PartitionImage, state: BrokerState) -> bool:
        broker = image.brokers.get(NodeId(state.broker_id))
        return broker is not None and broker.is_active

    def may_join(self: InSyncRules, node: NodeId, broker_epoch: int, directory: Uuid) -> bool:
        broker = self.brokers.get(node)
        return broker is not None and broker.is_active

    with (
        patch.object(alter_partition, "_is_eligible", is_eligible),
        patch.object(InSyncRules, "is_eligible", may_join),
    ):
        yield


@mutation(
    "13 a response to a fetch of an older leader epoch counts (KAFKA-18991)", "tests/replica/test_fetcher.py"
)
def older_epoch_counts() -> Planted:
    with (
        patch.object(Position, "is_at", lambda told, now: told.fetch_offset == now.fetch_offset),
        patch.object(fetcher, "frozenset", lambda *_: (), create=True),  # no later request asks anew
    ):
        yield


@mutation("14 batches of a newer epoch than asked for are appended (KAFKA-18723)", "tests/log/test_append.py")
def newer_epoch() -> Planted:
    original = PartitionLog.append_as_follower

    def append(self: PartitionLog, records: memoryview, now: Instant, **_: object) -> object:
        return original(self, records, now)

    with patch.object(PartitionLog, "append_as_follower", append):
        yield


@mutation(
    "16 the high watermark stays below a log that begins anew (KAFKA-9491)", "tests/replica/test_leading.py"
)
def watermark_below_start() -> Planted:
    def cut_to(self: Partition, end_offset: Offset) -> None:
        self.high_watermark = min(self.high_watermark, end_offset)

    with patch.object(Partition, "cut_to", cut_to):
        yield


@mutation(
    "17 divergence is looked for before the offset is (KAFKA-12996)",
    "tests/broker/handlers/test_leader_epochs.py",
)
def divergence_first() -> Planted:
    def divergence(partition: Partition, asked: FetchPartition) -> DivergingEpoch | None:
        if asked.last_fetched_epoch < 0:
            return None
        end, epoch = partition.log.end_offset_for_epoch(LeaderEpoch(asked.last_fetched_epoch))
        if epoch < 0:
            raise OffsetOutOfRange
        if epoch == asked.last_fetched_epoch and end >= asked.fetch_offset:
            return None
        return DivergingEpoch(epoch=epoch, end_offset=end)

    with (
        patch.object(replica_fetch, "divergence", divergence),
        patch.object(fetch, "divergence", divergence),
    ):
        yield


@mutation(
    "21 a replica stays eligible after an unclean restart (KIP-966)",
    "tests/controller/test_in_sync_histories.py",
)
def unclean_is_clean() -> Planted:
    original = brokers.broker_restarted

    def restarted(*given: object, **options: object) -> object:
        return original(*given, **{**options, "was_clean": True})  # type: ignore[arg-type]

    with patch.object(brokers, "broker_restarted", restarted):
        yield


@mutation("22 a fenced replica is elected (KAFKA-19522)")
def fenced_elected() -> Planted:
    with (
        patch.object(broker_fencing, "acceptable", lambda *_, **__: lambda _: True),
        patch.object(alter_partition, "acceptable", lambda *_, **__: lambda _: True),
    ):
        yield


@mutation("23 the high watermark waits for a replica that may not join (KAFKA-15021)")
def waits_for_fenced() -> Planted:
    original = LeaderReplica.committed_end

    def committed_end(
        self: LeaderReplica, own_end: Offset, log_end: Offset, rules: InSyncRules, now: Instant
    ) -> Offset:
        with patch.object(InSyncRules, "is_eligible", lambda *_: True):
            return original(self, own_end, log_end, rules, now)

    with patch.object(LeaderReplica, "committed_end", committed_end):
        yield


@mutation(
    "29 a replica that is one fetch behind a steady load is not caught up", "tests/replica/test_leader.py"
)
def one_fetch_behind() -> Planted:
    original = FollowerProgress.fetched

    def fetched(
        self: FollowerProgress, offset: Offset, start: Offset, end: Offset, epoch: int, now: Instant
    ) -> None:
        self._leader_end_at_fetch = Offset(1 << 60)
        original(self, offset, start, end, epoch, now)

    with patch.object(FollowerProgress, "fetched", fetched):
        yield


@mutation("47 the partition epoch of AlterPartition is ignored (KIP-497)", "tests/controller/test_stories.py")
def any_partition_epoch() -> Planted:
    original = alter_partition._refusal

    def refusal(
        image: MetadataImage,
        leader: NodeId,
        partition: PartitionImage,
        asked: AlterPartitionRequestPartitionData,
    ) -> ErrorCode:
        asked.partition_epoch = partition.partition_epoch
        return original(image, leader, partition, asked)

    with patch.object(alter_partition, "_refusal", refusal):
        yield


@mutation("ours: a follower fetches on before its records are synced")
def unsynced_fetch() -> Planted:
    with (
        patch.object(Follower, "is_fetchable", property(lambda self: self.phase.value == "fetching")),
        patch.object(Fetcher, "_is_held", lambda *_: False),
    ):
        yield


@mutation("ours: any epoch is appended, and no log is ever checked for divergence")
def any_epoch() -> Planted:
    original = PartitionLog.append_as_follower

    def append(self: PartitionLog, records: memoryview, now: Instant, **_: object) -> object:
        return original(self, records, now)

    with (
        patch.object(PartitionLog, "append_as_follower", append),
        patch.object(replica_fetch, "divergence", lambda *_: None),
    ):
        yield


@mutation(
    "4 the leader epoch that a consumer knows is ignored (KIP-320)",
    "tests/broker/handlers/test_leader_epochs.py",
)
def any_claim() -> Planted:
    original = Partition.leader_for

    def leader_for(self: Partition, claimed_epoch: int) -> LeaderReplica:
        return original(self, -1)

    with patch.object(Partition, "leader_for", leader_for):
        yield


@mutation("18 an epoch without records stays at the end of a log", "tests/log/test_epochs.py")
def empty_epoch_stays() -> Planted:
    original = PartitionLog.begin_truncation

    def begin_truncation(self: PartitionLog, offset: Offset) -> Truncation | None:
        return None if offset >= self.log_end_offset else original(self, offset)

    with patch.object(PartitionLog, "begin_truncation", begin_truncation):
        yield


@mutation(
    "26 the latest offset is told before the epoch's start is committed (KIP-207)",
    "tests/broker/cluster/test_disasters.py",
)
def latest_too_soon() -> Planted:
    original = offsets._answer

    def answer(*given: object) -> None:
        with patch.object(LeaderReplica, "epoch_start", Offset(0)):
            original(*given)  # type: ignore[arg-type]

    with patch.object(offsets, "_answer", answer):
        yield


@mutation(
    "27 a reader is sent to a lagging replica (KAFKA-14372)", "tests/broker/handlers/test_near_replicas.py"
)
def near_but_behind() -> Planted:
    original = near_replica.near_replica

    def near(*given: object) -> NodeId | None:
        with patch.object(InSyncReplicas, "committed", range(1 << 31)):
            return original(*given)  # type: ignore[arg-type]

    with patch.object(fetch, "near_replica", near):
        yield


@mutation(
    "31 transactions whose markers are not committed are forgotten", "tests/log/test_held_transactions.py"
)
def none_held() -> Planted:
    with patch.object(log_loader, "held_transactions", lambda *_: []):
        yield


@mutation(
    "49 the former coordinator of a group answers on",
    "tests/broker/coordinators/test_moved_group_coordinators.py",
)
def two_coordinators() -> Planted:
    original = CoordinatorRuntime._serving

    def serving(self: CoordinatorRuntime, index: int) -> ActiveShard | ErrorCode:
        active = self._active.get(index)
        return original(self, index) if active is None or active.loading is not None else active

    with (
        patch.object(CoordinatorRuntime, "_serving", serving),
        patch.object(CoordinatorRuntime, "check", print),
    ):
        yield


@mutation(
    "50 a marker of an older coordinator epoch is written", "tests/broker/coordinators/test_participants.py"
)
def any_coordinator() -> Planted:
    original = ProducerState.check_marker

    def check_marker(
        self: ProducerState, producer_id: int, epoch: int, coordinator_epoch: int, *, is_bumped: bool
    ) -> None:
        original(self, producer_id, epoch, 1 << 30, is_bumped=is_bumped)

    with patch.object(ProducerState, "check_marker", check_marker):
        yield


@mutation("24 a completed reassignment leaves removed replicas in the ISR (KAFKA-9672)")
def removed_stays_in_sync() -> Planted:
    original = Reassignment.completed

    def completed(self: Reassignment, isr: Any, *more: Any) -> Any:
        after, _ = original(self, isr, *more)
        return after, isr

    with patch.object(Reassignment, "completed", completed):
        yield


@mutation("25 a reassignment waits for dead replicas that do not move (KAFKA-19975)")
def waits_for_the_dead() -> Planted:
    original = Reassignment.completed

    def completed(self: Reassignment, isr: Any, *more: Any) -> Any:
        return original(self, isr, *more) if set(self.target) <= set(isr) else (self, isr)

    with patch.object(Reassignment, "completed", completed):
        yield


@mutation("51 a reassignment is complete before its new replicas are in sync")
def completed_too_soon() -> Planted:
    def completed(self: Reassignment, isr: Any, *_: Any) -> Any:
        staying = tuple(node for node in isr if node not in self.removing)
        after = Reassignment(self.target, directories=self.directories)
        return (after, staying) if staying else (self, isr)

    with patch.object(Reassignment, "completed", completed):
        yield


@mutation("52 the fetch of a replica that has left its node goes on into the closed log")
def fetches_for_the_closed() -> Planted:
    original = Partition.close

    def close(self: Partition) -> None:
        original(self)
        self._noted.placed.pop(self, None)

    with patch.object(Partition, "close", close):
        yield


if __name__ == "__main__":
    main()
