"""Delegation tokens (KIP-48): records of the metadata log; a token's password is an HMAC of its id.

    create ─► DelegationTokenRecord ─ renew, expire ─► the same with another expiry ─ expired ─► removed

The HMAC by `delegation.token.secret.key` is not in the log (DelegationTokenControlManager).
"""

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
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
from sparklog_server.metadata.delegation_tokens import (
    has_expired,
    is_owner_or_renewer,
    token_hmac,
    token_of,
    tokens_in,
)
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from sparklog_server.outcome import Outcome

RENEWERS_MAX: Final = 100
NAME_CHARS_MAX: Final = 4_096
"""Bounds of one token that Kafka does not have: every node holds the content of the metadata log in memory.
The second is for the names of its owner, its requester and its renewers together.
"""
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


class _Known:
    """The tokens by HMAC, and how many each owner has: a command costs the same with many tokens."""

    def __init__(self, tokens: Iterable[DelegationTokenRecord], secret: str) -> None:
        self.count = 0
        self.count_of: Counter[str] = Counter()
        self.id_of: dict[bytes, str] = {}
        self._secret = secret
        for token in tokens:
            self.add(token)

    def add(self, token: DelegationTokenRecord) -> None:
        """Count a new token."""
        self.count += 1
        self.count_of[token.owner] += 1
        self.id_of[token_hmac(self._secret, token.token_id)] = token.token_id

    def remove(self, token: DelegationTokenRecord) -> None:
        """Forget a token."""
        if self.id_of.pop(token_hmac(self._secret, token.token_id), None) is not None:
            self.count -= 1
            self.count_of[token.owner] -= 1
            if not self.count_of[token.owner]:
                del self.count_of[token.owner]


class DelegationTokens:
    """Decides on tokens during one leadership. `due_us` is the time of the next removal of expired ones; None
    without tokens. `_known` has those of the pending image, once a command needs them.
    """

    def __init__(self, settings: SaslSettings, entropy: Callable[[int], bytes]) -> None:
        self.due_us: Micros | None = None
        self._settings = settings
        self._entropy = entropy
        self._known: _Known | None = None

    def activate(self, now: Instant) -> None:
        """A leadership begins."""
        if self._settings.token_secret_key:
            self.due_us = Micros(now.mono_us + self._settings.token_expiry_check_interval_ms * 1000)

    def reset(self) -> None:
        """The pending image is another one."""
        self._known = None

    def decide(
        self, image: MetadataImage, command: TokenCommand, principal: str, now: Instant
    ) -> Outcome[Message, TokenReply]:
        """The records and the reply for a command of `principal`."""
        secret = self._settings.token_secret_key
        if not secret:
            return Outcome((), refusal_of_token(command, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, principal))
        if isinstance(command, CreateDelegationTokenRequest):
            return self._create(image, command, principal, secret, now.wall_ms)
        token_id = self._tokens(image, secret).id_of.get(bytes(command.hmac))
        token = None if token_id is None else token_of(image, token_id)
        if token is None:
            return Outcome((), refusal_of_token(command, ErrorCode.DELEGATION_TOKEN_NOT_FOUND, principal))
        return self._changed(token, command, principal, now.wall_ms)

    def due(self, image: MetadataImage, now: Instant) -> tuple[Message, ...]:
        """Remove expired tokens, if it is time."""
        if self.due_us is None or now.mono_us < self.due_us:
            return ()
        removed = self._expired(image, now.wall_ms)
        if len(removed) < REMOVED_MAX:
            self.due_us = Micros(now.mono_us + self._settings.token_expiry_check_interval_ms * 1000)
        return removed

    def _expired(self, image: MetadataImage, now_ms: int) -> tuple[RemoveDelegationTokenRecord, ...]:
        """The removals of expired tokens, as many as one step makes."""
        expired = list(islice((one for one in tokens_in(image) if has_expired(one, now_ms)), REMOVED_MAX))
        if self._known is not None:
            for one in expired:
                self._known.remove(one)
        return tuple(RemoveDelegationTokenRecord(token_id=one.token_id) for one in expired)

    def _tokens(self, image: MetadataImage, secret: str) -> _Known:
        if self._known is None:
            self._known = _Known(tokens_in(image), secret)
        return self._known

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
        renewers = [f"{one.principal_type}:{one.principal_name}" for one in command.renewers]
        name_chars = sum(map(len, (owner, principal, *renewers)))
        known = self._tokens(image, secret)
        removed: tuple[RemoveDelegationTokenRecord, ...] = ()
        if self._is_full(known, owner):
            removed = self._expired(image, now_ms)
        if len(renewers) > RENEWERS_MAX or name_chars > NAME_CHARS_MAX or self._is_full(known, owner):
            return Outcome(removed, refusal_of_token(command, ErrorCode.POLICY_VIOLATION, principal))
        lifetime_ms = self._settings.token_max_lifetime_ms
        if command.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, command.max_lifetime_ms)
        ends_ms = _sum(now_ms, lifetime_ms)
        expires_ms = min(ends_ms, _sum(now_ms, self._settings.token_expiry_time_ms))
        token_id = urlsafe_b64encode(self._entropy(_ID_BYTES)).decode().rstrip("=")
        record = DelegationTokenRecord(
            owner=owner,
            requester=principal,
            renewers=renewers,
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
        known.add(record)
        return Outcome((*removed, record), reply)

    def _is_full(self, known: _Known, owner: str) -> bool:
        """Whether no further token of this owner may be created."""
        settings = self._settings
        return known.count >= settings.tokens_max or known.count_of[owner] >= settings.tokens_per_owner_max

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
            if self._known is not None:
                self._known.remove(token)
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
