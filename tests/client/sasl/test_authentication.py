"""A connection that authenticates before its first request, and again before its session ends."""

import pytest

from sparklog.client.failures import AuthenticationFailed
from sparklog.client.sasl.login import PasswordLogin, TokenLogin
from sparklog.client.sasl.machines import OAuthMachine, PlainMachine
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.connection import Answer, Connection, State
from sparklog.client.transport.frames import ReceiveBuffers
from sparklog.errors import ErrorCode, SettingsError
from sparklog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog.wire.schema import Message
from tests.client.wire import metadata, ms, reply_to, requests_in

PLAIN = PasswordLogin("PLAIN", "alice", "hunter2", lambda size: b"n" * size)
VERSIONS = ApiVersionsResponse(
    api_keys=[ApiVersion(3, 0, 12), ApiVersion(17, 0, 1), ApiVersion(18, 0, 4), ApiVersion(36, 0, 2)]
)
ACCEPTED = SaslAuthenticateResponse(session_lifetime_ms=10_000)


class Wire:
    """A connection, and the requests that it has sent without a reply."""

    def __init__(self, login: PasswordLogin | TokenLogin = PLAIN) -> None:
        self.machine = Connection(client_id="tester", in_flight_max=5, buffers=ReceiveBuffers(), login=login)
        self.machine.opened(ms(1000))
        self.unanswered = requests_in(self.machine.take_output())

    def sent(self) -> list[Message]:
        self.unanswered += requests_in(self.machine.take_output())
        return [request for _, request in self.unanswered]

    def reply(self, message: Message) -> list[Answer]:
        self.sent()
        header, _ = self.unanswered.pop(0)
        stream = reply_to(header, message)
        self.machine.buffer()[: len(stream)] = stream
        return self.machine.received(len(stream))

    def ready(self) -> "Wire":
        self.reply(VERSIONS)
        self.reply(SaslHandshakeResponse(mechanisms=["PLAIN"]))
        self.reply(ACCEPTED)
        assert self.machine.state is State.READY
        self.machine.begin_lifetime(ms(0), 0)
        return self


def test_a_login_comes_between_the_handshake_and_the_first_request() -> None:
    wire = Wire()
    wire.reply(VERSIONS)
    assert wire.machine.state is State.AUTHENTICATING
    assert not wire.machine.has_room
    assert wire.sent() == [SaslHandshakeRequest("PLAIN")]
    wire.reply(SaslHandshakeResponse(mechanisms=["PLAIN"]))
    assert wire.sent() == [SaslAuthenticateRequest(PlainMachine("alice", "hunter2").first())]
    assert wire.reply(ACCEPTED) == []
    assert wire.machine.has_room


@pytest.mark.parametrize(
    ("handshake", "authenticate", "reason"),
    [
        (
            SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-512"]),
            None,
            "does not offer PLAIN; its mechanisms are SCRAM-SHA-512",
        ),
        (SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE), None, "does not take SASL"),
        (SaslHandshakeResponse(7), None, "REQUEST_TIMED_OUT"),
        (
            SaslHandshakeResponse(),
            SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "Invalid username"),
            "PLAIN: Invalid username",
        ),
        (SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"more"), "PLAIN has none"),
    ],
)
def test_a_refusal_is_told_in_the_brokers_words_without_the_password(
    handshake: SaslHandshakeResponse, authenticate: SaslAuthenticateResponse | None, reason: str
) -> None:
    wire = Wire()
    wire.reply(VERSIONS)
    with pytest.raises(AuthenticationFailed, match=reason) as failed:  # noqa: PT012 - either reply may refuse
        wire.reply(handshake)
        assert authenticate is not None
        wire.reply(authenticate)
    assert "hunter2" not in str(failed.value)


def test_a_broker_that_accepts_scram_without_its_signature_is_refused() -> None:
    wire = Wire(PasswordLogin("SCRAM-SHA-256", "alice", "hunter2", lambda size: b"n" * size))
    wire.reply(VERSIONS)
    wire.reply(SaslHandshakeResponse())
    with pytest.raises(AuthenticationFailed):
        wire.reply(SaslAuthenticateResponse())


def test_a_broker_that_asks_for_ever_is_refused() -> None:
    wire = Wire(TokenLogin(lambda: "token", {}))
    wire.reply(VERSIONS)
    wire.reply(SaslHandshakeResponse())
    with pytest.raises(AuthenticationFailed, match="too early"):  # noqa: PT012
        for _ in range(100):
            wire.reply(SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))


def test_the_session_is_due_late_in_its_life() -> None:
    machine = Wire().ready().machine
    for drawn, due_ms in ((0, 8500), (255, 9496)):
        machine.begin_lifetime(ms(0), drawn)
        assert not machine.is_due(ms(due_ms - 1))
        assert machine.is_due(ms(due_ms + 1))


def test_requests_during_a_re_authentication_wait_for_its_end_in_order() -> None:
    wire = Wire().ready()
    machine = wire.machine
    machine.request(MetadataRequest(topics=[]), "before", ms(5000))
    machine.reauthenticate(ms(9000))
    machine.request(MetadataRequest(topics=[]), "during", ms(4000))
    assert (machine.in_flight, machine.has_room, machine.deadline()) == (3, True, ms(4000))
    assert [type(one) for one in wire.sent()] == [MetadataRequest, SaslHandshakeRequest]
    (answer,) = wire.reply(metadata())
    assert (answer.token, type(answer.message)) == ("before", MetadataResponse)
    assert wire.reply(SaslHandshakeResponse()) == []
    assert [type(one) for one in wire.sent()] == [SaslAuthenticateRequest]
    assert wire.reply(ACCEPTED) == []
    assert machine.state is State.READY
    (answer,) = wire.reply(metadata())
    assert answer.token == "during"


@pytest.mark.parametrize("limit", [1, 5])
def test_a_request_at_the_limit_waits_for_the_end_of_the_re_authentication(limit: int) -> None:
    wire = Wire().ready()
    machine = wire.machine
    machine.in_flight_max = limit
    for number in range(limit - 1):
        machine.request(MetadataRequest(topics=[]), number, ms(5000))
    machine.reauthenticate(ms(9000))
    machine.request(MetadataRequest(topics=[]), "last", ms(5000))
    for _ in range(limit - 1):
        wire.reply(metadata())
    wire.reply(SaslHandshakeResponse())
    wire.reply(ACCEPTED)
    (answer,) = wire.reply(metadata())
    assert answer.token == "last"


def test_a_refused_re_authentication_fails_the_requests_that_wait() -> None:
    wire = Wire().ready()
    wire.machine.reauthenticate(ms(9000))
    wire.machine.request(MetadataRequest(topics=[]), "during", ms(4000))
    wire.reply(SaslHandshakeResponse())
    with pytest.raises(AuthenticationFailed) as failed:
        wire.reply(SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "no"))
    (answer,) = wire.machine.closed(failed.value, ms(1))
    assert (answer.token, answer.error) == ("during", failed.value)


def test_a_token_is_asked_for_at_each_authentication() -> None:
    tokens = iter(["one", "two"])
    wire = Wire(TokenLogin(lambda: next(tokens), {"ext": "v"}))
    wire.reply(VERSIONS)
    wire.reply(SaslHandshakeResponse())
    assert wire.sent() == [SaslAuthenticateRequest(OAuthMachine("one", {"ext": "v"}).first())]
    wire.reply(ACCEPTED)
    wire.machine.reauthenticate(ms(9000))
    wire.reply(SaslHandshakeResponse())
    assert wire.sent() == [SaslAuthenticateRequest(OAuthMachine("two", {"ext": "v"}).first())]


# -- settings

BASE = {"security.protocol": "SASL_PLAINTEXT"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "sasl.mechanism=GSSAPI: Kerberos .* is not supported"),
        ({"sasl.mechanism": "DIGEST-MD5"}, "the mechanisms are PLAIN"),
        ({"sasl.mechanism": "PLAIN"}, "PLAIN needs sasl.username and sasl.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": ""}, "needs sasl.username"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'X required password="hunter2";'}, "login module"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "password=hunter2"}, "not of the form|semicolon"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs sasl.oauthbearer.token.endpoint.url"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://idp/token"},
            "client.credentials.client.id",
        ),
        ({"sasl.oauthbearer.token.callback": "f"}, "must be a function"),
    ],
)
def test_settings_that_make_no_login_are_refused_without_secrets(given: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as refused:
        ClientSettings.from_kafka(BASE | given)
    assert "hunter2" not in str(refused.value)


def test_no_secret_is_in_the_repr_of_settings() -> None:
    settings = ClientSettings.from_kafka(
        BASE | {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "hunter2"}
    )
    assert "hunter2" not in repr(settings)
    assert "sasl_username='alice'" in repr(settings)
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="hunter2";'
    settings = ClientSettings.from_kafka(BASE | {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas})
    assert "hunter2" not in repr(settings)
