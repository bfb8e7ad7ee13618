"""Adds partitions to a transaction before they are written to.

Up to v3 a client's request has one transaction (the fields named "v3 and below"); from v4 on a broker's
request has several, and may only verify (KIP-890).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bool, Int16, Int32, Int64, Message, Str, Versions, essential, since, until


class AddPartitionsToTxnTopic(Message):
    name: Str = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnTransaction(Message):
    transactional_id: Str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnRequest(Message):
    versions: ClassVar = Versions(0, 5, flexible=3)

    transactions: Annotated[list[AddPartitionsToTxnTransaction], since(4), essential] = []
    v3_and_below_transactional_id: Annotated[Str, until(3), essential] = ""
    v3_and_below_producer_id: Annotated[Int64, until(3), essential] = 0
    v3_and_below_producer_epoch: Annotated[Int16, until(3), essential] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], until(3), essential] = []


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Message):
    name: Str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(Message):
    transactional_id: Str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnResponse(Message):
    versions: ClassVar = Versions(0, 5, flexible=3)

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4)] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], since(4)] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], until(3)] = []
