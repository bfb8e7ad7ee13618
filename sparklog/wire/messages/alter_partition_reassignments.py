"""Moves partitions to other brokers, or cancels that where the replicas are null.

v1 can forbid a change of the replication factor.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Bool,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Versions,
    essential,
    nullable,
    since,
)


class ReassignablePartition(Message):
    partition_index: Int32 = 0
    replicas: Annotated[list[Int32] | None, nullable()] = None


class ReassignableTopic(Message):
    name: Str = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, since(1), essential] = True
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""


class ReassignableTopicResponse(Message):
    name: Str = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    error_code: Int16 = 0
    error_message: NullableStr = ""
    responses: list[ReassignableTopicResponse] = []
