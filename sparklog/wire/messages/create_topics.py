"""Creates topics, by partition count and replication factor or by an explicit assignment of replicas.

-1 for either number is the broker's default. v5 replies with the topic's configuration, v7 with its id.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Uuid,
    Versions,
    nullable,
    since,
    tagged,
)


class CreatableReplicaAssignment(Message):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Message):
    name: Str = ""
    value: NullableStr = ""


class CreatableTopic(Message):
    name: Str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(Message):
    versions: ClassVar = Versions(2, 7, flexible=5)

    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Message):
    name: Str = ""
    value: NullableStr = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Message):
    name: Str = ""
    topic_id: Annotated[Uuid, since(7)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: NullableStr = ""
    topic_config_error_code: Annotated[Int16, since(5), tagged(0)] = 0
    num_partitions: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, since(5), nullable()] = []


class CreateTopicsResponse(Message):
    versions: ClassVar = Versions(2, 7, flexible=5)

    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []
