"""Reads the offsets that groups have committed; a null list of topics means all of them.

One group up to v7, many from v8 on. v7 can wait for pending transactions (require_stable), v9 has member
epochs, v10 topic ids.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Str,
    Uuid,
    Versions,
    essential,
    nullable,
    since,
    until,
)


class OffsetFetchRequestTopic(Message):
    name: Str = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestTopics(Message):
    name: Annotated[Str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Message):
    group_id: Str = ""
    member_id: Annotated[NullableStr, since(9)] = None
    member_epoch: Annotated[Int32, since(9)] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, nullable()] = []


class OffsetFetchRequest(Message):
    versions: ClassVar = Versions(1, 10, flexible=6)

    group_id: Annotated[Str, until(7), essential] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, until(7), nullable(2), essential] = []
    groups: Annotated[list[OffsetFetchRequestGroup], since(8), essential] = []
    require_stable: Annotated[Bool, since(7), essential] = False


class OffsetFetchResponsePartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(5)] = -1
    metadata: NullableStr = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Message):
    name: Str = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: NullableStr = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Message):
    name: Annotated[Str, until(9)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(Message):
    group_id: Str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponse(Message):
    versions: ClassVar = Versions(1, 10, flexible=6)

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], until(7)] = []
    error_code: Annotated[Int16, since(2), until(7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], since(8)] = []
