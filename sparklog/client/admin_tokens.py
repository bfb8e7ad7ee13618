"""Delegation tokens (KIP-48): a password for another process, which ends by itself."""

from sparklog.client.admin_calls import Caller, raise_for
from sparklog.client.settings import ClientSettings
from sparklog.errors import ErrorCode
from sparklog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

_FULL = (
    "the user or the cluster has as many delegation tokens as it may: expire some, or raise "
    "sparklog.delegation.tokens.per.owner.max or sparklog.delegation.tokens.max on the brokers"
)


class DelegationToken:
    """A token of the user of a client; its repr has no secret. `lifetime_ms` is from its creation to its
    expiry.
    """

    __slots__ = ("hmac", "lifetime_ms", "token_id")

    def __init__(self, token_id: str, hmac: bytes, lifetime_ms: int) -> None:
        self.token_id = token_id
        self.hmac = hmac
        self.lifetime_ms = lifetime_ms

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, lifetime_ms={self.lifetime_ms})"


def create_delegation_token(settings: ClientSettings) -> DelegationToken:
    """A new token for the user of these settings, as long as the broker grants by default. Raises
    BrokerError.
    """
    request = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, max_lifetime_ms=-1
    )
    caller = Caller(settings)
    try:
        reply = caller.ask(request, CreateDelegationTokenResponse, caller.deadline(), lambda _: ())
    finally:
        caller.network.close()
    is_full = reply.error_code == ErrorCode.POLICY_VIOLATION
    raise_for(reply.error_code, "a delegation token", _FULL if is_full else None)
    lifetime_ms = max(0, reply.expiry_timestamp_ms - reply.issue_timestamp_ms)
    return DelegationToken(reply.token_id, reply.hmac, lifetime_ms)
