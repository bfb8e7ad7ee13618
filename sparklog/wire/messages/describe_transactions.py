"""State and partitions of transactions by transactional id (KIP-664)."""

from typing import ClassVar

from sparklog.wire.schema import Int16, Int32, Int64, Message, Str, Versions


class DescribeTransactionsRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    transactional_ids: list[Str] = []


class TopicData(Message):
    topic: Str = ""
    partitions: list[Int32] = []


class TransactionState(Message):
    error_code: Int16 = 0
    transactional_id: Str = ""
    transaction_state: Str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


class DescribeTransactionsResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []
