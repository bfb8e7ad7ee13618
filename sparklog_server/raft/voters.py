"""The voters of the metadata quorum, where they are, and the size of their majority."""

from collections.abc import Mapping

import msgspec

from sparklog.model import ZERO_UUID, NodeId, Offset, Uuid
from sparklog.record.control import KRaftVersionFeature, KRaftVoters, QuorumVoter, Voter, VoterEndpoint

from .peers import Endpoint

_LISTENER = "CONTROLLER"


class VoterSet(msgspec.Struct, frozen=True):
    """The voters by node; a voter is a node together with the directory of its log (KIP-853), so a node with
    a wiped disk is another voter. Voters of kraft.version 0 have no directory id.
    """

    directories: Mapping[NodeId, Uuid]
    endpoints: Mapping[NodeId, tuple[VoterEndpoint, ...]] = msgspec.field(default_factory=dict)

    @property
    def majority(self) -> int:
        """The number of voters that form a majority."""
        return len(self.directories) // 2 + 1

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self.directories

    def has(self, node_id: NodeId, directory_id: Uuid) -> bool:
        """Whether the node with this directory is a voter."""
        found = self.directories.get(node_id)
        return found is not None and found in (ZERO_UUID, directory_id)

    def held_by_majority(self, ends: Mapping[NodeId, Offset]) -> Offset:
        """The highest offset that a majority has synced, given each voter's synced log end; a voter that is
        not in the mapping counts as 0.
        """
        reached = sorted((ends.get(node, Offset(0)) for node in self.directories), reverse=True)
        return reached[self.majority - 1]

    def listed(self) -> list[Voter]:
        """The voters as a LeaderChange record lists them, by node."""
        return [Voter(node, self.directories[node]) for node in sorted(self.directories)]

    def endpoint(self, node_id: NodeId) -> Endpoint | None:
        """Where a voter accepts raft requests, if that is known: at its first listener."""
        found = self.endpoints.get(node_id)
        return Endpoint(found[0].host, found[0].port) if found else None

    def moved(self, node_id: NodeId, endpoints: tuple[VoterEndpoint, ...]) -> "VoterSet":
        """These voters with other endpoints of one of them; the same if it is no voter or has none."""
        if node_id not in self or not endpoints:
            return self
        return VoterSet(self.directories, {**self.endpoints, node_id: endpoints})

    def added(self, node_id: NodeId, directory_id: Uuid, endpoints: tuple[VoterEndpoint, ...]) -> "VoterSet":
        """These voters and one more."""
        assert node_id not in self
        return VoterSet({**self.directories, node_id: directory_id}, {**self.endpoints, node_id: endpoints})

    def removed(self, node_id: NodeId) -> "VoterSet":
        """These voters without one of them."""
        return VoterSet(
            {node: directory for node, directory in self.directories.items() if node != node_id},
            {node: endpoints for node, endpoints in self.endpoints.items() if node != node_id},
        )

    def record(self) -> KRaftVoters:
        """The control record of these voters."""
        return KRaftVoters(
            voters=[
                QuorumVoter(
                    voter_id=node,
                    voter_directory_id=self.directories[node],
                    endpoints=list(self.endpoints.get(node, ())),
                    k_raft_version_feature=KRaftVersionFeature(0, 1),
                )
                for node in sorted(self.directories)
            ]
        )

    @classmethod
    def of(cls, record: KRaftVoters) -> "VoterSet":
        """The voters of a control record."""
        return cls(
            {NodeId(voter.voter_id): Uuid(voter.voter_directory_id) for voter in record.voters},
            {NodeId(voter.voter_id): tuple(voter.endpoints) for voter in record.voters},
        )


def endpoint_of(host: str, port: int) -> tuple[VoterEndpoint, ...]:
    """A voter's listener for controllers at an address."""
    return (VoterEndpoint(_LISTENER, host, port),)
