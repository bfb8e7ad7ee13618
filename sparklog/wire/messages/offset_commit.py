"""Commits the offsets of a group.

v5 removes the retention time of the request, v6 adds leader epochs, v7 static members; the new group protocol
requires v9 and up, where the generation is a member epoch (KIP-848). v10 has topic ids.
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
    Uuid,
    Versions,
    essential,
    since,
    until,
)


class OffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(6)] = -1
    committed_metadata: NullableStr = ""


class OffsetCommitRequestTopic(Message):
    name: Annotated[Str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(Message):
    versions: ClassVar = Versions(2, 10, flexible=8)

    group_id: Str = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(7), essential] = None
    retention_time_ms: Annotated[Int64, until(4)] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message):
    name: Annotated[Str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Message):
    versions: ClassVar = Versions(2, 10, flexible=8)

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: list[OffsetCommitResponseTopic] = []
