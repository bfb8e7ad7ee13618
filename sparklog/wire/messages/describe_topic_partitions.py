"""The partitions of topics, page by page from a cursor on, with eligible leader replicas (KIP-966)."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Uuid,
    Versions,
    nullable,
)


class TopicRequest(Message):
    name: Str = ""


class Cursor(Message):
    topic_name: Str = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: Annotated[Cursor | None, nullable()] = None


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, nullable()] = None
    last_known_elr: Annotated[list[Int32] | None, nullable()] = None
    offline_replicas: list[Int32] = []


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: Int16 = 0
    name: NullableStr = ""
    topic_id: Uuid = ZERO_UUID
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Annotated[Cursor | None, nullable()] = None
