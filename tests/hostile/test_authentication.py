"""Before authentication a session may only authenticate, in the order of the protocol."""

import struct
from collections.abc import Callable

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.hostile.conftest import BEFORE, UNAUTHENTICATED, Client, Door, Target, frame

VERSIONS = ApiVersionsRequest(client_software_name="hostile", client_software_version="1")
SERVED = range(93)


@UNAUTHENTICATED
@pytest.mark.parametrize("api_key", [-1, -32768, 93, 9999, 32767])
def test_an_unknown_api_closes_the_connection(target: Target, door: Door, api_key: int) -> None:
    with target.client(door) as client:
        client.send(frame(api_key, 0))
        assert client.is_closed()


@UNAUTHENTICATED
@pytest.mark.parametrize("version", [-1, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_with_the_known_ones(
    target: Target, door: Door, version: int
) -> None:
    with target.client(door) as client:
        client.send(frame(18, version, b"\0" if version > 2 else b""))  # the tagged fields of the header
        told = client.reply(ApiVersionsResponse, 0)
        assert isinstance(told, ApiVersionsResponse)
        assert told.error_code == ErrorCode.UNSUPPORTED_VERSION
        again = client.ask(VERSIONS, 3, ApiVersionsResponse)
        assert isinstance(again, ApiVersionsResponse)
        assert again.error_code == 0


@pytest.mark.parametrize("version", [-1, 2, 32767])
def test_an_unknown_version_of_the_handshake_closes_the_connection(target: Target, version: int) -> None:
    with target.client(Door.BEFORE) as client:
        client.send(frame(17, version, struct.pack(">h5s", 5, b"PLAIN")))
        assert client.is_closed()


@BEFORE
def test_no_other_api_is_served_before_authentication(target: Target, door: Door) -> None:
    for api_key in SERVED:
        if api_key not in (17, 18):
            with target.client(door) as client:
                client.send(frame(api_key, 0, bytes(64)))
                assert client.is_closed(), api_key


def before_a_handshake(client: Client) -> None:
    client.request(SaslAuthenticateRequest(b"\0alice\0a-secret"), 2)


def versions_twice(client: Client) -> None:
    client.ask(VERSIONS, 3, ApiVersionsResponse)
    client.request(VERSIONS, 3)


def handshake_twice(client: Client) -> None:
    client.begin()
    told = client.ask(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse)
    assert isinstance(told, SaslHandshakeResponse)
    assert told.error_code == ErrorCode.ILLEGAL_SASL_STATE


def versions_after_the_handshake(client: Client) -> None:
    client.begin()
    told = client.ask(VERSIONS, 3, ApiVersionsResponse)
    assert isinstance(told, ApiVersionsResponse)
    assert told.error_code == ErrorCode.ILLEGAL_SASL_STATE


def another_request_within_the_exchange(client: Client) -> None:
    client.begin("SCRAM-SHA-512")
    client.respond(b"n,,n=alice,r=nonce")
    client.request(MetadataRequest(topics=None), 9)


def a_mechanism_that_is_not_offered(client: Client) -> None:
    told = client.ask(SaslHandshakeRequest("GSSAPI"), 1, SaslHandshakeResponse)
    assert isinstance(told, SaslHandshakeResponse)
    assert told.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert told.mechanisms == ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.mark.parametrize(
    "misbehave",
    [
        before_a_handshake,
        versions_twice,
        handshake_twice,
        versions_after_the_handshake,
        another_request_within_the_exchange,
        a_mechanism_that_is_not_offered,
    ],
)
def test_sasl_out_of_order_closes_the_connection(target: Target, misbehave: Callable[[Client], None]) -> None:
    with target.client(Door.BEFORE) as client:
        misbehave(client)
        assert client.is_closed()


@pytest.mark.parametrize(
    ("mechanism", "tokens"),
    [
        ("PLAIN", [b""]),
        ("PLAIN", [b"\0alice\0wrong"]),
        ("PLAIN", [b"\0alice\0"]),
        ("PLAIN", [b"bob\0alice\0a-secret"]),
        ("PLAIN", [b"\0\xff\xfe\0a-secret"]),
        ("PLAIN", ["\0\u202eecila\0a-secret".encode()]),
        ("PLAIN", [b"\0" * 500_000]),
        ("SCRAM-SHA-512", [b""]),
        ("SCRAM-SHA-512", [b"c=biws,r=nonce,p=cHJvb2Y="]),
        ("SCRAM-SHA-512", [b"p=tls-unique,,n=alice,r=nonce"]),
        ("SCRAM-SHA-512", [b"n,,n=" + b"a" * 500_000 + b",r=nonce"]),
        ("SCRAM-SHA-512", [b"n,,n=alice,r=nonce", b"c=biws,r=foreign,p=cHJvb2Y="]),
        ("SCRAM-SHA-512", [b"n,,n=alice,r=nonce", b"n,,n=alice,r=nonce"]),
    ],
)
def test_a_false_proof_is_refused_and_closes_the_connection(
    target: Target, mechanism: str, tokens: list[bytes]
) -> None:
    with target.client(Door.BEFORE) as client:
        client.begin(mechanism)
        *earlier, last = tokens
        assert all(client.respond(token).error_code == 0 for token in earlier)
        told = client.respond(last)
        assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "a-secret" not in (told.error_message or "")
        assert client.is_closed()
    assert "a-secret" not in target.log()


def test_after_a_failure_nothing_more_is_served(target: Target) -> None:
    with target.client(Door.BEFORE) as client:
        client.begin()
        client.request(SaslAuthenticateRequest(b"\0alice\0wrong"), 2)
        client.request(SaslAuthenticateRequest(b"\0alice\0a-secret"), 2)
        client.request(MetadataRequest(topics=None), 9)
        length = int.from_bytes(client.receive(4), "big")
        client.receive(length)
        assert client.is_closed()
