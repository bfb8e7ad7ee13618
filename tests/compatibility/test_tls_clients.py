"""Unmodified clients over TLS with a certificate of their own, and Java's text of a certificate's subject."""

import asyncio
import os
import random
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from cryptography import x509

from sparklog_server.security.principals import subject_of
from tests.certificates import issued, server_settings
from tests.compatibility.kafka_tools import (
    BROKER_API_VERSIONS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    TOPICS,
    kafka_tool,
)
from tests.compatibility.test_groups_tools import NEW_PROTOCOL
from tests.daemon.broker_process import BrokerProcess, stored_by
from tests.security.test_principals import certificate_of
from tests.tools import require_kafka_tools

pytestmark = pytest.mark.compat

VALUES = [b"%d" % number * 50 for number in range(500)]


@dataclass(frozen=True)
class Secure:
    """A broker that requires client certificates, and the files of a client."""

    servers: str
    directory: Path

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    @property
    def certificate(self) -> str:
        return str(self.directory / "client-chain.pem")

    @property
    def key(self) -> str:
        return str(self.directory / "client-key.pem")

    @property
    def properties(self) -> Path:
        return self.directory / "client.properties"

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def values(self, topic: str) -> list[bytes | None]:
        return stored_by(
            self.servers,
            topic,
            1,
            security_protocol="SSL",
            ssl_truststore_location=self.ca,
            ssl_keystore_location=str(self.directory / "client.pem"),
        )


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("tls")
    client = issued("CN=client")
    client.write_pem(directory / "client.pem")
    (directory / "client-chain.pem").write_text(client.chain_pem)
    (directory / "client-key.pem").write_text(client.key_pem())
    client.write_pkcs12(directory / "client.p12", "secret")
    (directory / "client.properties").write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={directory}/ca.pem\n"
        f"ssl.keystore.type=PKCS12\nssl.keystore.location={directory}/client.p12\n"
        f"ssl.keystore.password=secret\nssl.key.password=secret\n"
    )
    settings = server_settings(directory, issued("CN=broker"), ssl_client_auth="required")
    arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with BrokerProcess("--data-dir", str(directory / "data"), *arguments) as broker:
        yield Secure(broker.bootstrap_servers(), directory)


def test_librdkafka(secure: Secure) -> None:
    common = {
        "bootstrap.servers": secure.servers,
        "security.protocol": "ssl",
        "ssl.ca.location": secure.ca,
        "ssl.certificate.location": secure.certificate,
        "ssl.key.location": secure.key,
    }
    producer = confluent_kafka.Producer(common)
    for value in VALUES:
        producer.produce("librdkafka", value, partition=0)
    assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["librdkafka"])
    received: list[object] = []
    while len(received) < len(VALUES):
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        received.append(message.value())
    consumer.close()
    assert received == VALUES == secure.values("librdkafka")


def test_aiokafka(secure: Secure) -> None:
    async def run() -> list[bytes]:
        common = {
            "bootstrap_servers": secure.servers,
            "security_protocol": "SSL",
            "ssl_context": secure.context(),
        }
        producer = aiokafka.AIOKafkaProducer(**common)
        await producer.start()
        for value in VALUES:
            await producer.send("aiokafka", value)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **common)
        await consumer.start()
        received = [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in VALUES]
        await consumer.stop()
        return received

    assert asyncio.run(run()) == VALUES == secure.values("aiokafka")


def test_kafka_python(secure: Secure) -> None:
    common = {
        "bootstrap_servers": secure.servers,
        "security_protocol": "SSL",
        "ssl_cafile": secure.ca,
        "ssl_certfile": secure.certificate,
        "ssl_keyfile": secure.key,
    }
    producer = kafka.KafkaProducer(**common)
    for value in VALUES:
        producer.send("kafka-python", value)
    producer.flush(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **common
    )
    received = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert received == VALUES == secure.values("kafka-python")


def test_kafkas_console_tools(secure: Secure) -> None:
    lines = [value.decode() for value in VALUES]
    where = ("--bootstrap-server", secure.servers, "--command-config", secure.properties)
    kafka_tool(TOPICS, *where, "--create", "--topic", "java")
    kafka_tool(CONSOLE_PRODUCER, *where, "--topic", "java", given="\n".join(lines) + "\n")
    wanted = ("--topic", "java", "--from-beginning", "--max-messages", str(len(lines)))
    read = kafka_tool(CONSOLE_CONSUMER, *where, *wanted, complaints=[NEW_PROTOCOL])
    assert read.splitlines() == lines
    assert "Produce(0)" in kafka_tool(BROKER_API_VERSIONS, *where)


def test_our_command_line_reads_the_same_properties_file(secure: Secure) -> None:
    command = [sys.executable, "-m", "sparklog_server.cli.main"]
    where = ["-b", secure.servers, "--command-config", str(secure.properties)]
    run = subprocess.run(
        [*command, "topics", "list", *where],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_a_subject_is_written_as_java_writes_it(tmp_path: Path) -> None:
    require_kafka_tools()
    names = [random_name(random.Random(seed)) for seed in range(200)]
    paths = []
    for index, name in enumerate(names):
        paths.append(tmp_path / f"{index}.der")
        paths[-1].write_bytes(certificate_of(name))
    program = Path(__file__).with_name("SubjectNames.java")
    run = subprocess.run(
        ["java", "-Dstdout.encoding=UTF-8", str(program), *map(str, paths)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert [subject_of(path.read_bytes()) for path in paths] == run.stdout.decode().split("\n")[:-1]


OIDS = ("2.5.4.3", "2.5.4.11", "2.5.4.10", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.5", "2.5.4.42", "1.2.3.4")
LETTERS = 'abc XYZ019,=+<>#;"\\/ü日\r'


def random_name(chance: random.Random) -> x509.Name:
    def one() -> x509.NameAttribute[str]:
        text = "".join(chance.choices(LETTERS, k=chance.randint(1, 8)))
        kind = chance.choice((x509.name._ASN1Type.UTF8String, x509.name._ASN1Type.IA5String))
        if kind is x509.name._ASN1Type.IA5String and not text.isascii():
            kind = x509.name._ASN1Type.UTF8String
        return x509.NameAttribute(x509.ObjectIdentifier(chance.choice(OIDS)), text, kind)

    parts = []
    for _ in range(chance.randint(1, 4)):
        attributes = [one() for _ in range(chance.randint(1, 2))]
        if len({attribute.oid for attribute in attributes}) == len(attributes):
            parts.append(x509.RelativeDistinguishedName(attributes))
    return x509.Name(parts or [x509.RelativeDistinguishedName([one()])])
