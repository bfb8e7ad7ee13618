"""Delegation tokens (KIP-48): records of the metadata log; a token's password is an HMAC of its id.

    create ─► DelegationTokenRecord ─ renew, expire ─► the same with another expiry ─ expired ─► removed

The HMAC by `delegation.token.secret.key` is not in the log (DelegationTokenControlManager).
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Final, TypeAlias

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros
from sparklog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from sparklog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from sparklog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from sparklog.wire.schema import INT64_MAX, Message
from sparklog_server.config.sasl_settings import SaslSettings
from sparklog_server.metadata.delegation_tokens import has_expired, is_owner_or_renewer, token_hmac, tokens_in
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from sparklog_server.outcome import Outcome

TOKENS_MAX: Final = 100_000
RENEWERS_MAX: Final = 100
"""Bounds that Kafka does not have: every node holds the content of the metadata log in memory."""
REMOVED_MAX: Final = 1_000
"""The tokens that one step removes, as in Kafka; the next step follows at once."""

_NONE: Final = -1
_ID_BYTES: Final = 16

TokenCommand: TypeAlias = (
    CreateDelegationTokenRequest | RenewDelegationTokenRequest | ExpireDelegationTokenRequest
)
TokenReply: TypeAlias = (
    CreateDelegationTokenResponse | RenewDelegationTokenResponse | ExpireDelegationTokenResponse
)


class DelegationTokens:
    """Decides on tokens. `due_us` is the time of the next removal of expired ones; None without tokens."""

    def __init__(self, settings: SaslSettings, entropy: Callable[[int], bytes]) -> None:
        self.due_us: Micros | None = None
        self._settings = settings
        self._entropy = entropy
        self._hmacs: dict[
            str, bytes
        ] = {}  # by token id; also of tokens that are gone, until the next look-up

    def activate(self, now: Instant) -> None:
        """A leadership begins."""
        if self._settings.token_secret_key:
            self.due_us = Micros(now.mono_us + self._settings.token_expiry_check_interval_ms * 1000)

    def decide(
        self, image: MetadataImage, command: TokenCommand, principal: str, now: Instant
    ) -> Outcome[Message, TokenReply]:
        """The records and the reply for a command of `principal`."""
        secret = self._settings.token_secret_key
        if not secret:
            return Outcome((), refusal_of_token(command, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, principal))
        if isinstance(command, CreateDelegationTokenRequest):
            return self._create(image, command, principal, secret, now.wall_ms)
        token = self._find(image, bytes(command.hmac), secret)
        if token is None:
            return Outcome((), refusal_of_token(command, ErrorCode.DELEGATION_TOKEN_NOT_FOUND, principal))
        return self._changed(token, command, principal, now.wall_ms)

    def due(self, image: MetadataImage, now: Instant) -> tuple[Message, ...]:
        """Remove expired tokens, if it is time."""
        if self.due_us is None or now.mono_us < self.due_us:
            return ()
        expired = [one.token_id for one in tokens_in(image) if has_expired(one, now.wall_ms)][:REMOVED_MAX]
        if len(expired) < REMOVED_MAX:
            self.due_us = Micros(now.mono_us + self._settings.token_expiry_check_interval_ms * 1000)
        return tuple(RemoveDelegationTokenRecord(token_id=one) for one in expired)

    def _create(
        self,
        image: MetadataImage,
        command: CreateDelegationTokenRequest,
        principal: str,
        secret: str,
        now_ms: int,
    ) -> Outcome[Message, TokenReply]:
        owner = owner_of(command, principal)
        if any(one.principal_type != "User" for one in command.renewers):
            return Outcome((), refusal_of_token(command, ErrorCode.INVALID_PRINCIPAL_TYPE, principal))
        if len(command.renewers) > RENEWERS_MAX or sum(1 for _ in tokens_in(image)) >= TOKENS_MAX:
            return Outcome((), refusal_of_token(command, ErrorCode.POLICY_VIOLATION, principal))
        lifetime_ms = self._settings.token_max_lifetime_ms
        if command.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, command.max_lifetime_ms)
        ends_ms = _sum(now_ms, lifetime_ms)
        expires_ms = min(ends_ms, _sum(now_ms, self._settings.token_expiry_time_ms))
        token_id = urlsafe_b64encode(self._entropy(_ID_BYTES)).decode().rstrip("=")
        record = DelegationTokenRecord(
            owner=owner,
            requester=principal,
            renewers=[f"{one.principal_type}:{one.principal_name}" for one in command.renewers],
            issue_timestamp=now_ms,
            max_timestamp=ends_ms,
            expiration_timestamp=expires_ms,
            token_id=token_id,
        )
        reply = refusal_of_token(command, ErrorCode.NONE, principal)
        assert isinstance(reply, CreateDelegationTokenResponse)
        reply.issue_timestamp_ms, reply.max_timestamp_ms = now_ms, ends_ms
        reply.expiry_timestamp_ms = expires_ms
        reply.token_id, reply.hmac = token_id, token_hmac(secret, token_id)
        return Outcome((record,), reply)

    def _changed(
        self,
        token: DelegationTokenRecord,
        command: RenewDelegationTokenRequest | ExpireDelegationTokenRequest,
        principal: str,
        now_ms: int,
    ) -> Outcome[Message, TokenReply]:
        """The token with another expiry, or removed."""
        is_renewal = isinstance(command, RenewDelegationTokenRequest)
        is_allowed = is_owner_or_renewer(token, principal)
        if (
            isinstance(command, ExpireDelegationTokenRequest)
            and is_allowed
            and command.expiry_time_period_ms < 0
        ):
            removed = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Outcome((removed,), ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
        # Kafka looks at the expiry before the owner in a renewal, and the other way round in an expiry.
        is_expired = has_expired(token, now_ms)
        if not is_allowed and not (is_renewal and is_expired):
            code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            return Outcome((), refusal_of_token(command, code, principal))
        if is_expired:
            return Outcome((), refusal_of_token(command, ErrorCode.DELEGATION_TOKEN_EXPIRED, principal))
        if isinstance(command, RenewDelegationTokenRequest):
            period_ms = self._settings.token_expiry_time_ms
            if command.renew_period_ms > 0:
                period_ms = min(period_ms, command.renew_period_ms)
        else:
            period_ms = command.expiry_time_period_ms
        expires_ms = min(token.max_timestamp, _sum(now_ms, period_ms))
        record = DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_timestamp,
            max_timestamp=token.max_timestamp,
            expiration_timestamp=expires_ms,
            token_id=token.token_id,
        )
        if is_renewal:
            return Outcome((record,), RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms))
        return Outcome((record,), ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms))

    def _find(self, image: MetadataImage, given: bytes, secret: str) -> DelegationTokenRecord | None:
        """The token of an HMAC; each HMAC is computed once."""
        known, self._hmacs = self._hmacs, {}
        found = None
        for token in tokens_in(image):
            own = known.get(token.token_id) or token_hmac(secret, token.token_id)
            self._hmacs[token.token_id] = own
            if hmac.compare_digest(own, given):
                found = token
        return found


def owner_of(command: CreateDelegationTokenRequest, principal: str) -> str:
    """The owner of the token that `principal` requests."""
    if command.owner_principal_name:
        return f"{command.owner_principal_type}:{command.owner_principal_name}"
    return principal


def refusal_of_token(command: TokenCommand, code: ErrorCode, principal: str) -> TokenReply:
    """The reply to a command of `principal` that has this error."""
    if isinstance(command, CreateDelegationTokenRequest):
        requester_type, _, requester = principal.partition(":")
        owner_type, _, owner = owner_of(command, principal).partition(":")
        return CreateDelegationTokenResponse(
            error_code=code,
            principal_type=owner_type,
            principal_name=owner,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester,
            issue_timestamp_ms=_NONE,
            expiry_timestamp_ms=_NONE,
            max_timestamp_ms=_NONE,
        )
    if isinstance(command, RenewDelegationTokenRequest):
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_NONE)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_NONE)


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, INT64_MAX)
