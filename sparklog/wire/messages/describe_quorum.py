"""Leader, voters and observers of the metadata quorum, with their log end offsets.

v1 adds timestamps (KIP-836), v2 directory ids and endpoints (KIP-853).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Str,
    Uint16,
    Uuid,
    Versions,
    since,
)


class DescribeQuorumRequestPartitionData(Message):
    partition_index: Int32 = 0


class DescribeQuorumRequestTopicData(Message):
    topic_name: Str = ""
    partitions: list[DescribeQuorumRequestPartitionData] = []


class DescribeQuorumRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    topics: list[DescribeQuorumRequestTopicData] = []


class ReplicaState(Message):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(2)] = ZERO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, since(1)] = -1
    last_caught_up_timestamp: Annotated[Int64, since(1)] = -1


class DescribeQuorumResponsePartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[NullableStr, since(2)] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class DescribeQuorumResponseTopicData(Message):
    topic_name: Str = ""
    partitions: list[DescribeQuorumResponsePartitionData] = []


class Listener(Message):
    name: Str = ""
    host: Str = ""
    port: Uint16 = 0


class Node(Message):
    node_id: Int32 = 0
    listeners: list[Listener] = []


class DescribeQuorumResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    error_code: Int16 = 0
    error_message: Annotated[NullableStr, since(2)] = ""
    topics: list[DescribeQuorumResponseTopicData] = []
    nodes: Annotated[list[Node], since(2)] = []
