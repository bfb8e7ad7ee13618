"""Extends the expiry time of a delegation token."""

from typing import ClassVar

from sparklog.wire.schema import Bytes, Int16, Int32, Int64, Message, Versions


class RenewDelegationTokenRequest(Message):
    versions: ClassVar = Versions(1, 2, flexible=2)

    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(Message):
    versions: ClassVar = Versions(1, 2, flexible=2)

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
