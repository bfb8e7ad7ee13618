"""A raft leader resigns and names its preferred successors, best first (KIP-595)."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Uint16,
    Uuid,
    Versions,
    since,
    tagged,
    until,
)


class ReplicaInfo(Message):
    candidate_id: Int32 = 0
    candidate_directory_id: Uuid = ZERO_UUID


class EndQuorumEpochRequestPartitionData(Message):
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    preferred_successors: Annotated[list[Int32], until(0)] = []
    preferred_candidates: Annotated[list[ReplicaInfo], since(1)] = []


class EndQuorumEpochRequestTopicData(Message):
    topic_name: Str = ""
    partitions: list[EndQuorumEpochRequestPartitionData] = []


class LeaderEndpoint(Message):
    name: Str = ""
    host: Str = ""
    port: Uint16 = 0


class EndQuorumEpochRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    cluster_id: NullableStr = None
    topics: list[EndQuorumEpochRequestTopicData] = []
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1)] = []


class EndQuorumEpochResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class EndQuorumEpochResponseTopicData(Message):
    topic_name: Str = ""
    partitions: list[EndQuorumEpochResponsePartitionData] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: Str = ""
    port: Uint16 = 0


class EndQuorumEpochResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    error_code: Int16 = 0
    topics: list[EndQuorumEpochResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tagged(0)] = []
