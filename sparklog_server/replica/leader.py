"""The roles of a replica, and the leader's side of replication.

    IDLE (None)                    no leader is known, or the partition is offline or deleted
    FOLLOWING(leader, epoch)       another broker leads: this replica fetches its records
    LEADING(epoch), LeaderReplica  this broker leads

    committed end = the lowest end among the leader and the replicas that are in sync, or may be by now

The end of the leader itself is its log end offset, or its recovery point where a record counts only once it
is synced (`durability`). The high watermark belongs to the partition: it follows the committed end and
outlives the role.
"""

from typing import NamedTuple

from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, NodeId, Offset
from sparklog_server.metadata.entries import PartitionImage
from sparklog_server.replica.isr import InSyncReplicas, InSyncRules
from sparklog_server.replica.progress import NEVER, FollowerProgress


class Following(NamedTuple):
    """The role of a replica whose partition another broker leads."""

    leader: NodeId
    leader_epoch: LeaderEpoch


class PartitionUnavailable(Exception):
    """The partition cannot serve the request: `code` is the protocol's reason (offline, not the leader, no
    room), `message` the text for the client, if the code alone does not explain the refusal.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = message


def claim_refused(claimed_epoch: int, leader_epoch: LeaderEpoch) -> PartitionUnavailable:
    """The error for a peer whose leader epoch is another one (KIP-320)."""
    is_older = claimed_epoch < leader_epoch
    return PartitionUnavailable(ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH)


class LeaderReplica:
    """Leadership of one partition in one leader epoch, which begins at `epoch_start`, the log end offset of
    then, and in the next ones as long as no other broker leads in between (`lead_on`).

    Invariant: `followers` has every other replica of the partition.
    """

    __slots__ = ("epoch_start", "followers", "isr", "leader_epoch")

    def __init__(
        self, placement: PartitionImage, *, node_id: NodeId, epoch_start: Offset, now: Instant
    ) -> None:
        self.leader_epoch = placement.leader_epoch
        self.epoch_start = epoch_start
        self.isr = InSyncReplicas(placement.isr, placement.partition_epoch)
        self.followers: dict[NodeId, FollowerProgress] = {}
        self.replicas_changed(placement, node_id, now)

    def replicas_changed(self, placement: PartitionImage, node_id: NodeId, now: Instant) -> None:
        """Take over the replicas; those that stay keep their progress. A member of the ISR has
        `replica.lag.time.max.ms` for its first fetch.
        """
        known = self.followers
        self.followers = {
            node: known.get(node) or FollowerProgress(now.mono_us if node in placement.isr else NEVER)
            for node in placement.replicas
            if node != node_id
        }
        for node, progress in self.followers.items():
            progress.directory = placement.directories[placement.replicas.index(node)]

    def lead_on(
        self, placement: PartitionImage, node_id: NodeId, *, epoch_start: Offset, now: Instant
    ) -> None:
        """Lead in the next leader epoch, which no other broker has come between: the followers have what they
        had.
        """
        self.leader_epoch, self.epoch_start = placement.leader_epoch, epoch_start
        self.replicas_changed(placement, node_id, now)
        self.isr.commit(placement.isr, placement.partition_epoch)

    @property
    def is_alone(self) -> bool:
        """Whether no follower is, or may be, in sync: this broker alone decides what is committed."""
        return len(self.isr.maximal) <= 1

    @property
    def is_replicated(self) -> bool:
        """Whether every committed record is certainly held by a second replica in sync."""
        return len(self.isr.minimal) > 1

    def progress_of(self, replica: NodeId) -> FollowerProgress:
        """The progress of a follower. Raises PartitionUnavailable (UNKNOWN_LEADER_EPOCH) for a broker that is
        no replica: its metadata, or this broker's, are older.
        """
        progress = self.followers.get(replica)
        if progress is None:
            raise PartitionUnavailable(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return progress

    def committed_end(self, own_end: Offset, log_end: Offset, rules: InSyncRules, now: Instant) -> Offset:
        """The end of the records that are held by every replica that is, or may be, in sync.

        A replica that is caught up and may join soon counts too, so that it need not catch up with a high
        watermark that runs away (KAFKA-15021: only if it may join).
        """
        committed = own_end
        maximal = self.isr.maximal
        for node, progress in self.followers.items():
            if progress.log_end_offset < committed and (
                node in maximal or _joins_soon(node, progress, log_end, rules, now)
            ):
                committed = progress.log_end_offset
        return committed

    def awaits(self, replica: NodeId, log_end: Offset, rules: InSyncRules, now: Instant) -> bool:
        """Whether the high watermark waits for a replica, as `committed_end` does."""
        progress = self.followers.get(replica)
        return progress is not None and (
            replica in self.isr.maximal or _joins_soon(replica, progress, log_end, rules, now)
        )

    def may_join(
        self, replica: NodeId, rules: InSyncRules, *, high_watermark: Offset, log_start: Offset
    ) -> bool:
        """Whether to propose a replica for the ISR: it has every committed record, and those of before this
        leader epoch (KAFKA-7128). It has taken over the log start: below that this log cannot tell whether
        the records of the replica are committed, and it would serve them as a leader.
        """
        progress = self.followers[replica]
        return (
            not self.isr.is_changing
            and replica not in self.isr.committed
            and progress.log_end_offset >= high_watermark
            and progress.log_end_offset >= self.epoch_start
            and progress.log_start_offset >= log_start
            and rules.is_eligible(replica, progress.broker_epoch, progress.directory)
        )

    def lagging(self, log_end: Offset, rules: InSyncRules, now: Instant) -> tuple[NodeId, ...]:
        """The members of the ISR to propose for removal: not caught up for `replica.lag.time.max.ms`."""
        if self.isr.is_changing:
            return ()
        return tuple(
            [
                node
                for node in self.isr.committed
                if node in self.followers
                and not self.followers[node].is_caught_up(log_end, now, rules.lag_max_us)
            ]
        )


def _joins_soon(
    node: NodeId, progress: FollowerProgress, log_end: Offset, rules: InSyncRules, now: Instant
) -> bool:
    return progress.is_caught_up(log_end, now, rules.lag_max_us) and rules.is_eligible(
        node, progress.broker_epoch, progress.directory
    )


Role = LeaderReplica | Following | None
"""None is IDLE."""
