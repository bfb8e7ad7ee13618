"""Brokers, topics and partition leaders.

Null topics means all topics (an empty list in v0). v4 lets the client forbid auto-creation, v10 and v12 have
topic ids, v13 has an error for the whole reply (the client must start over from its bootstrap servers).
"""

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
    essential,
    nullable,
    since,
    until,
)


class MetadataRequestTopic(Message):
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    name: Annotated[NullableStr, nullable(10)] = ""


class MetadataRequest(Message):
    versions: ClassVar = Versions(0, 13, flexible=9)

    topics: Annotated[list[MetadataRequestTopic] | None, nullable(1)] = []
    allow_auto_topic_creation: Annotated[Bool, since(4), essential] = True
    include_cluster_authorized_operations: Annotated[Bool, since(8), until(10), essential] = False
    include_topic_authorized_operations: Annotated[Bool, since(8), essential] = False


class MetadataResponseBroker(Message):
    node_id: Int32 = 0
    host: Str = ""
    port: Int32 = 0
    rack: Annotated[NullableStr, since(1)] = None


class MetadataResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], since(5)] = []


class MetadataResponseTopic(Message):
    error_code: Int16 = 0
    name: Annotated[NullableStr, nullable(12)] = ""
    topic_id: Annotated[Uuid, since(10)] = ZERO_UUID
    is_internal: Annotated[Bool, since(1)] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


class MetadataResponse(Message):
    versions: ClassVar = Versions(0, 13, flexible=9)

    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[NullableStr, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, since(8), until(10)] = -2147483648
    error_code: Annotated[Int16, since(13)] = 0
