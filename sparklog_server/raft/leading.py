"""The leader's knowledge of its epoch: how far each voter has the log on disk, and so how far it is
committed.
"""

from sparklog.model import LeaderEpoch, NodeId, Offset

from .voters import VoterSet


class Leading:
    """One leadership, of `epoch`, which begins at `epoch_start_offset`.

    Invariants: the high watermark only grows; it never passes what a majority of voters has synced; and it
    stays where it was until a majority holds the first record of this epoch, for an earlier epoch's record
    on a majority may still be overwritten (Raft, figure 8).
    """

    def __init__(
        self, epoch: LeaderEpoch, epoch_start_offset: Offset, voters: VoterSet, high_watermark: Offset
    ) -> None:
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = high_watermark
        self._voters = voters
        self._synced_ends: dict[NodeId, Offset] = {}

    def voter_synced(self, node_id: NodeId, end_offset: Offset) -> bool:
        """A voter has everything below `end_offset` on disk; returns whether the high watermark moved."""
        assert node_id in self._voters, f"node {node_id} has no vote"
        self._synced_ends[node_id] = max(end_offset, self._synced_ends.get(node_id, Offset(0)))
        held = self._voters.held_by_majority(self._synced_ends)
        if held <= max(self.epoch_start_offset, self.high_watermark):
            return False
        self.high_watermark = held
        return True
