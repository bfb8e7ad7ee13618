"""Unmodified clients and Kafka's tools authenticate by SASL, and are refused with a wrong password."""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import time

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import sparklog
from sparklog.client.failures import AuthenticationFailed
from sparklog.local_broker import EmbeddedBroker, embedded
from tests.compatibility.group_members import KAFKAJS
from tests.compatibility.kafka_tools import (
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    all_that_is_said,
    kafka_tool,
)
from tests.tools import PROJECT, require_command

pytestmark = pytest.mark.compat

DELEGATION_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
PASSWORD = 'alice,"s = secret'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PATIENCE_S = 20
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with one listener, which needs SASL, and the user alice in every mechanism."""
    users = f'{_PLAIN} required username="node" password="n" user_node="n" user_alice={quoted(PASSWORD)};'
    with embedded(
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=users,
        connections_max_reauth_ms=60_000,
        delegation_token_secret_key="secret",
    ) as one:
        admin = AdminClient(rdkafka(one.bootstrap_servers, "PLAIN"))
        changes = [
            confluent_kafka.admin.UserScramCredentialUpsertion(
                "alice", confluent_kafka.admin.ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            for mechanism in (
                confluent_kafka.admin.ScramMechanism.SCRAM_SHA_256,
                confluent_kafka.admin.ScramMechanism.SCRAM_SHA_512,
            )
        ]
        for change in changes:  # one mechanism of a user in each request
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(timeout=PATIENCE_S)
        yield one


def rdkafka(address: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def java(directory: Path, mechanism: str, password: str = PASSWORD, more: str = "") -> Path:
    """A properties file as users write it, with a continued line."""
    module = _PLAIN if mechanism == "PLAIN" else _SCRAM
    value = quoted(password).replace("\\", "\\\\")
    path = directory / f"{mechanism}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required \\\n  username="alice" \\\n  password={value}{more};\n'
    )
    return path


def a_topic(broker: EmbeddedBroker, name: str) -> str:
    topic = f"{name.lower()}-{time():.6f}"
    admin = AdminClient(rdkafka(broker.bootstrap_servers, "PLAIN"))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=PATIENCE_S)
    return topic


# -- clients


def by_librdkafka(address: str, mechanism: str, password: str, topic: str) -> bytes:
    settings = rdkafka(address, mechanism, password)
    errors: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(settings | {"message.timeout.ms": "3000"}, error_cb=errors.append)
    producer.produce(topic, b"value")
    if producer.flush(PATIENCE_S) or errors:
        assert any(error.code() == confluent_kafka.KafkaError._AUTHENTICATION for error in errors)
        raise PermissionError
    consumer = confluent_kafka.Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message is not None
    return bytes(message.value() or b"")


def by_kafka_python(address: str, mechanism: str, password: str, topic: str) -> bytes:
    settings = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }
    try:
        producer = kafka.KafkaProducer(**settings, max_block_ms=5000, bootstrap_timeout_ms=3000)
        producer.send(topic, b"value").get(timeout=PATIENCE_S)
        producer.close()
    except (kafka.errors.KafkaError, AssertionError) as error:
        raise PermissionError from error
    consumer = kafka.KafkaConsumer(topic, **settings, auto_offset_reset="earliest", group_id=None)
    value: bytes = next(consumer).value
    consumer.close()
    return value


def by_kafka_python_in_a_child(*given: str) -> bytes:
    """A client that is refused while it is made leaves its sockets open until its process ends."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(by_kafka_python, *given).result()


def by_aiokafka(address: str, mechanism: str, password: str, topic: str) -> bytes:
    settings = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }

    async def run() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"value")
        except aiokafka.errors.KafkaError as error:
            raise PermissionError from error
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
        await consumer.start()
        try:
            return bytes((await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value)
        finally:
            await consumer.stop()

    return asyncio.run(run())


def by_kafkajs(address: str, mechanism: str, password: str, topic: str) -> bytes:
    if not (KAFKAJS / "kafkajs").is_dir():
        pytest.skip(f"no kafkajs in {KAFKAJS}: `make node` installs it with npm")
    given = {
        "broker": address,
        "mechanism": mechanism.lower(),
        "username": "alice",
        "password": password,
        "topic": topic,
        "value": "value",
    }
    script = PROJECT / "tests" / "compatibility" / "sasl_client.js"
    run = subprocess.run(
        [require_command("node"), str(script), json.dumps(given)],
        env=os.environ | {"NODE_PATH": str(KAFKAJS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = json.loads(run.stdout)
    if "error" in told:
        assert "uthentication" in told["error"], told
        raise PermissionError
    return str(told["value"]).encode()


def by_ours(address: str, mechanism: str, password: str, topic: str) -> bytes:
    settings = {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "alice",
        "sasl_password": password,
    }
    try:
        with sparklog.Producer(**settings) as producer:
            producer.send(topic, b"value").result(PATIENCE_S)
        with sparklog.Consumer(**settings, auto_offset_reset="earliest") as consumer:
            consumer.assign([sparklog.TopicPartition(topic, 0)])
            (record,) = consumer.poll(PATIENCE_S * 1000)
    except AuthenticationFailed as error:
        raise PermissionError from error
    return record.value or b""


CLIENTS: dict[str, Callable[[str, str, str, str], bytes]] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python_in_a_child,
    "aiokafka": by_aiokafka,
    "kafkajs": by_kafkajs,
    "sparklog": by_ours,
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_writes_and_reads(broker: EmbeddedBroker, client: str, mechanism: str) -> None:
    topic = a_topic(broker, client)
    assert CLIENTS[client](broker.bootstrap_servers, mechanism, PASSWORD, topic) == b"value"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_password_is_an_error_of_authentication(
    broker: EmbeddedBroker, client: str, mechanism: str
) -> None:
    topic = a_topic(broker, client)
    with pytest.raises(PermissionError):
        CLIENTS[client](broker.bootstrap_servers, mechanism, "wrong", topic)


# -- Kafka's tools


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_console_tools_write_and_read(broker: EmbeddedBroker, mechanism: str, tmp_path: Path) -> None:
    topic, config = a_topic(broker, "console"), java(tmp_path, mechanism)
    server = ("--bootstrap-server", broker.bootstrap_servers, "--topic", topic)
    kafka_tool(CONSOLE_PRODUCER, *server, "--command-config", config, given="one\ntwo\n")
    reading = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "20000")
    reading += ("--command-property", "group.protocol=consumer")
    assert kafka_tool(CONSOLE_CONSUMER, *server, "--command-config", config, *reading) == "one\ntwo\n"


def test_kafka_configs_sets_a_password_that_counts_at_once(broker: EmbeddedBroker, tmp_path: Path) -> None:
    config = java(tmp_path, "PLAIN")
    common = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", config)
    user = ("--entity-type", "users", "--entity-name", "carol")
    change = ("--alter", "--add-config", "SCRAM-SHA-512=[password=c-secret]")
    assert "Completed updating config for user carol." in kafka_tool(CONFIGS, *common, *user, *change)
    told = kafka_tool(CONFIGS, *common, *user, "--describe")
    assert "SCRAM-SHA-512=iterations=4096" in told
    settings = rdkafka(broker.bootstrap_servers, "SCRAM-SHA-512", "c-secret") | {"sasl.username": "carol"}
    assert AdminClient(settings).list_topics(timeout=PATIENCE_S).brokers
    removal = ("--alter", "--delete-config", "SCRAM-SHA-512")
    kafka_tool(CONFIGS, *common, *user, *removal)
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(settings).list_topics(timeout=5)


def test_kafka_delegation_tokens_makes_a_token_that_authenticates(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    config = java(tmp_path, "SCRAM-SHA-256")
    common = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", config)
    made = kafka_tool(DELEGATION_TOKENS, *common, "--create", "--max-life-time-period", "-1", *RENEWER)
    token_id, mac = made.splitlines()[-1].split()[:2]
    described = kafka_tool(DELEGATION_TOKENS, *common, "--describe", "--owner-principal", "User:alice")
    assert token_id in described
    by_token = tmp_path / "token.properties"
    by_token.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={_SCRAM} required username="{token_id}" password="{mac}" tokenauth="true";\n'
    )
    topic = a_topic(broker, "token")
    server = ("--bootstrap-server", broker.bootstrap_servers, "--topic", topic)
    kafka_tool(CONSOLE_PRODUCER, *server, "--command-config", by_token, given="one\n")
    jaas = f'{_SCRAM} required username="{token_id}" password="{mac}" tokenauth="true";'
    with sparklog.Admin(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=jaas,
    ) as admin:
        assert topic in admin.list_topics()
    renewed = kafka_tool(DELEGATION_TOKENS, *common, "--renew", "--renew-time-period", "-1", "--hmac", mac)
    assert "Completed renew operation" in renewed
    kafka_tool(DELEGATION_TOKENS, *common, "--expire", "--expiry-time-period", "-1", "--hmac", mac)
    refused = all_that_is_said(
        DELEGATION_TOKENS, "--bootstrap-server", broker.bootstrap_servers, "--command-config", by_token,
        "--describe",
    )  # fmt: skip
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in refused


RENEWER = ("--renewer-principal", "User:bob")


# -- ours


def test_our_command_line_takes_the_properties_of_kafkas_tools(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = a_topic(broker, "cli")
    run = subprocess.run(
        [
            *(sys.executable, "-c", "from sparklog_server.cli.main import main; main()", "topics", "list"),
            *("--bootstrap-server", broker.bootstrap_servers),
            *("--command-config", str(java(tmp_path, "SCRAM-SHA-512"))),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert topic in run.stdout, run.stderr
