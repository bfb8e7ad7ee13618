"""The leader's side of replication: the high watermark and the rule that moves it.

    high watermark = the lowest acknowledged end among this replica and every in-sync follower; it never
    moves back.

The leader's own acknowledged end is what it may promise alone: the log end, or only what is synced to disk
where one replica is all there is (`sparklog.ack.flush`, decided by `Partition`).
"""

from sparklog.model import Instant, LeaderEpoch, NodeId, Offset
from sparklog_server.replica.progress import FollowerProgress


class LeaderReplica:
    """Leadership of one partition in one leader epoch.

    Invariants: `high_watermark` ≤ `acknowledged_end`, and neither moves back; `in_sync_followers` holds no
    entry for the leader itself.
    """

    __slots__ = ("_progress", "acknowledged_end", "high_watermark", "in_sync_followers", "leader_epoch")

    def __init__(
        self,
        leader_epoch: LeaderEpoch,
        *,
        followers: tuple[NodeId, ...],
        isr: tuple[NodeId, ...],
        high_watermark: Offset,
        now: Instant,
    ) -> None:
        self.leader_epoch = leader_epoch
        self._progress = {follower: FollowerProgress(now) for follower in followers}
        self.in_sync_followers = tuple(replica for replica in isr if replica in self._progress)
        self.high_watermark = high_watermark
        self.acknowledged_end = high_watermark

    def own_end_moved(self, acknowledged_end: Offset) -> bool:
        """This replica may promise every record below `acknowledged_end`. True if the high watermark
        moved.
        """
        if acknowledged_end > self.acknowledged_end:
            self.acknowledged_end = acknowledged_end
        return self._advance()

    def follower_fetched(
        self, replica: NodeId, fetch_offset: Offset, log_end_offset: Offset, now: Instant
    ) -> bool:
        """A follower asks for `fetch_offset`, so it holds every record below it. True if the high
        watermark moved.
        """
        self._progress[replica].fetched_to(fetch_offset, log_end_offset, now)
        return self._advance()

    def _advance(self) -> bool:
        reached = self.acknowledged_end
        for follower in self.in_sync_followers:
            reached = min(reached, self._progress[follower].log_end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True
