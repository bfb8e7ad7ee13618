"""Offsets by timestamp; negative timestamps select special offsets of the log.

-1 latest, -2 earliest, -3 the largest timestamp (v7), -4 earliest on local disk (v8), -5 latest tiered (v9),
-6 earliest pending upload (v11). From v10 on the client sets a time limit for a search in tiered storage.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int8, Int16, Int32, Int64, Message, Str, Versions, essential, since


class ListOffsetsPartition(Message):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, since(4)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Message):
    name: Str = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(Message):
    versions: ClassVar = Versions(1, 11, flexible=6)

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, since(2), essential] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, since(10)] = 0


class ListOffsetsPartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, since(4)] = -1


class ListOffsetsTopicResponse(Message):
    name: Str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(Message):
    versions: ClassVar = Versions(1, 11, flexible=6)

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[ListOffsetsTopicResponse] = []
