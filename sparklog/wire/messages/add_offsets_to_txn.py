"""Adds the offsets partition of a group to a transaction before offsets are committed in it."""

from typing import ClassVar

from sparklog.wire.schema import Int16, Int32, Int64, Message, Str, Versions


class AddOffsetsToTxnRequest(Message):
    versions: ClassVar = Versions(0, 4, flexible=3)

    transactional_id: Str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: Str = ""


class AddOffsetsToTxnResponse(Message):
    versions: ClassVar = Versions(0, 4, flexible=3)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
