"""Delegation tokens by owner; null owners mean all. v3 adds the requester of a token."""

from typing import Annotated, ClassVar

from sparklog.wire.schema import Bytes, Int16, Int32, Int64, Message, Str, Versions, nullable, since


class DescribeDelegationTokenOwner(Message):
    principal_type: Str = ""
    principal_name: Str = ""


class DescribeDelegationTokenRequest(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    owners: Annotated[list[DescribeDelegationTokenOwner] | None, nullable()] = []


class DescribedDelegationTokenRenewer(Message):
    principal_type: Str = ""
    principal_name: Str = ""


class DescribedDelegationToken(Message):
    principal_type: Str = ""
    principal_name: Str = ""
    token_requester_principal_type: Annotated[Str, since(3)] = ""
    token_requester_principal_name: Annotated[Str, since(3)] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: Str = ""
    hmac: Bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribeDelegationTokenResponse(Message):
    versions: ClassVar = Versions(1, 3, flexible=2)

    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0
