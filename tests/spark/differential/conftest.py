"""One Spark session, and brokers to ask: ours (or the one that SPARKLOG_TEST_BOOTSTRAP names), and in the
long run a real Kafka as well.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from sparklog import Admin
from sparklog.client.admin.topics import NewTopic
from tests.compatibility.kafka_broker import RealKafka
from tests.spark.differential.programs import Program, assert_alike, assert_refused, new_name
from tests.tools import require_spark_connector

FIRST_MS = 1_600_000_000_000
"""When the first record of every partition was made; each later one was made a second after the one
before.
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """One record to fill a topic with; its timestamp is its number in its partition after `FIRST_MS`
    unless told.
    """

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_ms: int | None = None


@pytest.fixture(scope="session", params=["sparklog", pytest.param("kafka", marks=pytest.mark.long)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker's address."""
    require_spark_connector()
    if request.param == "sparklog":
        yield (
            os.environ.get("SPARKLOG_TEST_BOOTSTRAP")
            or request.getfixturevalue("sparklog_broker").bootstrap_servers
        )
    else:
        broker = RealKafka(tmp_path_factory.mktemp("kafka"))
        with broker.running():
            yield broker.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    """One for each test: the whole suite takes longer than a broker keeps a connection that is not used."""
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


@pytest.fixture(scope="session", autouse=True)
def _registered(spark: SparkSession) -> None:
    import sparklog

    sparklog.register(spark)


@pytest.fixture(scope="session")
def fill(servers: str) -> Callable[[str, Sequence[Sent]], None]:
    """Sends records to their partitions and waits for every acknowledgement."""

    def send(topic: str, records: Sequence[Sent]) -> None:
        # A new one each time: one that knows the topic would not hear for minutes that it has more partitions
        # by now.
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        sent: dict[int, int] = {}
        failures: list[object] = []
        for record in records:
            number = sent[record.partition] = sent.get(record.partition, -1) + 1
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp=FIRST_MS + 1000 * number if record.timestamp_ms is None else record.timestamp_ms,
                on_delivery=lambda error, _: failures.append(error) if error is not None else None,
            )
        assert producer.flush(30) == 0
        assert not failures

    return send


@dataclass(frozen=True, slots=True)
class Bench:
    """The parts of a comparison: the session, the broker, topics and records."""

    spark: SparkSession
    servers: str
    admin: Admin
    directory: Path
    fill: Callable[[str, Sequence[Sent]], None]

    def topic(self, *records: Sent, partitions: int = 1, name: str | None = None, **settings: str) -> str:
        """A topic with these records that no other test uses; they are kept however old their timestamps say
        they are.
        """
        name = name or new_name()
        self.admin.create_topics([NewTopic(name, partitions, configs={"retention.ms": "-1", **settings})])
        self.fill(name, records)
        return name

    def alike(self, program: Program) -> object:
        """Both formats answer the same, which is returned."""
        return assert_alike(program, self.spark, self.servers, self.directory)

    def refused(self, program: Program, about: str) -> None:
        """Both formats refuse and name its subject."""
        assert_refused(program, about, self.spark, self.servers, self.directory)


@pytest.fixture
def bench(
    spark: SparkSession,
    servers: str,
    admin: Admin,
    fill: Callable[[str, Sequence[Sent]], None],
    tmp_path: Path,
) -> Bench:
    return Bench(spark, servers, admin, tmp_path, fill)


@pytest.fixture(scope="session")
def records(servers: str, fill: Callable[[str, Sequence[Sent]], None]) -> str:
    """A topic of three partitions, ten records in the first, five in the second and none in the third:
    keys, nulls, headers, times.
    """
    name = new_name("records")
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 3, configs={"retention.ms": "-1"})])
    first = [
        Sent(b"v%d" % n, b"k%d" % n, 0, [("h", b"x"), ("h", b""), ("n", None)] if n % 3 == 0 else [])
        for n in range(10)
    ]
    second = [
        Sent(None, b"key", 1),
        Sent(b"", b"", 1),
        Sent(b"no key", None, 1),
        Sent(None, None, 1),
        Sent(b"last", b"k", 1),
    ]
    fill(name, first + second)
    return name
