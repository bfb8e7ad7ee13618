"""OAUTHBEARER against a live broker: tokens of a provider on loopback, for librdkafka and our clients."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import confluent_kafka
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

import sparklog
from sparklog.client.failures import AuthenticationFailed
from sparklog.local_broker import EmbeddedBroker, embedded

pytestmark = pytest.mark.compat

KEY = rsa.generate_private_key(65537, 2048)
PATIENCE_S = 20
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def a_token(key: rsa.RSAPrivateKey = KEY, lasts_s: int = 300) -> str:
    now = int(time.time())
    claims = {"sub": "alice", "iss": "idp", "aud": "kafka", "iat": now, "exp": now + lasts_s}
    return jwt.encode(claims, key, "RS256", headers={"kid": "one"})


class Provider(HTTPServer):
    """The two documents of an identity provider; `asked` has the bodies of requests for tokens."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, list[str]]] = []
        self.keys = {
            "keys": [json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())) | {"kid": "one"}]
        }
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self._answer(200, self.server.keys)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(parse_qs(body))
        if self.headers["Authorization"] != "Basic Y2xpZW50OmElMkZi":  # client:a/b, form-encoded
            self._answer(401, {"error": "invalid_client"})
        else:
            self._answer(200, {"access_token": a_token(), "expires_in": 300})

    def _answer(self, code: int, told: Any) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    server = Provider()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def broker(provider: Provider) -> Iterator[EmbeddedBroker]:
    with embedded(
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="OAUTHBEARER,PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=(
            f'{_PLAIN} required username="node" password="n" user_node="n";'
        ),
        sasl_oauthbearer_jwks_endpoint_url=f"{provider.url}/keys",
        sparklog_sasl_oauthbearer_allowed_urls=f"{provider.url}/keys",
        sasl_oauthbearer_expected_issuer="idp",
        sasl_oauthbearer_expected_audience="kafka",
    ) as one:
        yield one


def ours(broker: EmbeddedBroker, **more: object) -> sparklog.Admin:
    return sparklog.Admin(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        **more,  # type: ignore[arg-type]
    )


def test_librdkafka_authenticates_by_a_token(broker: EmbeddedBroker) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    producer = confluent_kafka.Producer(
        settings | {"oauth_cb": lambda _: (a_token(), time.time() + 300), "message.timeout.ms": "20000"}
    )
    producer.produce("t", b"value")
    assert producer.flush(PATIENCE_S) == 0


def test_our_clients_take_tokens_of_a_callback_a_file_and_a_provider(
    broker: EmbeddedBroker, provider: Provider, tmp_path: Path
) -> None:
    with ours(broker, sasl_oauthbearer_token_callback=lambda: (a_token(), time.time() + 300)) as admin:
        admin.list_topics()
    file = tmp_path / "token"
    file.write_text(a_token() + "\n")
    with ours(broker, sasl_oauthbearer_token_endpoint_url=file.as_uri()) as admin:
        admin.list_topics()
    client = {
        "sasl_oauthbearer_token_endpoint_url": f"{provider.url}/token",
        "sasl_oauthbearer_client_credentials_client_id": "client",
        "sasl_oauthbearer_scope": "kafka read",
    }
    with ours(broker, **client, sasl_oauthbearer_client_credentials_client_secret="a/b") as admin:
        admin.list_topics()
    assert provider.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka read"]}]
    with (
        ours(broker, **client, sasl_oauthbearer_client_credentials_client_secret="hunter2") as admin,
        pytest.raises(AuthenticationFailed, match="HTTP 401") as failed,
    ):
        admin.list_topics()
    assert "hunter2" not in str(failed.value)


def test_a_forged_token_is_an_error_of_authentication(broker: EmbeddedBroker) -> None:
    other = rsa.generate_private_key(65537, 2048)
    unsigned = jwt.encode({"sub": "alice", "exp": time.time() + 300}, None, "none")
    for token in (a_token(other), a_token(lasts_s=-100), unsigned):
        with (
            ours(broker, sasl_oauthbearer_token_callback=lambda token=token: token) as admin,
            pytest.raises(AuthenticationFailed, match="invalid_token"),
        ):
            admin.list_topics()


def test_a_session_is_authenticated_again_before_its_token_ends(broker: EmbeddedBroker) -> None:
    asked = []

    def callback() -> str:
        asked.append(time.monotonic())
        return a_token(lasts_s=3)

    with ours(broker, sasl_oauthbearer_token_callback=callback) as admin:
        while len(asked) < 2:
            admin.list_topics()
            assert time.monotonic() < asked[0] + PATIENCE_S
    assert asked[1] - asked[0] < 3
