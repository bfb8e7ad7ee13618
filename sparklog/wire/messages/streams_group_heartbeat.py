"""Membership and task assignment of Kafka Streams groups (KIP-1071).

A member sends its topology when it joins; fields that did not change may be null.
"""

from typing import Annotated, ClassVar

from msgspec import field

from sparklog.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Str,
    Uint16,
    Versions,
    nullable,
)


class KeyValue(Message):
    key: Str = ""
    value: Str = ""


class TopicInfo(Message):
    name: Str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = []


class CopartitionGroup(Message):
    source_topics: list[Int16] = []
    source_topic_regex: list[Int16] = []
    repartition_source_topics: list[Int16] = []


class Subtopology(Message):
    subtopology_id: Str = ""
    source_topics: list[Str] = []
    source_topic_regex: list[Str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_sink_topics: list[Str] = []
    repartition_source_topics: list[TopicInfo] = []
    copartition_groups: list[CopartitionGroup] = []


class Topology(Message):
    epoch: Int32 = 0
    subtopologies: list[Subtopology] = []


class TaskIds(Message):
    subtopology_id: Str = ""
    partitions: list[Int32] = []


class Endpoint(Message):
    host: Str = ""
    port: Uint16 = 0


class TaskOffset(Message):
    subtopology_id: Str = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupHeartbeatRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    group_id: Str = ""
    member_id: Str = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: NullableStr = None
    rack_id: NullableStr = None
    rebalance_timeout_ms: Int32 = -1
    topology: Annotated[Topology | None, nullable()] = None
    active_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    standby_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    warmup_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    process_id: NullableStr = None
    user_endpoint: Annotated[Endpoint | None, nullable()] = None
    client_tags: Annotated[list[KeyValue] | None, nullable()] = None
    task_offsets: Annotated[list[TaskOffset] | None, nullable()] = None
    task_end_offsets: Annotated[list[TaskOffset] | None, nullable()] = None
    shutdown_application: Bool = False


class Status(Message):
    status_code: Int8 = 0
    status_detail: Str = ""


class TopicPartition(Message):
    topic: Str = ""
    partitions: list[Int32] = []


class EndpointToPartitions(Message):
    user_endpoint: Endpoint = field(default_factory=Endpoint)
    active_partitions: list[TopicPartition] = []
    standby_partitions: list[TopicPartition] = []


class StreamsGroupHeartbeatResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None
    member_id: Str = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: Annotated[list[Status] | None, nullable()] = []
    active_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    standby_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    warmup_tasks: Annotated[list[TaskIds] | None, nullable()] = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: Annotated[list[EndpointToPartitions] | None, nullable()] = None
