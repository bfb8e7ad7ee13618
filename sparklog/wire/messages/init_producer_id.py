"""Assigns a producer id, or bumps the epoch of a transactional id, which fences older producers.

v3 has the producer's current id and epoch; v6 adds two-phase commit (KIP-939) and is not stable in Kafka 4.3.
"""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bool, Int16, Int32, Int64, Message, NullableStr, Versions, essential, since


class InitProducerIdRequest(Message):
    versions: ClassVar = Versions(0, 6, flexible=2)

    transactional_id: NullableStr = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, since(3), essential] = -1
    producer_epoch: Annotated[Int16, since(3), essential] = -1
    enable2_pc: Annotated[Bool, since(6), essential] = False
    keep_prepared_txn: Annotated[Bool, since(6), essential] = False


class InitProducerIdResponse(Message):
    versions: ClassVar = Versions(0, 6, flexible=2)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, since(6)] = -1
