"""Appends record batches to partitions, one batch per partition.

With acks 0 there is no reply, with 1 the leader acknowledges, with -1 all in-sync replicas. v7 allows zstd,
v9 is flexible, v10 has the new leader in the reply, v12 adds the partitions to the transaction (KIP-890), v13
has topic ids.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Records,
    Str,
    Uuid,
    Versions,
    since,
    tagged,
    until,
)


class PartitionProduceData(Message):
    index: Int32 = 0
    records: Records = None


class TopicProduceData(Message):
    name: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(Message):
    versions: ClassVar = Versions(3, 13, flexible=9)

    transactional_id: NullableStr = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Message):
    batch_index: Int32 = 0
    batch_index_error_message: NullableStr = None


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Message):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], since(8)] = []
    error_message: Annotated[NullableStr, since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, since(10), tagged(0)] = None


class TopicProduceResponse(Message):
    name: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: Str = ""
    port: Int32 = 0
    rack: NullableStr = None


class ProduceResponse(Message):
    versions: ClassVar = Versions(3, 13, flexible=9)

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], since(10), tagged(0)] = []
