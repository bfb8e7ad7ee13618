"""Delegation tokens (KIP-48): a client that has authenticated otherwise gets a password for another process.

A session without a user, and one that a token has authenticated, may not request tokens.
"""

from collections.abc import Set
from typing import TYPE_CHECKING, Final, NamedTuple

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from sparklog.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
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
from sparklog.wire.pieces import Pieces
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.session import Call, Parked
from sparklog_server.broker.sliced_requests import SLICE, RequestSlice
from sparklog_server.controller.tokens import owner_of, refusal_of_token
from sparklog_server.metadata.delegation_tokens import is_owner_or_renewer, token_hmac, tokens_in
from sparklog_server.metadata.records import DelegationTokenRecord
from sparklog_server.security import ANONYMOUS

if TYPE_CHECKING:
    from sparklog_server.broker.ports import AdministrationPort


OWNERS_MAX: Final = 1_000
"""The owners that one request may name."""

_TAIL_BYTES: Final = 4  # the throttle time
_REFUSED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def create_delegation_token(
    context: "AdministrationPort", call: Call, request: CreateDelegationTokenRequest, now: Instant
) -> Message | Parked:
    """Create a token of the caller, or of another owner if the caller may create tokens for that user."""
    owner = owner_of(request, call.principal)
    if not _may_request(call):
        return refusal_of_token(request, _REFUSED, call.principal)
    if owner != call.principal and not context.allow(call, Operation.CREATE_TOKENS, Resource.USER, owner):
        return refusal_of_token(request, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, call.principal)
    if any(renewer.principal_type != "User" for renewer in request.renewers):
        return refusal_of_token(request, ErrorCode.INVALID_PRINCIPAL_TYPE, call.principal)
    return context.propose_for(call, request, CreateDelegationTokenResponse, lambda reply: reply, now)


def renew_delegation_token(
    context: "AdministrationPort", call: Call, request: RenewDelegationTokenRequest, now: Instant
) -> Message | Parked:
    """Renew a token."""
    if not _may_request(call):
        return refusal_of_token(request, _REFUSED, call.principal)
    return context.propose_for(call, request, RenewDelegationTokenResponse, lambda reply: reply, now)


def expire_delegation_token(
    context: "AdministrationPort", call: Call, request: ExpireDelegationTokenRequest, now: Instant
) -> Message | Parked:
    """Change when a token expires."""
    if not _may_request(call):
        return refusal_of_token(request, _REFUSED, call.principal)
    return context.propose_for(call, request, ExpireDelegationTokenResponse, lambda reply: reply, now)


def describe_delegation_token(
    context: "AdministrationPort", call: Call, request: DescribeDelegationTokenRequest, now: Instant
) -> Message | Parked:
    """List the tokens of these owners, or of all, that the caller may see. Many are looked through over
    several turns.
    """
    secret = context.settings.sasl.token_secret_key
    if not _may_request(call):
        return DescribeDelegationTokenResponse(error_code=_REFUSED)
    if not secret:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        if len(request.owners) > OWNERS_MAX:
            return DescribeDelegationTokenResponse(error_code=ErrorCode.INVALID_REQUEST)
        owners = frozenset(f"{one.principal_type}:{one.principal_name}" for one in request.owners)
    tokens = list(tokens_in(context.image))
    if len(tokens) <= SLICE:
        response = DescribeDelegationTokenResponse()
        for token in tokens:
            response.tokens += _told(context, call, token, owners, secret).tokens
        return response
    answer = Pieces(DescribeDelegationTokenResponse(), call.api_key, call.version, tail_bytes=_TAIL_BYTES)

    def fold(parts: list[Message]) -> None:
        whole = DescribeDelegationTokenResponse()
        for part in parts:
            assert isinstance(part, DescribeDelegationTokenResponse)
            whole.tokens += part.tokens
        answer.add(whole, len(whole.tokens))

    asks = (_OfToken(context, call, token, owners, secret) for token in tokens)
    return context.slices.add(call, len(tokens), asks, fold, lambda: answer, lambda: answer.size)


class _OfToken(NamedTuple):
    """One token of a response that is made in slices."""

    context: "AdministrationPort"
    call: Call
    token: DelegationTokenRecord
    owners: Set[str] | None
    secret: str

    def send(self, whole: RequestSlice, index: int, now: Instant) -> None:
        whole.put(index, _told(*self))


def _told(
    context: "AdministrationPort",
    call: Call,
    token: DelegationTokenRecord,
    owners: Set[str] | None,
    secret: str,
) -> DescribeDelegationTokenResponse:
    """The token, if it is of these owners and the caller may see it."""
    is_asked = owners is None or token.owner in owners or not owners.isdisjoint(token.renewers)
    shown = [_described(token, secret)] if is_asked and _may_see(context, call, token) else []
    return DescribeDelegationTokenResponse(tokens=shown)


def _may_request(call: Call) -> bool:
    return call.principal != ANONYMOUS and not call.client.is_token_authenticated


def _may_see(context: "AdministrationPort", call: Call, token: DelegationTokenRecord) -> bool:
    return (
        is_owner_or_renewer(token, call.principal)
        or context.may(call, Operation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id)
        or context.may(call, Operation.DESCRIBE_TOKENS, Resource.USER, token.owner)
    )


def _described(token: DelegationTokenRecord, secret: str) -> DescribedDelegationToken:
    owner_type, _, owner = token.owner.partition(":")
    requester_type, _, requester = token.requester.partition(":")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret, token.token_id),
        renewers=[DescribedDelegationTokenRenewer(*one.split(":", 1)) for one in token.renewers],
    )
