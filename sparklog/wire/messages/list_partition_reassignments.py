"""The partition reassignments in progress; null topics mean all."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int16, Int32, Message, NullableStr, Str, Versions, nullable


class ListPartitionReassignmentsTopics(Message):
    name: Str = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    timeout_ms: Int32 = 60000
    topics: Annotated[list[ListPartitionReassignmentsTopics] | None, nullable()] = None


class OngoingPartitionReassignment(Message):
    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Message):
    name: Str = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""
    topics: list[OngoingTopicReassignment] = []
