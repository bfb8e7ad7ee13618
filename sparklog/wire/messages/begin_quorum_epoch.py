"""A new raft leader announces its epoch to the voters (KIP-595); v1 has its endpoints (KIP-853)."""

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
)


class BeginQuorumEpochRequestPartitionData(Message):
    partition_index: Int32 = 0
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class BeginQuorumEpochRequestTopicData(Message):
    topic_name: Str = ""
    partitions: list[BeginQuorumEpochRequestPartitionData] = []


class LeaderEndpoint(Message):
    name: Str = ""
    host: Str = ""
    port: Uint16 = 0


class BeginQuorumEpochRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    cluster_id: NullableStr = None
    voter_id: Annotated[Int32, since(1)] = -1
    topics: list[BeginQuorumEpochRequestTopicData] = []
    leader_endpoints: Annotated[list[LeaderEndpoint], since(1)] = []


class BeginQuorumEpochResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class BeginQuorumEpochResponseTopicData(Message):
    topic_name: Str = ""
    partitions: list[BeginQuorumEpochResponsePartitionData] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: Str = ""
    port: Uint16 = 0


class BeginQuorumEpochResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=1)

    error_code: Int16 = 0
    topics: list[BeginQuorumEpochResponseTopicData] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tagged(0)] = []
