"""Start offsets of the partitions of share groups (KIP-932); v1 adds the lag (KIP-1226)."""

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
    nullable,
    since,
)


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: Str = ""
    partitions: list[Int32] = []


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: Str = ""
    topics: Annotated[list[DescribeShareGroupOffsetsRequestTopic] | None, nullable()] = []


class DescribeShareGroupOffsetsRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, since(1)] = -1
    error_code: Int16 = 0
    error_message: NullableStr = None


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: Str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: Str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: Int16 = 0
    error_message: NullableStr = None


class DescribeShareGroupOffsetsResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []
