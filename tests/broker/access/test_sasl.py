"""Sessions of a SASL listener: before, during and after authentication, and again before its end."""

import pytest

from sparklog.client.sasl.login import PasswordLogin
from sparklog.client.sasl.machines import Machine, PlainMachine
from sparklog.client.sasl.scram_messages import parse_server_first, salted_password
from sparklog.errors import ErrorCode, SettingsError
from sparklog.model import Offset
from sparklog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceRequest, ProduceResponse
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authentication import LinkLogins
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.image import BROKER_RESOURCE, MetadataImage
from sparklog_server.metadata.records import ConfigRecord
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.world import World

PLAIN_JAAS = """org.apache.kafka.common.security.plain.PlainLoginModule required
    user_alice="a-secret" user_bob="b-secret";"""
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
DELAY_MS = 100


def a_world(**given: str) -> World:
    world = World(
        5,
        **{
            "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_JAAS,
            **given,
        },
    )
    world.node.start()
    world.settle()
    return world


def connect(world: World) -> SimulatedConnection:
    return world.node.connect(listener="SASL_PLAINTEXT")


def handshake(
    world: World, connection: SimulatedConnection, mechanism: str, version: int = 1
) -> SaslHandshakeResponse:
    told = world.ask(connection, SaslHandshakeRequest(mechanism), version, SaslHandshakeResponse)
    assert isinstance(told, SaslHandshakeResponse)
    return told


def respond(world: World, connection: SimulatedConnection, response: bytes) -> SaslAuthenticateResponse:
    told = world.ask(connection, SaslAuthenticateRequest(response), 2, SaslAuthenticateResponse)
    assert isinstance(told, SaslAuthenticateResponse)
    return told


def log_in(
    world: World, connection: SimulatedConnection, mechanism: str, machine: Machine
) -> SaslAuthenticateResponse:
    """The last response of an authentication."""
    assert handshake(world, connection, mechanism).error_code == 0
    response = machine.first()
    while True:
        told = respond(world, connection, response)
        if told.error_code:
            return told
        response = machine.next(told.auth_bytes)
        if not response:
            assert machine.is_complete
            return told


def plain(
    world: World, connection: SimulatedConnection, user: str = "alice", password: str = "a-secret"
) -> SaslAuthenticateResponse:
    return log_in(world, connection, "PLAIN", PlainMachine(user, password))


def is_served(world: World, connection: SimulatedConnection) -> bool:
    """Whether the broker answers a request that needs an authenticated session."""
    before = len(connection.replies)
    connection.send(MetadataRequest(topics=[]), 12, MetadataResponse)
    world.settle()
    assert connection.is_closed == (len(connection.replies) == before)
    return not connection.is_closed


def set_password(
    world: World, user: str, password: str, mechanism: int = 1, *, iterations: int = 4096
) -> None:
    name = {1: "sha256", 2: "sha512"}[mechanism]
    salted = salted_password(name, password, b"salt", iterations)
    change = ScramCredentialUpsertion(user, mechanism, iterations, b"salt", salted)
    request = AlterUserScramCredentialsRequest(upsertions=[change])
    told = world.ask(world.node.connect(), request, 0, AlterUserScramCredentialsResponse)
    assert isinstance(told, AlterUserScramCredentialsResponse)
    assert told.results[0].error_code == 0


def scram(user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Machine:
    return PasswordLogin(mechanism, user, password, lambda size: b"n" * size).machine()


# -- before


def test_only_api_versions_and_a_handshake_come_before_authentication() -> None:
    world = a_world()
    connection = connect(world)
    assert isinstance(world.ask(connection, VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)
    assert not is_served(world, connection)
    assert "unexpected request of API 3 during authentication" in "\n".join(world.node.trace)


def test_a_session_gets_the_versions_once_before_authentication() -> None:
    world = a_world()
    connection = connect(world)
    unnamed = world.ask(connection, ApiVersionsRequest(), 3, ApiVersionsResponse)
    assert isinstance(unnamed, ApiVersionsResponse)
    assert unnamed.error_code == ErrorCode.INVALID_REQUEST
    for _ in range(2):
        connection.send(VERSIONS, 3, ApiVersionsResponse)
    world.settle()
    assert (len(connection.replies), connection.is_closed) == (2, True)
    assert "unexpected request of API 18 during authentication" in "\n".join(world.node.trace)


def test_authenticate_without_a_handshake_closes_the_session() -> None:
    world = a_world()
    connection = connect(world)
    connection.send(SaslAuthenticateRequest(b"\0alice\0a-secret"), 2, SaslAuthenticateResponse)
    world.settle()
    assert (connection.replies, connection.is_closed) == ([], True)


@pytest.mark.parametrize("length", [524_289, 100 << 20, 0x7FFF_FFFF, -1])
def test_a_frame_above_the_limit_closes_the_session_before_its_bytes_come(length: int) -> None:
    world = a_world()
    connection = connect(world)
    connection.send_bytes(length.to_bytes(4, "big", signed=True))
    world.settle()
    assert connection.is_closed


def test_after_authentication_the_limit_is_that_of_requests() -> None:
    world = a_world(**{"sasl.server.max.receive.size": "1000"})
    connection = connect(world)
    plain(world, connection)
    topics = [MetadataRequestTopic(name=f"a-topic-with-a-long-name-{index}") for index in range(200)]
    large = MetadataRequest(topics=topics)
    assert isinstance(world.ask(connection, large, 12, MetadataResponse), MetadataResponse)


@pytest.mark.parametrize("version", [0, 1])
def test_an_unknown_mechanism_is_told_the_others_and_closed(version: int) -> None:
    world = a_world()
    for mechanism in ("GSSAPI", "", "plain", "x" * 1000):
        connection = connect(world)
        told = handshake(world, connection, mechanism, version)
        assert told.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if version else ErrorCode.UNSUPPORTED_VERSION
        assert (told.error_code, connection.is_closed) == (code, True)


def test_a_plain_listener_needs_no_authentication() -> None:
    world = a_world()
    assert is_served(world, world.node.connect())


# -- during


def test_plain_gives_the_session_its_user() -> None:
    world = a_world()
    connection = connect(world)
    told = plain(world, connection)
    assert (told.error_code, told.session_lifetime_ms) == (0, 0)
    assert is_served(world, connection)
    refused = world.ask(connection, SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)
    assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize(("user", "password"), [("alice", "b-secret"), ("mallory", "a-secret")])
def test_a_wrong_password_is_answered_and_closed_after_a_delay(user: str, password: str) -> None:
    world = a_world()
    connection = connect(world)
    handshake(world, connection, "PLAIN")
    begun_us = world.clock.now.mono_us
    connection.send(SaslAuthenticateRequest(f"\0{user}\0{password}".encode()), 2, SaslAuthenticateResponse)
    world.clock.run(until_us=begun_us + (DELAY_MS - 1) * 1000)
    assert (len(connection.replies), connection.is_closed) == (1, False)
    world.clock.run(until_us=begun_us + (DELAY_MS + 1) * 1000)
    told = connection.replies[-1]
    assert isinstance(told, SaslAuthenticateResponse)
    assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert told.error_message == "Authentication failed: Invalid username or password"
    assert connection.is_closed
    assert password not in "\n".join(world.node.trace)


def test_requests_behind_a_failed_authentication_are_not_served() -> None:
    world = a_world()
    connection = connect(world)
    handshake(world, connection, "PLAIN")
    connection.send(SaslAuthenticateRequest(b"\0alice\0guess"), 2, SaslAuthenticateResponse)
    connection.send(SaslAuthenticateRequest(b"\0alice\0a-secret"), 2, SaslAuthenticateResponse)
    world.settle()
    assert len(connection.replies) == 2
    assert connection.is_closed


def test_a_client_that_leaves_during_the_delay_is_forgotten() -> None:
    world = a_world()
    connection = connect(world)
    handshake(world, connection, "PLAIN")
    connection.send(SaslAuthenticateRequest(b"\0alice\0guess"), 2, SaslAuthenticateResponse)
    world.node.disconnect(connection)
    world.settle()
    assert is_served(world, world.node.connect())


@pytest.mark.parametrize(("number", "mechanism"), [(1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")])
def test_scram_takes_the_password_of_the_metadata_log(number: int, mechanism: str) -> None:
    world = a_world()
    set_password(world, "carol", "c-secret", number)
    connection = connect(world)
    assert log_in(world, connection, mechanism, scram("carol", "c-secret", mechanism)).error_code == 0
    assert is_served(world, connection)


def test_a_changed_password_counts_at_once_and_after_a_restart() -> None:
    world = a_world()
    set_password(world, "carol", "old")
    set_password(world, "carol", "new")
    for _ in range(2):
        failed = log_in(world, connect(world), "SCRAM-SHA-256", scram("carol", "old"))
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert failed.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            "SCRAM-SHA-256"
        )
        assert log_in(world, connect(world), "SCRAM-SHA-256", scram("carol", "new")).error_code == 0
        world.node.kill()
        world.node.start()
        world.settle(5000)


@pytest.mark.parametrize(
    ("request_", "version", "reply"),
    [(VERSIONS, 3, ApiVersionsResponse), (SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)],
)
def test_versions_or_a_handshake_within_the_exchange_is_answered_as_illegal_and_closed_after_a_delay(
    request_: Message, version: int, reply: type[Message]
) -> None:
    world = a_world()
    connection = connect(world)
    handshake(world, connection, "SCRAM-SHA-256")
    connection.send(request_, version, reply)
    world.settle(DELAY_MS - 10)
    assert (len(connection.replies), connection.is_closed) == (1, False)
    world.settle(20)
    assert [getattr(one, "error_code", None) for one in connection.replies] == [
        ErrorCode.NONE,
        ErrorCode.ILLEGAL_SASL_STATE,
    ]
    assert connection.is_closed
    assert "during authentication" in "\n".join(world.node.trace)


def test_an_unknown_user_looks_like_those_that_exist_and_stays_when_users_come_and_after_a_restart() -> None:
    world = a_world()

    def shown(user: str) -> tuple[bytes, int]:
        connection = connect(world)
        handshake(world, connection, "SCRAM-SHA-256")
        told = parse_server_first(respond(world, connection, scram(user, "p").first()).auth_bytes)
        return told.salt, told.iterations

    before = shown("mallory")
    set_password(world, "alice", "p", iterations=8192)
    (salt, iterations), first = shown("alice"), shown("mallory")
    assert first[0] != before[0]  # of a secret that is drawn with the first user
    assert (len(first[0]), first[1]) == (len(salt), iterations)
    set_password(world, "bob", "p", iterations=8192)
    world.node.kill()
    world.node.start()
    world.settle(5000)
    assert shown("mallory") == first


def test_another_request_within_the_exchange_closes_the_session() -> None:
    world = a_world()
    for request, version, reply in (
        (MetadataRequest(topics=[]), 3, MetadataResponse),
        (ProduceRequest(), 9, ProduceResponse),
    ):
        connection = connect(world)
        handshake(world, connection, "SCRAM-SHA-256")
        connection.send(request, version, reply)
        world.settle()
        assert (len(connection.replies), connection.is_closed) == (1, True)


def test_an_unknown_version_of_api_versions_within_the_exchange_closes_the_session() -> None:
    world = a_world()
    connection = connect(world)
    handshake(world, connection, "PLAIN")
    connection.send_bytes(bytes.fromhex("0000000c 0012 0063 00000007 0001 78 00".replace(" ", "")))
    world.settle()
    assert (len(connection.replies), connection.is_closed) == (1, True)


def test_garbage_as_a_token_is_refused() -> None:
    world = a_world()
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        for token in (b"", b"\0", b"\xff" * 100, b"x" * 500_000):
            connection = connect(world)
            handshake(world, connection, mechanism)
            told = respond(world, connection, token)
            assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert connection.is_closed


# -- again


def test_a_session_ends_unless_it_authenticates_again() -> None:
    world = a_world(**{"connections.max.reauth.ms": "60000"})
    renewed, expired = connect(world), connect(world)
    assert plain(world, expired).session_lifetime_ms == 60_000
    assert plain(world, renewed).session_lifetime_ms == 60_000
    world.settle(50_000)
    assert plain(world, renewed).session_lifetime_ms == 60_000
    world.settle(20_000)
    assert is_served(world, renewed)
    assert not is_served(world, expired)
    assert "the session has expired" in "\n".join(world.node.trace)


def test_an_expired_session_may_still_begin_to_authenticate() -> None:
    world = a_world(**{"connections.max.reauth.ms": "5000"})
    connection = connect(world)
    plain(world, connection)
    world.settle(10_000)
    assert plain(world, connection).error_code == 0
    assert is_served(world, connection)


def test_another_user_on_re_authentication_is_refused() -> None:
    world = a_world(**{"connections.max.reauth.ms": "60000"})
    connection = connect(world)
    plain(world, connection)
    world.settle(2000)
    told = plain(world, connection, "bob", "b-secret")
    assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert told.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert connection.is_closed


def test_another_mechanism_on_re_authentication_is_refused() -> None:
    world = a_world(**{"connections.max.reauth.ms": "60000"})
    set_password(world, "alice", "a-secret")
    connection = connect(world)
    plain(world, connection)
    world.settle(2000)
    told = log_in(world, connection, "SCRAM-SHA-256", scram("alice", "a-secret"))
    assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert connection.is_closed


def test_a_session_authenticates_again_at_most_once_a_second() -> None:
    world = a_world(**{"connections.max.reauth.ms": "60000"})
    connection = connect(world)
    plain(world, connection)
    connection.send(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)
    connection.send(SaslAuthenticateRequest(b"\0alice\0a-secret"), 2, SaslAuthenticateResponse)
    connection.send(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)
    world.settle()
    told = connection.replies[-1]
    assert isinstance(told, SaslHandshakeResponse)
    assert told.error_code == ErrorCode.ILLEGAL_SASL_STATE


# -- settings


def alter(world: World, name: str, value: str) -> int:
    """Change a key of this broker while it runs; returns the error code."""
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    told = world.ask(world.node.connect(), request, 1, IncrementalAlterConfigsResponse)
    assert isinstance(told, IncrementalAlterConfigsResponse)
    return told.responses[0].error_code


def test_users_of_plain_change_while_the_broker_runs_and_an_invalid_change_is_ignored() -> None:
    world = a_world(**{"connections.max.reauth.ms": "60000"})
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    open_before = connect(world)
    assert plain(world, open_before).error_code == 0
    assert alter(world, key, PLAIN_JAAS.replace("a-secret", "another")) == 0
    world.settle(2000)
    assert plain(world, open_before).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert plain(world, connect(world)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert plain(world, connect(world), password="another").error_code == 0
    assert alter(world, key, 'nonsense password="hunter2"') == 0
    assert plain(world, connect(world), password="another").error_code == 0
    trace = "\n".join(world.node.trace)
    assert "sasl-settings-ignored" in trace
    assert not any(secret in trace for secret in ("another", "hunter2", "b-secret"))


def test_the_mechanism_towards_other_brokers_follows_the_settings() -> None:
    settings = BrokerSettings.of(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.jaas.config": 'PlainLoginModule required username="n" password="hunter2" user_n="hunter2";',
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
                'ScramLoginModule required username="n" password="hunter2";'
            ),
        }
    )
    live = DynamicBrokerConfig(settings, lambda *_, **__: None)
    logins = LinkLogins(live, bytes, lambda *_, **__: None)
    told = [logins.login(is_controller=False)]
    for value in ("SCRAM-SHA-256", "nonsense"):
        name = "sasl.mechanism.inter.broker.protocol"
        record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=name, value=value)
        live.follow(MetadataImage().apply([(Offset(0), record)])[1])
        told.append(logins.login(is_controller=False))
    assert [one and one.mechanism for one in told] == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-256"]
    assert logins.login(is_controller=True) is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos .* is not supported: use SCRAM-SHA-512"),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "the mechanisms are PLAIN"),
        ({"sasl.enabled.mechanisms": ""}, "needs sasl.enabled.mechanisms"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "X required;"}, "takes the login module"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": 'p="hunter2"'}, "not of the form"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": "PlainLoginModule required;"},
            "must name the users",
        ),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "needs sasl.oauthbearer.jwks.endpoint.url"),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys",
            },
            "is not in sparklog.sasl.oauthbearer.allowed.urls",
        ),
        ({"inter.broker.listener.name": "SASL_PLAINTEXT"}, "sasl.mechanism.inter.broker.protocol=GSSAPI"),
        (
            {
                "inter.broker.listener.name": "SASL_PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
            },
            'needs the option username="..."',
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_without_secrets(given: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as refused:
        a_world(**given)
    assert "secret" not in str(refused.value)
    assert "hunter2" not in str(refused.value)
