"""Commits offsets within a transaction; they become visible when it commits.

v2 adds leader epochs, v3 fences by generation and member; v5 includes AddOffsetsToTxn (KIP-890).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int16, Int32, Int64, Message, NullableStr, Str, Versions, essential, since


class TxnOffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(2)] = -1
    committed_metadata: NullableStr = ""


class TxnOffsetCommitRequestTopic(Message):
    name: Str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(Message):
    versions: ClassVar = Versions(0, 5, flexible=3)

    transactional_id: Str = ""
    group_id: Str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, since(3), essential] = -1
    member_id: Annotated[Str, since(3), essential] = ""
    group_instance_id: Annotated[NullableStr, since(3), essential] = None
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Message):
    name: Str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(Message):
    versions: ClassVar = Versions(0, 5, flexible=3)

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
