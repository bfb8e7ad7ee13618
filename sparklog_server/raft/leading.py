"""The leader's state of its epoch: the synced log end of each voter, and the high watermark that follows from
them.
"""

from sparklog.model import LeaderEpoch, NodeId, Offset

from .voters import VoterSet


class Leading:
    """One leadership, of `epoch`, which begins at `epoch_start_offset`.

    Invariants: the high watermark never decreases; it never passes the offset that a majority of voters has
    synced; and it does not move until a majority has the first record of this epoch, since a record of an
    earlier epoch on a majority may still be overwritten (Raft, figure 8).
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
        """Record that a voter has synced everything below `end_offset`; returns whether the high watermark
        moved.
        """
        assert node_id in self._voters, f"node {node_id} has no vote"
        self._synced_ends[node_id] = max(end_offset, self._synced_ends.get(node_id, Offset(0)))
        held = self._voters.held_by_majority(self._synced_ends)
        if held <= max(self.epoch_start_offset, self.high_watermark):
            return False
        self.high_watermark = held
        return True
