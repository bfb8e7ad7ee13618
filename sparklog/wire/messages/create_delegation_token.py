"""Creates a token by which clients authenticate as a principal; v3 can create it for another owner."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import (
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    NullableStr,
    Str,
    Versions,
    essential,
    since,
)


class CreatableRenewers(Message):
    principal_type: Str = ""
    principal_name: Str = ""


class CreateDelegationTokenRequest(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    owner_principal_type: Annotated[NullableStr, since(3), essential] = ""
    owner_principal_name: Annotated[NullableStr, since(3), essential] = ""
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    error_code: Int16 = 0
    principal_type: Str = ""
    principal_name: Str = ""
    token_requester_principal_type: Annotated[Str, since(3)] = ""
    token_requester_principal_name: Annotated[Str, since(3)] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: Str = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
