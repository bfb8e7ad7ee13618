"""The transaction coordinator has partition leaders write COMMIT or ABORT markers; v2 has the transaction
version (KIP-1228).
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bool, Int8, Int16, Int32, Int64, Message, Str, Versions, since


class WritableTxnMarkerTopic(Message):
    name: Str = ""
    partition_indexes: list[Int32] = []


class WritableTxnMarker(Message):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, since(2)] = 0


class WriteTxnMarkersRequest(Message):
    versions: ClassVar = Versions(1, 2, flexible=1)

    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Message):
    name: Str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(Message):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(Message):
    versions: ClassVar = Versions(1, 2, flexible=1)

    markers: list[WritableTxnMarkerResult] = []
