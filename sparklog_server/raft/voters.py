"""The voters of the metadata quorum and the size of their majority."""

from collections.abc import Mapping

import msgspec

from sparklog.model import NodeId, Offset, Uuid
from sparklog.record.control import Voter


class VoterSet(msgspec.Struct, frozen=True):
    """The voters by node; a voter is a node together with the directory of its log (KIP-853), so a node with
    a wiped disk is another voter.
    """

    directories: Mapping[NodeId, Uuid]

    @property
    def majority(self) -> int:
        """The number of voters that form a majority."""
        return len(self.directories) // 2 + 1

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self.directories

    def held_by_majority(self, ends: Mapping[NodeId, Offset]) -> Offset:
        """The highest offset that a majority has synced, given each voter's synced log end; a voter that is
        not in the mapping counts as 0.
        """
        reached = sorted((ends.get(node, Offset(0)) for node in self.directories), reverse=True)
        return reached[self.majority - 1]

    def listed(self) -> list[Voter]:
        """The voters as a LeaderChange record lists them, by node."""
        return [Voter(node, self.directories[node]) for node in sorted(self.directories)]
