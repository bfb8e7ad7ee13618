"""The roles of a replica, and the leader's side of replication.

    IDLE (None)                    no leader is known, or the partition is offline or deleted
    FOLLOWING(leader, epoch)       another broker leads: requests of clients get NOT_LEADER_OR_FOLLOWER
    LEADING(epoch), LeaderReplica  this broker leads

    committed end = the lowest acknowledged end among the leader and its in-sync followers

The acknowledged end of the leader itself is its log end offset, or its recovery point where a record counts
only once it is synced (`durability`). The high watermark belongs to the partition: it follows the committed
end and outlives the role.
"""

from typing import NamedTuple

from sparklog.model import Instant, LeaderEpoch, NodeId, Offset
from sparklog_server.replica.progress import FollowerProgress


class Following(NamedTuple):
    """The role of a replica whose partition another broker leads."""

    leader: NodeId
    leader_epoch: LeaderEpoch


class LeaderReplica:
    """Leadership of one partition in one leader epoch.

    Invariants: `acknowledged_end` never moves back; `in_sync_followers` does not contain the leader itself.
    """

    __slots__ = ("_progress", "acknowledged_end", "in_sync_followers", "leader_epoch")

    def __init__(
        self,
        leader_epoch: LeaderEpoch,
        *,
        followers: tuple[NodeId, ...],
        isr: tuple[NodeId, ...],
        acknowledged_end: Offset,
        now: Instant,
    ) -> None:
        self.leader_epoch = leader_epoch
        self._progress = {follower: FollowerProgress(now) for follower in followers}
        self.in_sync_followers = tuple(replica for replica in isr if replica in self._progress)
        self.acknowledged_end = acknowledged_end

    @property
    def is_alone(self) -> bool:
        """Whether no follower is in sync, so that the disk of this broker alone decides what is committed."""
        return not self.in_sync_followers

    def own_end_moved(self, acknowledged_end: Offset) -> Offset:
        """The leader acknowledges every record below `acknowledged_end`. Returns the committed end."""
        if acknowledged_end > self.acknowledged_end:
            self.acknowledged_end = acknowledged_end
        return self.committed_end()

    def follower_fetched(
        self, replica: NodeId, fetch_offset: Offset, log_end_offset: Offset, now: Instant
    ) -> Offset:
        """A follower fetches from `fetch_offset`, so it has every record below. Returns the committed end."""
        self._progress[replica].fetched_to(fetch_offset, log_end_offset, now)
        return self.committed_end()

    def committed_end(self) -> Offset:
        """The end of the records that every in-sync replica has acknowledged."""
        committed = self.acknowledged_end
        for follower in self.in_sync_followers:
            committed = min(committed, self._progress[follower].log_end_offset)
        return committed


Role = LeaderReplica | Following | None
"""None is IDLE."""
