"""Creates the stored state of share partitions (KIP-932)."""

from typing import ClassVar

from sparklog.wire.schema import ZERO_UUID, Int16, Int32, Int64, Message, NullableStr, Str, Uuid, Versions


class PartitionData(Message):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class InitializeShareGroupStateRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    group_id: Str = ""
    topics: list[InitializeStateData] = []


class PartitionResult(Message):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None


class InitializeStateResult(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class InitializeShareGroupStateResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    results: list[InitializeStateResult] = []
