"""Credentials: SCRAM credentials of users (KIP-554), of which the broker gets a salted password and never the
password itself, and delegation tokens (KIP-48), passwords for another process that end by themselves.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct

from sparklog.client.admin.calls import Caller, raise_for, refusal, settle
from sparklog.client.sasl.scram_messages import HASHES, salted_password
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError, ErrorCode
from sparklog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from sparklog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from sparklog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]

ITERATIONS: Final = 8_192
"""Between the bounds of brokers, 4096 and 16384. Each authentication of a client computes that many."""
SALT_BYTES: Final = 24

_NUMBERS: Final[Mapping[ScramMechanism, int]] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES: Final[Mapping[int, ScramMechanism]] = {number: name for name, number in _NUMBERS.items()}

UserMechanism = tuple[str, ScramMechanism]
"""One credential: a user has at most one for each mechanism."""


class ScramUpsertion:
    """Set the password of a user for one mechanism; its repr has no password."""

    __slots__ = ("iterations", "mechanism", "password", "user")

    def __init__(
        self,
        user: str,
        password: str,
        *,
        mechanism: ScramMechanism = "SCRAM-SHA-512",
        iterations: int = ITERATIONS,
    ) -> None:
        self.user = user
        self.password = password
        self.mechanism = mechanism
        self.iterations = iterations

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user!r}, {self.mechanism!r}, iterations={self.iterations})"


class ScramDeletion(Struct, frozen=True):
    """Remove the credential of a user for one mechanism."""

    user: str
    mechanism: ScramMechanism = "SCRAM-SHA-512"


def describe_credentials(caller: Caller, users: Iterable[str] | None) -> dict[str, dict[ScramMechanism, int]]:
    """See Admin.describe_user_scram_credentials."""
    asked = None if users is None else [UserName(name) for name in dict.fromkeys(users)]
    if asked == []:  # an empty list means all
        return {}
    request = DescribeUserScramCredentialsRequest(asked)
    reply = caller.ask(request, DescribeUserScramCredentialsResponse, caller.deadline(), lambda _: ())
    raise_for(reply.error_code, "SCRAM credentials", reply.error_message)
    found: dict[str, dict[ScramMechanism, int]] = {}
    errors: dict[str, BrokerError] = {}
    for one in sorted(reply.results, key=lambda result: result.user):
        error = refusal(one.error_code, f"user {one.user!r}", one.error_message)
        if error is not None:
            errors[one.user] = error
            continue
        found[one.user] = {
            _NAMES[credential.mechanism]: credential.iterations
            for credential in one.credential_infos
            if credential.mechanism in _NAMES
        }
    return settle(found, errors)


def alter_credentials(caller: Caller, changes: Iterable[ScramUpsertion | ScramDeletion]) -> None:
    """See Admin.alter_user_scram_credentials."""
    left = list(changes)
    done: dict[UserMechanism, None] = {}
    errors: dict[UserMechanism, BrokerError] = {}
    while left:
        # A request may change one credential of a user.
        batch: dict[str, ScramUpsertion | ScramDeletion] = {}
        for change in left:
            batch.setdefault(change.user, change)
        left = [change for change in left if batch[change.user] is not change]
        for user, error in _altered(caller, batch).items():
            item = user, batch[user].mechanism
            if error is None:
                done[item] = None
            else:
                errors[item] = error
    settle(done, errors)


def _altered(
    caller: Caller, batch: Mapping[str, ScramUpsertion | ScramDeletion]
) -> dict[str, BrokerError | None]:
    request = AlterUserScramCredentialsRequest(
        [
            ScramCredentialDeletion(one.user, _NUMBERS[one.mechanism])
            for one in batch.values()
            if isinstance(one, ScramDeletion)
        ],
        [_salted(one) for one in batch.values() if isinstance(one, ScramUpsertion)],
    )
    reply = caller.call(request, AlterUserScramCredentialsResponse, caller.deadline())
    return {
        one.user: refusal(one.error_code, f"user {one.user!r}", one.error_message) for one in reply.results
    }


def _salted(change: ScramUpsertion) -> "ScramCredentialUpsertion":
    salt = os.urandom(SALT_BYTES)
    salted = salted_password(HASHES[change.mechanism], change.password, salt, change.iterations)
    return ScramCredentialUpsertion(change.user, _NUMBERS[change.mechanism], change.iterations, salt, salted)


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
