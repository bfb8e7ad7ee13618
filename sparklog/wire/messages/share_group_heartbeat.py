"""Membership and assignment of share groups, as ConsumerGroupHeartbeat (KIP-932). v0 was an early version
and is gone.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import ZERO_UUID, Int16, Int32, Message, NullableStr, Str, Uuid, Versions, nullable


class ShareGroupHeartbeatRequest(Message):
    versions: ClassVar = Versions(1, 1, flexible=0)

    group_id: Str = ""
    member_id: Str = ""
    member_epoch: Int32 = 0
    rack_id: NullableStr = None
    subscribed_topic_names: Annotated[list[Str] | None, nullable()] = None


class TopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = []


class ShareGroupHeartbeatResponse(Message):
    versions: ClassVar = Versions(1, 1, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None
    member_id: NullableStr = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Annotated[Assignment | None, nullable()] = None
