"""Deletes a group's committed offsets for partitions that it is not subscribed to."""

from typing import ClassVar

from sparklog.wire.schema import Int16, Int32, Message, Str, Versions


class OffsetDeleteRequestPartition(Message):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Message):
    name: Str = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(Message):
    versions: ClassVar = Versions(0, 0)

    group_id: Str = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Message):
    name: Str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(Message):
    versions: ClassVar = Versions(0, 0)

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []
