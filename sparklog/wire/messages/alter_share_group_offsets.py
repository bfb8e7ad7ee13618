"""Moves the start offsets of an empty share group (KIP-932)."""

from typing import ClassVar

from sparklog.wire.schema import ZERO_UUID, Int16, Int32, Int64, Message, NullableStr, Str, Uuid, Versions


class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: Str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


class AlterShareGroupOffsetsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    group_id: Str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None


class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: Str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


class AlterShareGroupOffsetsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []
