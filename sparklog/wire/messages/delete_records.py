"""Moves the log start offset of partitions forward; -1 stands for the high watermark."""

from typing import ClassVar

from sparklog.wire.schema import Int16, Int32, Int64, Message, Str, Versions


class DeleteRecordsPartition(Message):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Message):
    name: Str = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Message):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Message):
    name: Str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
