"""Reads start offset and epochs of share partitions without the delivery state (KIP-932); v1 counts
completed deliveries (KIP-1226).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Str,
    Uuid,
    Versions,
    since,
)


class PartitionData(Message):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class ReadShareGroupStateSummaryRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    group_id: Str = ""
    topics: list[ReadStateSummaryData] = []


class PartitionResult(Message):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, since(1)] = -1


class ReadStateSummaryResult(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class ReadShareGroupStateSummaryResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    results: list[ReadStateSummaryResult] = []
