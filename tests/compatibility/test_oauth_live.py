"""OAUTHBEARER against a live broker: tokens of a provider on loopback, for three clients."""

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import sparklog
from sparklog.client.failures import AuthenticationFailed
from sparklog.local_broker import EmbeddedBroker, embedded
from sparklog.model import TopicPartition
from sparklog_server.cli.main import main
from tests.compatibility.kafka_tools import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    TOPICS,
    all_that_is_said,
    kafka_tool,
    write_properties,
)
from tests.identity_provider import AUDIENCE, JWT_BEARER, KEY, Provider, a_token, provider

pytestmark = pytest.mark.compat

PATIENCE_S = 20
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def idp() -> Iterator[Provider]:
    with provider(KEY.public_key()) as server:
        yield server


@pytest.fixture(scope="module")
def broker(idp: Provider) -> Iterator[EmbeddedBroker]:
    with embedded(
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="OAUTHBEARER,PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=(
            f'{_PLAIN} required username="node" password="n" user_node="n";'
        ),
        sasl_oauthbearer_jwks_endpoint_url=f"{idp.url}/keys",
        sparklog_sasl_oauthbearer_allowed_urls=f"{idp.url}/keys",
        sasl_oauthbearer_expected_issuer="idp",
        sasl_oauthbearer_expected_audience="kafka",
    ) as one:
        yield one


def pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The file of the key that the provider trusts."""
    file = tmp_path / "key.pem"
    file.write_bytes(pem(KEY))
    return file


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


@pytest.mark.parametrize("grant", ["client_credentials", JWT_BEARER])
def test_librdkafka_gets_tokens_of_a_provider(
    broker: EmbeddedBroker, idp: Provider, key: Path, grant: str
) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"{idp.url}/token",
        "sasl.oauthbearer.grant.type": grant,
        "sasl.oauthbearer.scope": "kafka",
    }
    if grant == JWT_BEARER:
        settings |= {
            "sasl.oauthbearer.assertion.private.key.file": str(key),
            "sasl.oauthbearer.assertion.claim.aud": AUDIENCE,
            "sasl.oauthbearer.assertion.claim.iss": "app",
        }
    else:
        settings |= {"sasl.oauthbearer.client.id": "client", "sasl.oauthbearer.client.secret": "a/b"}
    idp.asked.clear()
    producer = confluent_kafka.Producer(settings | {"message.timeout.ms": "20000"})
    producer.produce("librdkafka", b"value")
    assert producer.flush(PATIENCE_S) == 0
    assert {form["grant_type"] for form in idp.asked} == {grant}


@pytest.mark.parametrize(
    "retriever", ["ClientCredentialsJwtRetriever", "FileJwtRetriever", "JwtBearerJwtRetriever", "wrong key"]
)
def test_kafkas_java_clients_get_tokens_of_a_provider(
    broker: EmbeddedBroker, idp: Provider, key: Path, retriever: str
) -> None:
    url = f"{idp.url}/token"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
    }
    if retriever == "FileJwtRetriever":
        file = key.with_name("token")
        file.write_text(a_token())
        url = file.as_uri()
    elif retriever == "ClientCredentialsJwtRetriever":
        settings["sasl.oauthbearer.client.credentials.client.id"] = "client"
        settings["sasl.oauthbearer.client.credentials.client.secret"] = "a/b"
    else:
        settings["sasl.oauthbearer.assertion.private.key.file"] = str(key)
        settings["sasl.oauthbearer.assertion.claim.aud"] = AUDIENCE
        settings["sasl.oauthbearer.assertion.claim.iss"] = "app"
    is_wrong = retriever == "wrong key"
    if is_wrong:
        key.write_bytes(pem(rsa.generate_private_key(65537, 2048)))
        retriever = "JwtBearerJwtRetriever"
    settings["sasl.oauthbearer.jwt.retriever.class"] = f"{_OAUTH}.{retriever}"
    settings["sasl.oauthbearer.token.endpoint.url"] = url
    properties = write_properties(key.with_name("client.properties"), settings)
    allowed = "org.apache.kafka.sasl.oauthbearer.allowed"
    jvm = {f"{allowed}.urls": url, f"{allowed}.files": str(key)}
    options = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", properties)
    if is_wrong:
        assert "invalid_client" in all_that_is_said(TOPICS, *options, "--list", properties=jvm)
        return
    topic = f"java-{retriever}"
    create = ("--create", "--topic", topic, "--partitions", "1")
    kafka_tool(TOPICS, *options, *create, properties=jvm)
    kafka_tool(CONSOLE_PRODUCER, *options, "--topic", topic, given="value\n", properties=jvm)
    reader = (*options, "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "1")
    assert kafka_tool(CONSOLE_CONSUMER, *reader, properties=jvm) == "value\n"


def test_our_clients_take_tokens_of_a_callback_a_file_and_a_provider(
    broker: EmbeddedBroker, idp: Provider, tmp_path: Path
) -> None:
    with ours(broker, sasl_oauthbearer_token_callback=lambda: (a_token(), time.time() + 300)) as admin:
        admin.list_topics()
    file = tmp_path / "token"
    file.write_text(a_token() + "\n")
    with ours(broker, sasl_oauthbearer_token_endpoint_url=file.as_uri()) as admin:
        admin.list_topics()
    client = {
        "sasl_oauthbearer_token_endpoint_url": f"{idp.url}/token",
        "sasl_oauthbearer_client_credentials_client_id": "client",
        "sasl_oauthbearer_scope": "kafka read",
    }
    idp.asked.clear()
    with ours(broker, **client, sasl_oauthbearer_client_credentials_client_secret="a/b") as admin:
        admin.list_topics()
    assert idp.asked == [{"grant_type": "client_credentials", "scope": "kafka read"}]
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


def test_every_client_of_ours_exchanges_an_assertion_for_a_token(
    broker: EmbeddedBroker, idp: Provider, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"{idp.url}/token",
        "sasl.oauthbearer.jwt.retriever.class": f"{_OAUTH}.JwtBearerJwtRetriever",
        "sasl.oauthbearer.assertion.private.key.file": str(key),
        "sasl.oauthbearer.assertion.claim.aud": AUDIENCE,
        "sasl.oauthbearer.assertion.claim.iss": "app",
    }
    ours = {name.replace(".", "_"): text for name, text in settings.items()}
    with sparklog.Producer(**ours) as producer:  # type: ignore[arg-type]
        producer.send("bearer", value=b"one")
    with sparklog.Consumer(**ours) as consumer:  # type: ignore[arg-type]
        one = TopicPartition("bearer", 0)
        consumer.assign([one])
        assert consumer.beginning_offsets([one]) == {one: 0}
    properties = write_properties(key.with_name("client.properties"), settings)
    assert main(["topics", "list", "--command-config", str(properties)]) == 0
    assert "bearer" in capsys.readouterr().out
    assert len(idp.assertions) >= 3
