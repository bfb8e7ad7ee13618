"""The cluster itself: brokers, the metadata quorum, features, elections and reassignments."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from sparklog.client.admin.calls import Caller, raise_for, refusal, settle
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import ZERO_UUID, LeaderEpoch, NodeId, Offset, TopicPartition, Uuid
from sparklog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from sparklog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from sparklog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from sparklog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from sparklog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from sparklog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

ElectionType = Literal["preferred", "unclean"]
UpgradeType = Literal["upgrade", "safe-downgrade", "unsafe-downgrade"]

_ELECTIONS: Final[Mapping[ElectionType, int]] = {"preferred": 0, "unclean": 1}
_UPGRADES: Final[Mapping[UpgradeType, int]] = {"upgrade": 1, "safe-downgrade": 2, "unsafe-downgrade": 3}
_METADATA_TOPIC: Final = "__cluster_metadata"
_VOTER_TIMEOUT_MS: Final = 15_000
"""How long a new voter may take to catch up: no other change of the voters is made meanwhile."""


class Node(Struct, frozen=True, order=True):
    """A broker with its address for clients."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


class Cluster(Struct, frozen=True):
    """The brokers by id; controller -1 if there is none."""

    cluster_id: str
    controller_id: NodeId
    nodes: tuple[Node, ...]


class QuorumReplica(Struct, frozen=True):
    """The progress of a voter or observer in the metadata log; times in ms of Unix time, -1 if unknown. The
    directory id is zero if the broker does not tell it.
    """

    node_id: NodeId
    log_end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int
    directory_id: Uuid = ZERO_UUID


class QuorumEndpoint(Struct, frozen=True):
    """A listener at which a voter serves controllers and brokers."""

    node_id: NodeId
    listener: str
    host: str
    port: int


class Quorum(Struct, frozen=True):
    """The state of the metadata quorum according to its leader. No endpoints if the broker reports none."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: tuple[QuorumEndpoint, ...] = ()


class Feature(Struct, frozen=True):
    """Levels of a feature: the levels that the broker supports, `[min_level, max_level]`, and the level
    that the cluster uses (0 for none).
    """

    name: str
    min_level: int
    max_level: int
    finalized_level: int


class Reassignment(Struct, frozen=True):
    """A reassignment in progress."""

    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


def describe_cluster(caller: Caller, *, include_fenced: bool) -> Cluster:
    """See Admin.describe_cluster."""
    request = DescribeClusterRequest(include_fenced_brokers=include_fenced)
    reply = caller.ask(request, DescribeClusterResponse, caller.deadline(), lambda reply: [reply.error_code])
    nodes = sorted(Node(NodeId(b.broker_id), b.host, b.port, b.rack, b.is_fenced) for b in reply.brokers)
    return Cluster(reply.cluster_id, NodeId(reply.controller_id), tuple(nodes))


def describe_quorum(caller: Caller) -> Quorum:
    """See Admin.describe_quorum."""
    request = DescribeQuorumRequest(
        [DescribeQuorumRequestTopicData(_METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])]
    )
    reply = caller.ask(
        request,
        DescribeQuorumResponse,
        caller.deadline(),
        lambda reply: [reply.error_code, *(p.error_code for topic in reply.topics for p in topic.partitions)],
    )
    metadata_partition = next((partition for topic in reply.topics for partition in topic.partitions), None)
    if metadata_partition is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "the broker answered DescribeQuorum without the metadata partition",
        )

    def replicas(states: list[ReplicaState]) -> tuple[QuorumReplica, ...]:
        return tuple(
            QuorumReplica(
                NodeId(s.replica_id),
                Offset(s.log_end_offset),
                s.last_fetch_timestamp,
                s.last_caught_up_timestamp,
                Uuid(s.replica_directory_id),
            )
            for s in states
        )

    return Quorum(
        NodeId(metadata_partition.leader_id),
        LeaderEpoch(metadata_partition.leader_epoch),
        Offset(metadata_partition.high_watermark),
        replicas(metadata_partition.current_voters),
        replicas(metadata_partition.observers),
        tuple(
            QuorumEndpoint(NodeId(node.node_id), at.name, at.host, at.port)
            for node in reply.nodes
            for at in node.listeners
        ),
    )


def add_raft_voter(
    caller: Caller,
    node: NodeId,
    directory_id: Uuid,
    endpoints: Sequence[tuple[str, str, int]],
    *,
    cluster_id: str | None,
) -> None:
    """See Admin.add_raft_voter."""
    deadline = caller.deadline()
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=_VOTER_TIMEOUT_MS,
        voter_id=node,
        voter_directory_id=directory_id,
        listeners=[Listener(name, host, port) for name, host, port in endpoints],
    )
    reply = caller.call(request, AddRaftVoterResponse, deadline)
    raise_for(reply.error_code, f"voter {node}", reply.error_message)


def remove_raft_voter(caller: Caller, node: NodeId, directory_id: Uuid, *, cluster_id: str | None) -> None:
    """See Admin.remove_raft_voter."""
    request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=node, voter_directory_id=directory_id)
    reply = caller.call(request, RemoveRaftVoterResponse, caller.deadline())
    raise_for(reply.error_code, f"voter {node}", reply.error_message)


def describe_features(caller: Caller) -> dict[str, Feature]:
    """See Admin.describe_features."""
    request = ApiVersionsRequest(client_software_name="sparklog", client_software_version="0")
    reply = caller.ask(request, ApiVersionsResponse, caller.deadline(), lambda reply: [reply.error_code])
    finalized = {feature.name: feature.max_version_level for feature in reply.finalized_features}
    supported = {
        feature.name: (feature.min_version, feature.max_version) for feature in reply.supported_features
    }
    return {
        name: Feature(name, *supported.get(name, (0, 0)), finalized.get(name, 0))
        for name in sorted(supported.keys() | finalized.keys())
    }


def update_features(
    caller: Caller, levels: Mapping[str, int], *, upgrade_type: UpgradeType, validate_only: bool
) -> None:
    """See Admin.update_features."""
    updates = [
        FeatureUpdateKey(name, level, upgrade_type=_UPGRADES[upgrade_type]) for name, level in levels.items()
    ]
    request = UpdateFeaturesRequest(caller.settings.request_timeout_ms, updates, validate_only=validate_only)
    reply = caller.call(request, UpdateFeaturesResponse, caller.deadline())
    raise_for(reply.error_code, "features " + ", ".join(levels), reply.error_message)
    results = {
        result.feature: refusal(result.error_code, f"feature {result.feature!r}", result.error_message)
        for result in reply.results
    }
    settle(
        {name: None for name, error in results.items() if error is None},
        {n: error for n, error in results.items() if error is not None},
    )


def unregister_broker(caller: Caller, node: int) -> None:
    """See Admin.unregister_broker."""
    reply = caller.call(UnregisterBrokerRequest(node), UnregisterBrokerResponse, caller.deadline())
    raise_for(reply.error_code, f"broker {node}", reply.error_message)


def elect_leaders(
    caller: Caller, election: ElectionType, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, bool]:
    """See Admin.elect_leaders."""
    topics: dict[str, TopicPartitions] = {}
    for topic, number in partitions or ():
        topics.setdefault(topic, TopicPartitions(topic, [])).partitions.append(number)
    request = ElectLeadersRequest(
        _ELECTIONS[election],
        None if partitions is None else list(topics.values()),
        caller.settings.request_timeout_ms,
    )
    reply = caller.call(request, ElectLeadersResponse, caller.deadline())
    raise_for(reply.error_code, "the election")
    elected: dict[TopicPartition, bool] = {}
    errors: dict[TopicPartition, BrokerError] = {}
    for answer in reply.replica_election_results:
        for result in answer.partition_result:
            partition = TopicPartition(answer.topic, result.partition_id)
            error = refusal(result.error_code, str(partition), result.error_message)
            if error is None or error.code is ErrorCode.ELECTION_NOT_NEEDED:
                elected[partition] = error is None
            else:
                errors[partition] = error
    return settle(elected, errors)


def alter_reassignments(
    caller: Caller,
    moves: Mapping[TopicPartition, Sequence[int] | None],
    *,
    may_change_replication_factor: bool,
) -> None:
    """See Admin.alter_reassignments."""
    topics: dict[str, ReassignableTopic] = {}
    for (topic, number), replicas in moves.items():
        moved = ReassignablePartition(number, None if replicas is None else list(replicas))
        topics.setdefault(topic, ReassignableTopic(topic, [])).partitions.append(moved)
    request = AlterPartitionReassignmentsRequest(
        caller.settings.request_timeout_ms, may_change_replication_factor, list(topics.values())
    )
    reply = caller.call(request, AlterPartitionReassignmentsResponse, caller.deadline())
    raise_for(reply.error_code, "reassignments", reply.error_message)
    results = {
        (at := TopicPartition(topic.name, p.partition_index)): refusal(p.error_code, str(at), p.error_message)
        for topic in reply.responses
        for p in topic.partitions
    }
    settle(
        {at: None for at, error in results.items() if error is None},
        {at: error for at, error in results.items() if error is not None},
    )


def list_reassignments(
    caller: Caller, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, Reassignment]:
    """See Admin.list_reassignments."""
    topics: dict[str, ListPartitionReassignmentsTopics] = {}
    for topic, number in partitions or ():
        topics.setdefault(topic, ListPartitionReassignmentsTopics(topic, [])).partition_indexes.append(number)
    request = ListPartitionReassignmentsRequest(
        caller.settings.request_timeout_ms, None if partitions is None else list(topics.values())
    )
    reply = caller.ask(
        request, ListPartitionReassignmentsResponse, caller.deadline(), lambda reply: [reply.error_code]
    )
    found = {
        TopicPartition(topic.name, p.partition_index): Reassignment(
            *(tuple(map(NodeId, nodes)) for nodes in (p.replicas, p.adding_replicas, p.removing_replicas))
        )
        for topic in reply.topics
        for p in topic.partitions
    }
    return {partition: found[partition] for partition in sorted(found)}
