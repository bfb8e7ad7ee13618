"""Transactions of this coordinator, filtered by state, producer id, duration (v1) and a pattern (v2)."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Int16, Int32, Int64, Message, NullableStr, Str, Versions, essential, since


class ListTransactionsRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    state_filters: list[Str] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Annotated[Int64, since(1), essential] = -1
    transactional_id_pattern: Annotated[NullableStr, since(2), essential] = None


class TransactionState(Message):
    transactional_id: Str = ""
    producer_id: Int64 = 0
    transaction_state: Str = ""


class ListTransactionsResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[Str] = []
    transaction_states: list[TransactionState] = []
