"""Exchanges SASL tokens; v1 has the lifetime of the session, after which the client authenticates again."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bytes, Int16, Int64, Message, NullableStr, Versions, since


class SaslAuthenticateRequest(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Message):
    versions: ClassVar = Versions(0, 2, flexible=2)

    error_code: Int16 = 0
    error_message: NullableStr = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0
