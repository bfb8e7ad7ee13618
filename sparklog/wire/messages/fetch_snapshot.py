"""A raft follower whose log has fallen behind the leader's log start reads a snapshot of the metadata log, by
position (KIP-630).
"""

from typing import Annotated, ClassVar

from msgspec import field

from sparklog.wire.schema import (
    INT32_MAX,
    NEVER,
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Records,
    Str,
    Uint16,
    Uuid,
    Versions,
    nullable,
    since,
    tagged,
)


class SnapshotId(Message):
    end_offset: Int64 = 0
    epoch: Int32 = 0


class FetchSnapshotRequestPartitionSnapshot(Message):
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    position: Int64 = 0
    replica_directory_id: Annotated[Uuid, since(1), tagged(0)] = ZERO_UUID


class FetchSnapshotRequestTopicSnapshot(Message):
    name: Str = ""
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = []


class FetchSnapshotRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    cluster_id: Annotated[NullableStr, tagged(0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = INT32_MAX
    topics: list[FetchSnapshotRequestTopicSnapshot] = []


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class FetchSnapshotResponsePartitionSnapshot(Message):
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    current_leader: Annotated[LeaderIdAndEpoch | None, tagged(0)] = None
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: Annotated[Records, nullable(NEVER)] = b""


class FetchSnapshotResponseTopicSnapshot(Message):
    name: Str = ""
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = []


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: Str = ""
    port: Uint16 = 0


class FetchSnapshotResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[FetchSnapshotResponseTopicSnapshot] = []
    node_endpoints: Annotated[list[NodeEndpoint], since(1), tagged(0)] = []
