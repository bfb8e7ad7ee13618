"""Commits or aborts a transaction; from v5 on the reply carries the bumped producer epoch (KIP-890)."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bool, Int16, Int32, Int64, Message, Str, Versions, since


class EndTxnRequest(Message):
    versions: ClassVar = Versions(0, 5, flexible=3)

    transactional_id: Str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Message):
    versions: ClassVar = Versions(0, 5, flexible=3)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5)] = -1
    producer_epoch: Annotated[Int16, since(5)] = -1
