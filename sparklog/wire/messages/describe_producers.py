"""The active producers of partitions, for the search of hanging transactions (KIP-664)."""

from typing import ClassVar

from sparklog.wire.schema import Int16, Int32, Int64, Message, NullableStr, Str, Versions


class TopicRequest(Message):
    name: Str = ""
    partition_indexes: list[Int32] = []


class DescribeProducersRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    topics: list[TopicRequest] = []


class ProducerState(Message):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = None
    active_producers: list[ProducerState] = []


class TopicResponse(Message):
    name: Str = ""
    partitions: list[PartitionResponse] = []


class DescribeProducersResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []
