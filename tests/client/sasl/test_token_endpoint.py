"""Tokens of OAUTHBEARER from an identity provider on loopback: every grant, and what may fail."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from sparklog.client.failures import AuthenticationFailed
from sparklog.client.sasl.machines import OAuthMachine
from sparklog.client.sasl.token_endpoint import Tokens, shell_login
from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError
from sparklog.tls.contexts import server_context
from sparklog.tls.keys import TlsKeys
from tests.certificates import authority, issued
from tests.identity_provider import AUDIENCE, JWT_BEARER, Provider, provider

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
PREFIX = "sasl.oauthbearer."
BEARER = {
    "jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
    "assertion.claim.aud": AUDIENCE,
    "assertion.claim.iss": "app",
    "assertion.claim.sub": "app",
}


def pem(key: Any, passphrase: str | None = None) -> str:
    protection = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection).decode()


def token(url: str, given: dict[str, str], jaas: str | None = None) -> str:
    """The token that a client with these settings sends."""
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    settings |= {PREFIX + name: text for name, text in given.items()} | {PREFIX + "token.endpoint.url": url}
    settings |= {} if jaas is None else {"sasl.jaas.config": jaas}
    machine = shell_login(ClientSettings.from_kafka(settings), bytes).machine()
    assert isinstance(machine, OAuthMachine)
    return machine.first().decode().split("Bearer ")[1].partition("\x01")[0]


@pytest.fixture
def idp() -> Iterator[Provider]:
    with provider(RSA.public_key()) as server:
        yield server


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key.pem"
    file.write_text(pem(RSA))
    return file


def test_an_assertion_signed_by_a_key_file_is_exchanged_for_a_token(idp: Provider, key: Path) -> None:
    given = BEARER | {"assertion.private.key.file": str(key), "scope": " kafka read "}
    sent = token(f"{idp.url}/token", given)
    assert jwt.decode(sent, options={"verify_signature": False})["sub"] == "alice"
    asked = idp.asked[0]
    assert set(asked) == {"grant_type", "assertion", "scope"}
    assert (asked["grant_type"], asked["scope"]) == (JWT_BEARER, "kafka read")
    claims = idp.assertions[0]
    assert {name: claims[name] for name in ("alg", "typ", "aud", "iss", "sub")} == {
        "alg": "RS256",
        "typ": "JWT",
        "aud": AUDIENCE,
        "iss": "app",
        "sub": "app",
    }
    assert (claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"]) == (300, 60)
    assert "jti" not in claims


def test_the_claims_come_from_settings_template_and_clock_in_this_order(idp: Provider, key: Path) -> None:
    template = key.with_name("template.json")
    template.write_text(
        json.dumps(
            {"header": {"kid": "mine", "alg": "none"}, "payload": {"sub": "other", "org": [1], "exp": 1}}
        )
    )
    given = BEARER | {
        "assertion.private.key.file": str(key),
        "assertion.template.file": str(template),
        "assertion.claim.exp.seconds": "20",
        "assertion.claim.nbf.seconds": "0",
        "assertion.claim.jti.include": "true",
    }
    for _ in range(2):
        token(f"{idp.url}/token", given)
    first, second = idp.assertions
    assert (first["alg"], first["kid"], first["sub"], first["iss"], first["org"]) == (
        "RS256",
        "mine",
        "other",
        "app",
        [1],
    )
    assert (first["exp"] - first["iat"], first["iat"] - first["nbf"]) == (20, 0)
    assert first["jti"] != second["jti"]


def test_es256_and_an_encrypted_key_are_used(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text(pem(EC, "hunter2"))
    given = BEARER | {
        "assertion.private.key.file": str(file),
        "assertion.private.key.passphrase": "hunter2",
        "assertion.algorithm": "es256",
    }
    with provider(EC.public_key()) as idp:
        token(f"{idp.url}/token", given)
        assert idp.assertions[0]["alg"] == "ES256"
        with pytest.raises(AuthenticationFailed, match=r"passphrase opens") as failed:
            token(f"{idp.url}/token", given | {"assertion.private.key.passphrase": "hunter3"})
    assert "hunter" not in str(failed.value)


def test_an_assertion_of_a_file_is_sent_as_it_is(idp: Provider, tmp_path: Path) -> None:
    assertion = jwt.encode({"aud": AUDIENCE, "iss": "elsewhere"}, RSA, "RS256")
    file = tmp_path / "assertion"
    file.write_text(assertion + "\n")
    token(f"{idp.url}/token", BEARER | {"assertion.file": str(file)})
    assert idp.asked == [{"grant_type": JWT_BEARER, "assertion": assertion}]


def test_an_assertion_takes_the_place_of_the_clients_secret(idp: Provider, key: Path) -> None:
    given = {
        "assertion.claim.iss": "app",
        "assertion.claim.aud": AUDIENCE,
        "assertion.private.key.file": str(key),
        "client.credentials.client.id": "client",
    }
    token(f"{idp.url}/token", given)
    assertion = idp.asked[0].pop("client_assertion")
    assert jwt.decode(assertion, RSA.public_key(), ["RS256"], audience=AUDIENCE)["iss"] == "app"
    assert idp.asked == [
        {
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_id": "client",
        }
    ]


@pytest.mark.parametrize("is_encoded", ["true", "false"])
def test_the_secret_is_encoded_only_if_the_setting_says_so(idp: Provider, is_encoded: str) -> None:
    credentials = {"client.credentials.client.id": "client", "client.credentials.client.secret": "a/b"}
    token(f"{idp.url}/token", credentials | {"header.urlencode": is_encoded})


def test_the_trust_store_of_the_provider_is_an_option_of_jaas(tmp_path: Path) -> None:
    one = issued("CN=idp")
    context = server_context(TlsKeys(keystore_key=one.key_pem(), keystore_certificate_chain=one.chain_pem))
    trusted = authority().write(tmp_path / "ca.pem")
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    jaas = f'{module} clientId="client" clientSecret="a/b"'
    with provider(context=context) as idp:
        token(f"{idp.url}/token", {}, f'{jaas} ssl.truststore.location="{trusted}";')
        with pytest.raises(AuthenticationFailed, match="CERTIFICATE_VERIFY_FAILED"):
            token(f"{idp.url}/token", {}, f"{jaas};")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "HTTP 302, a redirect, which is not followed"),
        (
            (400, {}, b'{"error": "invalid_grant", "error_description": "clock\\u0007 is wrong"}'),
            r"HTTP 400 invalid_grant - clock\? is wrong$",
        ),
        ((503, {}, b"<html>" + b"x" * (1 << 20)), "HTTP 503 Service Unavailable"),
        ((401, {}, b'{"error": ["hunter2"]}'), "HTTP 401 Unauthorized"),
        ((200, {}, b'{"access_token": "' + b"x" * (1 << 20)), "more than 1048576 bytes"),
        ((200, {}, b"[" * 100_000), "its reply is not JSON"),
        ((200, {}, b"[]"), "not an object"),
        ((200, {}, b"\xff"), "not JSON"),
        ((200, {"Content-Length": "9"}, b"{}"), "IncompleteRead|no token"),
        ((200, {}, b'{"id_token": "x"}'), "no access_token"),
        ((200, {}, b'{"access_token": "one\\u0001auth=two"}'), "other characters"),
    ],
)
def test_a_failure_of_the_provider_is_told(
    idp: Provider, key: Path, answer: tuple[int, dict[str, str], bytes], reason: str
) -> None:
    idp.fixed["/token"] = answer
    with pytest.raises(AuthenticationFailed, match=reason):
        token(f"{idp.url}/token", BEARER | {"assertion.private.key.file": str(key)})


def test_no_secret_is_told_when_the_provider_repeats_it(idp: Provider, key: Path) -> None:
    idp.trusted = rsa.generate_private_key(65537, 2048).public_key()
    with pytest.raises(AuthenticationFailed, match="invalid_client - not accepted") as failed:
        token(f"{idp.url}/token", BEARER | {"assertion.private.key.file": str(key)})
    assert idp.asked[0]["assertion"][:40] not in str(failed.value)
    credentials = {"client.credentials.client.id": "client", "client.credentials.client.secret": "hunter2"}
    idp.fixed["/echo"] = 400, {}, b'{"error": "hunter2"}'
    with pytest.raises(AuthenticationFailed, match=r"HTTP 400 \[hidden\]"):
        token(f"{idp.url}/echo", credentials)


def test_a_provider_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/token"
        credentials = {
            "client.credentials.client.id": "client",
            "client.credentials.client.secret": "hunter2",
        }
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.connect.timeout.ms": "50",
            "sasl.login.read.timeout.ms": "50",
            PREFIX + "token.endpoint.url": url,
        } | {PREFIX + name: text for name, text in credentials.items()}
        login = shell_login(ClientSettings.from_kafka(settings), bytes)
        with pytest.raises(AuthenticationFailed, match=f"{url} gives no token: timed out"):
            login.machine()
    with pytest.raises(AuthenticationFailed, match=f"{url} gives no token: .*refused"):
        login.machine()


@pytest.mark.parametrize(
    ("content", "more", "reason"),
    [
        ("no key", {}, "not an unencrypted private key"),
        (pem(RSA, "hunter2"), {}, "not an unencrypted private key"),
        (pem(EC), {}, "RS256 needs an RSA key"),
        (pem(RSA), {"assertion.algorithm": "ES256"}, "ES256 needs a key of the curve P-256"),
        (pem(ec.generate_private_key(ec.SECP384R1())), {"assertion.algorithm": "ES256"}, "P-256"),
        ("é", {}, "is not ASCII"),
        ("x" * ((1 << 20) + 1), {}, "more than 1048576 bytes"),
        (pem(RSA), {"assertion.template.file": "/dev/null"}, "template.file=/dev/null is not of the form"),
        (pem(RSA), {"assertion.file": "/none"}, "assertion.file=/none cannot be read: No such file"),
    ],
)
def test_files_that_make_no_assertion_are_named(
    key: Path, content: str, more: dict[str, str], reason: str
) -> None:
    key.write_text(content)
    with pytest.raises(AuthenticationFailed, match=reason) as failed:
        token("https://127.0.0.1:1/token", BEARER | {"assertion.private.key.file": str(key)} | more)
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (BEARER, "needs sasl.oauthbearer.assertion.private.key.file"),
        (BEARER | {"assertion.algorithm": "HS256"}, "assertion.algorithm=HS256: must be one of ES256, RS256"),
        (BEARER | {"assertion.claim.exp.seconds": "86401"}, "exp.seconds=86401"),
        ({"jwt.retriever.class": "com.example.Own"}, "jwt.retriever.class=com.example.Own: the classes are"),
        ({"jwt.retriever.class": "FileJwtRetriever"}, "FileJwtRetriever needs an URL of file://"),
    ],
)
def test_settings_that_make_no_grant_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        token("https://idp/token", given)
    with pytest.raises(SettingsError, match="JwtBearerJwtRetriever needs an URL of https://"):
        token("file:///token", BEARER)


def test_a_token_serves_until_its_end_while_the_provider_gives_none() -> None:
    now_s = 1000.0
    told = [("one", 1100.0), None, ("two", 1200.0), None]

    def callback() -> tuple[str, float]:
        answer = told.pop(0)
        if answer is None:
            raise AuthenticationFailed("the provider is down")
        return answer

    tokens = Tokens(connect_timeout_ms=0, read_timeout_ms=0, clock=lambda: now_s).of_callback(callback)
    assert (tokens(), len(told)) == ("one", 3)
    now_s = 1079.0
    assert (tokens(), len(told)) == ("one", 3)
    now_s = 1080.0
    assert (tokens(), len(told)) == ("one", 2)
    assert (tokens(), len(told)) == ("two", 1)
    now_s = 1200.0
    with pytest.raises(AuthenticationFailed, match="is down"):
        tokens()


@pytest.mark.parametrize("lasts", ["NaN", "Infinity", "1" + "0" * 400, "true", '"60"', "-1", "null"])
def test_a_token_without_a_known_end_is_fetched_each_time(idp: Provider, lasts: str) -> None:
    idp.fixed["/token"] = 200, {}, f'{{"access_token": "opaque", "expires_in": {lasts}}}'.encode()
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        PREFIX + "token.endpoint.url": f"{idp.url}/token",
        PREFIX + "client.credentials.client.id": "client",
        PREFIX + "client.credentials.client.secret": "a/b",
    }
    login = shell_login(ClientSettings.from_kafka(settings), bytes)
    for _ in range(2):
        login.machine()
    assert len(idp.asked) == 2
