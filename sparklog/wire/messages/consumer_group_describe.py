"""State and members of groups of the new protocol (KIP-848); v1 distinguishes classic members from new ones
(KIP-1099).
"""

from typing import Annotated, ClassVar

from msgspec import field

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
    since,
)


class ConsumerGroupDescribeRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    group_ids: list[Str] = []
    include_authorized_operations: Bool = False


class TopicPartitions(Message):
    topic_id: Uuid = ZERO_UUID
    topic_name: Str = ""
    partitions: list[Int32] = []


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = []


class Member(Message):
    member_id: Str = ""
    instance_id: NullableStr = None
    rack_id: NullableStr = None
    member_epoch: Int32 = 0
    client_id: Str = ""
    client_host: Str = ""
    subscribed_topic_names: list[Str] = []
    subscribed_topic_regex: NullableStr = None
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    member_type: Annotated[Int8, since(1)] = -1


class DescribedGroup(Message):
    error_code: Int16 = 0
    error_message: NullableStr = None
    group_id: Str = ""
    group_state: Str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: Str = ""
    members: list[Member] = []
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
