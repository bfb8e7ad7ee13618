"""Elects the preferred replica, or an unclean leader (v1), for partitions; null means all partitions."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Int8,
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


class TopicPartitions(Message):
    topic: Str = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    election_type: Annotated[Int8, since(1), essential] = 0
    topic_partitions: Annotated[list[TopicPartitions] | None, nullable()] = []
    timeout_ms: Int32 = 60000


class PartitionResult(Message):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""


class ReplicaElectionResult(Message):
    topic: Str = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult] = []
