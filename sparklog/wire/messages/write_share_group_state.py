"""Stores the delivery state of share partitions (KIP-932); v1 counts completed deliveries (KIP-1226)."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    ZERO_UUID,
    Int8,
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


class StateBatch(Message):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionData(Message):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Annotated[Int32, since(1)] = -1
    state_batches: list[StateBatch] = []


class WriteStateData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class WriteShareGroupStateRequest(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    group_id: Str = ""
    topics: list[WriteStateData] = []


class PartitionResult(Message):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None


class WriteStateResult(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class WriteShareGroupStateResponse(Message):
    versions: ClassVar = Versions(0, 1, flexible=0)

    results: list[WriteStateResult] = []
