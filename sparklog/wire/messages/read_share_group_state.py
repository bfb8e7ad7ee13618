"""Reads the stored delivery state of share partitions (KIP-932)."""

from typing import ClassVar

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
)


class PartitionData(Message):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class ReadShareGroupStateRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    group_id: Str = ""
    topics: list[ReadStateData] = []


class StateBatch(Message):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionResult(Message):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = []


class ReadStateResult(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class ReadShareGroupStateResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    results: list[ReadStateResult] = []
