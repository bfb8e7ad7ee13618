"""The end offset of an epoch in a leader's log, by which followers truncate and consumers detect data loss
(KIP-101, KIP-320).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int16, Int32, Int64, Message, Str, Versions, since


class OffsetForLeaderPartition(Message):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Message):
    topic: Str = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(Message):
    versions: ClassVar = Versions(2, 4, flexible=4)

    replica_id: Annotated[Int32, since(3)] = -2
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Message):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Message):
    topic: Str = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(Message):
    versions: ClassVar = Versions(2, 4, flexible=4)

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []
