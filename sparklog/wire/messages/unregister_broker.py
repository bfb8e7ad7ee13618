"""Removes a broker that will not return from the cluster metadata."""

from typing import ClassVar

from sparklog.wire.schema import Int16, Int32, Message, NullableStr, Versions


class UnregisterBrokerRequest(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    broker_id: Int32 = 0


class UnregisterBrokerResponse(Message):
    versions: ClassVar = Versions(0, 0, flexible=0)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableStr = ""
