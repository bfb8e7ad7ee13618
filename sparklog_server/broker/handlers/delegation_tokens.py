"""Delegation tokens (KIP-48): an unauthenticated session may not request them, as in Kafka on a plain
listener.
"""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from sparklog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from sparklog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from sparklog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call

_REFUSED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_NO_TIMESTAMP = -1


def create_delegation_token(
    context: Context, call: Call, request: CreateDelegationTokenRequest, now: Instant
) -> CreateDelegationTokenResponse:
    """Create a token; the refusal names the requested owner, else the caller."""
    requester_type, _, requester_name = call.principal.partition(":")
    owner = requester_type, requester_name
    if request.owner_principal_type and request.owner_principal_name:
        owner = request.owner_principal_type, request.owner_principal_name
    return CreateDelegationTokenResponse(
        error_code=_REFUSED,
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=_NO_TIMESTAMP,
        expiry_timestamp_ms=_NO_TIMESTAMP,
        max_timestamp_ms=_NO_TIMESTAMP,
    )


def renew_delegation_token(
    context: Context, call: Call, request: RenewDelegationTokenRequest, now: Instant
) -> RenewDelegationTokenResponse:
    """Renew a token."""
    return RenewDelegationTokenResponse(error_code=_REFUSED, expiry_timestamp_ms=_NO_TIMESTAMP)


def expire_delegation_token(
    context: Context, call: Call, request: ExpireDelegationTokenRequest, now: Instant
) -> ExpireDelegationTokenResponse:
    """Change when a token expires."""
    return ExpireDelegationTokenResponse(error_code=_REFUSED, expiry_timestamp_ms=_NO_TIMESTAMP)


def describe_delegation_token(
    context: Context, call: Call, request: DescribeDelegationTokenRequest, now: Instant
) -> DescribeDelegationTokenResponse:
    """List tokens by owner."""
    return DescribeDelegationTokenResponse(error_code=_REFUSED)
