"""Deletes the stored state of share partitions (KIP-932)."""

from typing import ClassVar

from sparklog.wire.schema import ZERO_UUID, Int16, Int32, Message, NullableStr, Str, Uuid, Versions


class PartitionData(Message):
    partition: Int32 = 0


class DeleteStateData(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class DeleteShareGroupStateRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    group_id: Str = ""
    topics: list[DeleteStateData] = []


class PartitionResult(Message):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None


class DeleteStateResult(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class DeleteShareGroupStateResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    results: list[DeleteStateResult] = []
