"""The only request of the new consumer group protocol (KIP-848): members join, stay, leave, and get their
assignments.

Fields that did not change since the last heartbeat may be null. v1 subscribes by regular expression and
makes the client choose its member id (KIP-1082).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
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
)


class TopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    group_id: Str = ""
    member_id: Str = ""
    member_epoch: Int32 = 0
    instance_id: NullableStr = None
    rack_id: NullableStr = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Annotated[list[Str] | None, nullable()] = None
    subscribed_topic_regex: Annotated[NullableStr, since(1), essential] = None
    server_assignor: NullableStr = None
    topic_partitions: Annotated[list[TopicPartitions] | None, nullable()] = None


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = []


class ConsumerGroupHeartbeatResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None
    member_id: NullableStr = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Annotated[Assignment | None, nullable()] = None
