"""Changes the expiry time of a delegation token, or ends it at once."""

from typing import ClassVar

from sparklog.wire.schema import Bytes, Int16, Int32, Int64, Message, Versions


class ExpireDelegationTokenRequest(Message):
    versions: ClassVar = Versions(1, 2, flexible=2)

    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(Message):
    versions: ClassVar = Versions(1, 2, flexible=2)

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
