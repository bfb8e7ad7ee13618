"""Delegation tokens: created, renewed, described, used as a password, and removed when they expire."""

from base64 import b64encode

import pytest

from sparklog.client.sasl.login import PasswordLogin
from sparklog.errors import ErrorCode
from sparklog.wire.codec import encode
from sparklog.wire.header import decode_reply
from sparklog.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from sparklog.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from sparklog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from sparklog.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.cluster.controller_link import PrincipalData, joined
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.access.test_sasl import a_world, connect, is_served, log_in, plain
from tests.broker.cluster.test_controller_listener import LISTENERS, forwarded, framed, in_envelope
from tests.broker.world import World

SECRET = {"delegation.token.secret.key": "hunter2"}
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def log_in_as(world: World, user: str) -> SimulatedConnection:
    connection = connect(world)
    assert plain(world, connection, user, f"{user[0]}-secret").error_code == 0
    return connection


def create(
    world: World,
    connection: SimulatedConnection,
    *renewers: str,
    lifetime_ms: int = -1,
    owner: str | None = None,
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers("User", one) for one in renewers],
        max_lifetime_ms=lifetime_ms,
    )
    told = world.ask(connection, request, 3, CreateDelegationTokenResponse)
    assert isinstance(told, CreateDelegationTokenResponse)
    return told


def describe(world: World, connection: SimulatedConnection, *owners: str) -> list[DescribedDelegationToken]:
    named = [DescribeDelegationTokenOwner("User", one) for one in owners] if owners else None
    told = world.ask(
        connection, DescribeDelegationTokenRequest(owners=named), 3, DescribeDelegationTokenResponse
    )
    assert isinstance(told, DescribeDelegationTokenResponse)
    assert told.error_code == 0
    return told.tokens


def renew(world: World, connection: SimulatedConnection, mac: bytes, period_ms: int) -> tuple[int, int]:
    told = world.ask(connection, RenewDelegationTokenRequest(mac, period_ms), 2, RenewDelegationTokenResponse)
    assert isinstance(told, RenewDelegationTokenResponse)
    return told.error_code, told.expiry_timestamp_ms


def expire(world: World, connection: SimulatedConnection, mac: bytes, period_ms: int) -> tuple[int, int]:
    told = world.ask(
        connection, ExpireDelegationTokenRequest(mac, period_ms), 2, ExpireDelegationTokenResponse
    )
    assert isinstance(told, ExpireDelegationTokenResponse)
    return told.error_code, told.expiry_timestamp_ms


def by_token(world: World, connection: SimulatedConnection, token_id: str, mac: bytes) -> tuple[int, int]:
    """The error and the session lifetime of an authentication by token."""
    password = b64encode(mac).decode()
    login = PasswordLogin("SCRAM-SHA-512", token_id, password, lambda size: b"n" * size, is_token=True)
    told = log_in(world, connection, "SCRAM-SHA-512", login.machine())
    return told.error_code, told.session_lifetime_ms


def test_a_token_is_a_password_of_its_owner_until_it_expires() -> None:
    world = a_world(**SECRET)
    alice = log_in_as(world, "alice")
    token = create(world, alice)
    assert (token.error_code, token.principal_name, len(token.hmac)) == (0, "alice", 64)
    assert token.expiry_timestamp_ms == token.issue_timestamp_ms + DAY_MS
    assert token.max_timestamp_ms == token.issue_timestamp_ms + 7 * DAY_MS
    session = connect(world)
    code, lifetime_ms = by_token(world, session, token.token_id, token.hmac)
    assert code == 0
    assert DAY_MS - 10_000 < lifetime_ms <= DAY_MS
    assert is_served(world, session)
    assert create(world, session).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    world.settle(DAY_MS)
    assert not is_served(world, session)
    assert by_token(world, connect(world), token.token_id, token.hmac)[0]


def test_the_metadata_log_and_the_trace_do_not_have_the_secret() -> None:
    world = a_world(**SECRET)
    token = create(world, log_in_as(world, "alice"))
    world.settle()
    trace = "\n".join(world.node.trace)
    assert "hunter2" not in trace
    assert token.hmac.hex() not in trace
    assert b64encode(token.hmac).decode() not in trace


def test_owners_and_renewers_renew_and_expire_a_token_and_no_other_user() -> None:
    world = a_world(**SECRET)
    alice, bob = log_in_as(world, "alice"), log_in_as(world, "bob")
    shared, own = create(world, alice, "bob"), create(world, alice)
    code, expiry_ms = renew(world, bob, shared.hmac, 2 * HOUR_MS)
    assert code == 0
    assert expiry_ms < shared.expiry_timestamp_ms
    assert renew(world, bob, own.hmac, HOUR_MS) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
    assert expire(world, bob, own.hmac, -1) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
    assert renew(world, alice, b"x" * 64, HOUR_MS) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
    assert renew(world, alice, b"", HOUR_MS) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
    assert expire(world, alice, own.hmac, HOUR_MS)[0] == 0
    assert expire(world, alice, own.hmac, -1)[0] == 0
    assert by_token(world, connect(world), own.token_id, own.hmac)[0]
    assert by_token(world, connect(world), shared.token_id, shared.hmac)[0] == 0
    assert [one.token_id for one in describe(world, bob, "alice")] == [shared.token_id]


def test_a_renewal_does_not_pass_the_maximum_lifetime() -> None:
    world = a_world(**SECRET)
    alice = log_in_as(world, "alice")
    token = create(world, alice, lifetime_ms=2 * HOUR_MS)
    assert token.max_timestamp_ms == token.expiry_timestamp_ms == token.issue_timestamp_ms + 2 * HOUR_MS
    assert renew(world, alice, token.hmac, DAY_MS) == (0, token.max_timestamp_ms)
    world.settle(2 * HOUR_MS + 60_000)
    code, _ = renew(world, log_in_as(world, "alice"), token.hmac, DAY_MS)
    assert code in (ErrorCode.DELEGATION_TOKEN_EXPIRED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def test_expired_tokens_are_removed_by_the_controller_and_others_survive_a_restart() -> None:
    world = a_world(**SECRET, **{"delegation.token.expiry.check.interval.ms": "60000"})
    alice = log_in_as(world, "alice")
    create(world, alice, lifetime_ms=30_000)
    kept = create(world, alice)
    assert len(describe(world, alice)) == 2
    world.settle(120_000)
    assert [one.token_id for one in describe(world, alice)] == [kept.token_id]
    world.node.kill()
    world.node.start()
    world.settle(5000)
    assert [one.hmac for one in describe(world, log_in_as(world, "alice"))] == [kept.hmac]
    assert by_token(world, connect(world), kept.token_id, kept.hmac)[0] == 0


@pytest.mark.parametrize(
    ("owners", "count"), [((), 1), (("bob",), 1), (("alice",), 0), (("alice", "bob"), 1)]
)
def test_a_described_token_has_its_owner_requester_and_renewers(owners: tuple[str, ...], count: int) -> None:
    world = a_world(**SECRET)
    alice = log_in_as(world, "alice")
    made = create(world, alice, "bob", owner="bob")
    described = describe(world, alice, *owners)
    assert [one.hmac for one in described] == [made.hmac] * count
    for one in described:
        assert (one.principal_name, one.token_requester_principal_name) == ("bob", "alice")
        assert [renewer.principal_name for renewer in one.renewers] == ["bob"]


def test_without_a_secret_there_are_no_tokens() -> None:
    world = a_world()
    alice = log_in_as(world, "alice")
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(world, alice).error_code == disabled
    assert renew(world, alice, b"x", 1) == (disabled, -1)
    assert expire(world, alice, b"x", 1) == (disabled, -1)
    told = world.ask(alice, DescribeDelegationTokenRequest(owners=None), 3, DescribeDelegationTokenResponse)
    assert isinstance(told, DescribeDelegationTokenResponse)
    assert told.error_code == disabled


def test_renewers_are_users() -> None:
    world = a_world(**SECRET)
    request = CreateDelegationTokenRequest(renewers=[CreatableRenewers("Group", "ops")])
    told = world.ask(log_in_as(world, "alice"), request, 3, CreateDelegationTokenResponse)
    assert isinstance(told, CreateDelegationTokenResponse)
    assert told.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize(
    ("request_type", "version", "response_type"),
    [
        (CreateDelegationTokenRequest, 3, CreateDelegationTokenResponse),
        (RenewDelegationTokenRequest, 2, RenewDelegationTokenResponse),
        (ExpireDelegationTokenRequest, 2, ExpireDelegationTokenResponse),
    ],
)
def test_a_session_of_a_token_gets_no_token_by_another_broker(
    request_type: type[Message], version: int, response_type: type[CreateDelegationTokenResponse]
) -> None:
    world = World(1, **SECRET, **LISTENERS)
    world.node.start()
    world.settle()
    told = {}
    for is_by_token in (False, True):
        principal = PrincipalData(type="User", name="alice", token_authenticated=is_by_token)
        envelope = in_envelope(framed(request_type(), version), b"\0\0" + joined(encode(principal, 0)))
        answer = forwarded(world, envelope)
        assert answer.response_data is not None
        told[is_by_token] = decode_reply(response_type, version, answer.response_data)[1].error_code
    assert told[True] == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert told[False] != ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


POLICY_VIOLATION = ErrorCode.POLICY_VIOLATION


def test_an_owner_and_the_cluster_have_at_most_so_many_tokens_until_some_expire() -> None:
    bounds = {"sparklog.delegation.tokens.per.owner.max": "2", "sparklog.delegation.tokens.max": "3"}
    world = a_world(**SECRET, **bounds)
    alice, bob = log_in_as(world, "alice"), log_in_as(world, "bob")
    assert [create(world, alice, lifetime_ms=60_000).error_code for _ in range(3)] == [0, 0, POLICY_VIOLATION]
    assert create(world, bob, owner="alice").error_code == POLICY_VIOLATION
    assert [create(world, bob).error_code for _ in range(2)] == [0, POLICY_VIOLATION]
    world.settle(61_000)  # the controller looks for expired tokens each hour only
    made = create(world, alice)
    assert made.error_code == 0
    assert [one.token_id for one in describe(world, alice, "alice")] == [made.token_id]
    assert create(world, bob).error_code == 0
    assert create(world, alice).error_code == POLICY_VIOLATION
    assert expire(world, alice, made.hmac, -1)[0] == 0
    assert create(world, alice).error_code == 0


@pytest.mark.parametrize("renewers", [["x" * 4_100], [f"u{number}" for number in range(101)]])
def test_a_token_has_few_renewers_with_short_names(renewers: list[str]) -> None:
    world = a_world(**SECRET)
    assert create(world, log_in_as(world, "alice"), *renewers).error_code == POLICY_VIOLATION


@pytest.mark.parametrize("period_ms", [-1, 0, 60_000])
def test_a_session_ends_when_its_token_is_expired(period_ms: int) -> None:
    world = a_world(**SECRET)
    alice = log_in_as(world, "alice")
    token, other = create(world, alice), create(world, alice)
    session, kept = connect(world), connect(world)
    assert by_token(world, session, token.token_id, token.hmac)[0] == 0
    assert by_token(world, kept, other.token_id, other.hmac)[0] == 0
    assert expire(world, alice, token.hmac, period_ms)[0] == 0
    if period_ms < 0:
        assert session.is_closed, "a token that is gone ends its sessions at once"
    else:
        world.settle(period_ms + 1_000)
        assert not is_served(world, session)
    assert is_served(world, kept)
    assert is_served(world, alice)


def test_a_session_whose_token_was_expired_may_authenticate_by_another() -> None:
    world = a_world(**SECRET)
    alice = log_in_as(world, "alice")
    token, other = create(world, alice), create(world, alice)
    session = connect(world)
    assert by_token(world, session, token.token_id, token.hmac)[0] == 0
    assert expire(world, alice, token.hmac, 1_000)[0] == 0
    world.settle(2_000)
    assert by_token(world, session, other.token_id, other.hmac)[0] == 0
    assert is_served(world, session)


def test_many_tokens_are_described_while_others_are_answered() -> None:
    world = a_world(**SECRET)
    alice, bob = log_in_as(world, "alice"), log_in_as(world, "bob")
    made = [create(world, alice).token_id for _ in range(100)]
    made.append(create(world, bob).token_id)
    before = len(alice.replies)
    alice.send(DescribeDelegationTokenRequest(owners=None), 3, DescribeDelegationTokenResponse)
    bob.send(MetadataRequest(topics=[]), 12, MetadataResponse)
    assert isinstance(bob.replies[-1], MetadataResponse)
    assert len(alice.replies) == before, "the loop was held until the whole answer was there"
    world.settle()
    told = alice.replies[-1]
    assert isinstance(told, DescribeDelegationTokenResponse)
    assert [one.token_id for one in told.tokens] == made
    assert [one.token_id for one in describe(world, alice, "bob", "carol")] == made[-1:]


def test_a_description_names_a_bounded_number_of_owners() -> None:
    world = a_world(**SECRET)
    request = DescribeDelegationTokenRequest(owners=[DescribeDelegationTokenOwner("User", "x")] * 1_001)
    told = world.ask(log_in_as(world, "alice"), request, 3, DescribeDelegationTokenResponse)
    assert isinstance(told, DescribeDelegationTokenResponse)
    assert told.error_code == ErrorCode.INVALID_REQUEST
