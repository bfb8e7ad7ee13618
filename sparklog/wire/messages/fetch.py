"""Reads record batches; consumers, follower replicas and raft nodes use the same request.

v7 has incremental sessions (KIP-227), v9 leader epochs, v11 the rack and preferred read replica, v12 the
diverging epoch at which raft nodes and followers truncate, v13 topic ids, v15 the replica state, v17 the
directory id of a raft replica, v18 its high watermark.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    INT32_MAX,
    INT64_MAX,
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Records,
    Str,
    Uuid,
    Versions,
    essential,
    nullable,
    since,
    tagged,
    until,
)


class ReplicaState(Message):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Message):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, since(12), essential] = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, since(17), tagged(0)] = ZERO_UUID
    high_watermark: Annotated[Int64, since(18), tagged(1)] = INT64_MAX


class FetchTopic(Message):
    topic: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Message):
    topic: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[Int32] = []


class FetchRequest(Message):
    versions: ClassVar = Versions(4, 18, flexible=12)

    cluster_id: Annotated[NullableStr, since(12), tagged(0)] = None
    replica_id: Annotated[Int32, until(14), essential] = -1
    replica_state: Annotated[ReplicaState | None, since(15), tagged(1), essential] = None
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = INT32_MAX
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, since(7)] = 0
    session_epoch: Annotated[Int32, since(7)] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], since(7), essential] = []
    rack_id: Annotated[Str, since(11)] = ""


class EpochEndOffset(Message):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Message):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Message):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, since(5)] = -1
    diverging_epoch: Annotated[EpochEndOffset | None, since(12), tagged(0)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, since(12), tagged(1)] = None
    snapshot_id: Annotated[SnapshotId | None, since(12), tagged(2)] = None
    aborted_transactions: Annotated[list[AbortedTransaction] | None, nullable()] = []
    preferred_read_replica: Annotated[Int32, since(11)] = -1
    records: Records = None


class FetchableTopicResponse(Message):
    topic: Annotated[Str, until(12)] = ""
    topic_id: Annotated[Uuid, since(13)] = ZERO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: Str = ""
    port: Int32 = 0
    rack: NullableStr = None


class FetchResponse(Message):
    versions: ClassVar = Versions(4, 18, flexible=12)

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(7)] = 0
    session_id: Annotated[Int32, since(7)] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(16), tagged(0)] = []
