"""Raises the number of partitions of topics; it never falls.

A null assignment leaves the placement of the new partitions to the controller.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bool, Int16, Int32, Message, NullableStr, Str, Versions, nullable


class CreatePartitionsAssignment(Message):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Message):
    name: Str = ""
    count: Int32 = 0
    assignments: Annotated[list[CreatePartitionsAssignment] | None, nullable()] = []


class CreatePartitionsRequest(Message):
    versions: ClassVar = Versions(0, 3, flexible=2)

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Message):
    name: Str = ""
    error_code: Int16 = 0
    error_message: NullableStr = None


class CreatePartitionsResponse(Message):
    versions: ClassVar = Versions(0, 3, flexible=2)

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []
