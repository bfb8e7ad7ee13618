"""State, topology and members of Kafka Streams groups (KIP-1071)."""

from typing import Annotated, ClassVar

from msgspec import field

from sparklog.wire.schema import (
    Bool,
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


class StreamsGroupDescribeRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    group_ids: list[Str] = []
    include_authorized_operations: Bool = False


class KeyValue(Message):
    key: Str = ""
    value: Str = ""


class TopicInfo(Message):
    name: Str = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: list[KeyValue] = []


class Subtopology(Message):
    subtopology_id: Str = ""
    source_topics: list[Str] = []
    repartition_sink_topics: list[Str] = []
    state_changelog_topics: list[TopicInfo] = []
    repartition_source_topics: list[TopicInfo] = []


class Topology(Message):
    epoch: Int32 = 0
    subtopologies: Annotated[list[Subtopology] | None, nullable()] = None


class Endpoint(Message):
    host: Str = ""
    port: Uint16 = 0


class TaskOffset(Message):
    subtopology_id: Str = ""
    partition: Int32 = 0
    offset: Int64 = 0


class TaskIds(Message):
    subtopology_id: Str = ""
    partitions: list[Int32] = []


class Assignment(Message):
    active_tasks: list[TaskIds] = []
    standby_tasks: list[TaskIds] = []
    warmup_tasks: list[TaskIds] = []


class Member(Message):
    member_id: Str = ""
    member_epoch: Int32 = 0
    instance_id: NullableStr = None
    rack_id: NullableStr = None
    client_id: Str = ""
    client_host: Str = ""
    topology_epoch: Int32 = 0
    process_id: Str = ""
    user_endpoint: Annotated[Endpoint | None, nullable()] = None
    client_tags: list[KeyValue] = []
    task_offsets: list[TaskOffset] = []
    task_end_offsets: list[TaskOffset] = []
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    is_classic: Bool = False


class DescribedGroup(Message):
    error_code: Int16 = 0
    error_message: NullableStr = None
    group_id: Str = ""
    group_state: Str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: Annotated[Topology | None, nullable()] = None
    members: list[Member] = []
    authorized_operations: Int32 = -2147483648


class StreamsGroupDescribeResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
