"""State and members of share groups (KIP-932)."""

from typing import ClassVar

from msgspec import field

from sparklog.wire.schema import ZERO_UUID, Bool, Int16, Int32, Message, NullableStr, Str, Uuid, Versions


class ShareGroupDescribeRequest(Message):
    versions: ClassVar = Versions(1, 1, flexible=0)

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
    rack_id: NullableStr = None
    member_epoch: Int32 = 0
    client_id: Str = ""
    client_host: Str = ""
    subscribed_topic_names: list[Str] = []
    assignment: Assignment = field(default_factory=Assignment)


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


class ShareGroupDescribeResponse(Message):
    versions: ClassVar = Versions(1, 1, flexible=0)

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
