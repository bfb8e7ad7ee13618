"""A cluster with a real Kafka in it: our broker under its controller, and its broker under ours."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from sparklog_server.cli.main import main
from tests.compatibility.kafka_broker import CLUSTER_ID, KafkaNode, free_ports
from tests.compatibility.kafka_tools import kafka_tool
from tests.daemon.broker_process import BrokerProcess, wait_until

pytestmark = [pytest.mark.compat, pytest.mark.long]

PARTITIONS, TRANSACTIONS = 3, 20
FEATURES = {"eligible.leader.replicas.version": 0, "share.version": 0, "streams.version": 0}
"""Levels that our broker supports, in place of those that a new cluster of Kafka has."""
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": 4096}
"""So often that a controller starts from one."""


class Place(NamedTuple):
    """The ports of a cluster of a controller, node 1, and a broker, node 2."""

    broker: int
    controller: int

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.broker}"

    def of_controller(self, directory: Path) -> dict[str, object]:
        return {
            "process.roles": "controller",
            "node.id": 1,
            "listeners": f"CONTROLLER://127.0.0.1:{self.controller}",
            "log.dirs": directory,
            **self._shared(),
            **SNAPSHOTS,
        }

    def of_broker(self, directory: Path) -> dict[str, object]:
        return {
            "process.roles": "broker",
            "node.id": 2,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.broker}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": directory,
            **self._shared(),
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
        }

    def _shared(self) -> dict[str, object]:
        return {
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller}",
            "controller.listener.names": "CONTROLLER",
        }


@pytest.fixture
def place() -> Place:
    return Place(*free_ports(2))


class OwnNode:
    """One of our nodes, formatted."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        self._given = [word for key, value in properties.items() for word in ("--set", f"{key}={value}")]
        assert main(["format", "--cluster-id", CLUSTER_ID, *self._given]) == 0

    @contextmanager
    def running(self) -> Iterator[BrokerProcess]:
        with BrokerProcess(*self._given) as process:
            process.address()
            yield process
            if process.child.poll() is None:
                process.child.send_signal(signal.SIGTERM)
                assert process.child.wait(20) == 0


def answering(servers: str) -> AdminClient:
    """An administrator, once the broker answers."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def answers() -> bool:
        try:
            return list(admin.list_topics(timeout=1).brokers) == [2]
        except KafkaException:
            return False

    wait_until(answers)
    return admin


def use(servers: str, name: str) -> None:
    """Create a topic, write by transactions, read them in a group, and set the retention of the topic."""
    admin = answering(servers)
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        created.result(20)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(name, str(number), partition=partition)
        if number % 2:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([name])
    found: list[tuple[int, int]] = []

    def is_read() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.partition(), int(message.value())))
        return len(found) == PARTITIONS * TRANSACTIONS // 2

    wait_until(is_read)
    assert sorted(found) == [(part, n) for part in range(PARTITIONS) for n in range(1, TRANSACTIONS, 2)]
    consumer.commit(asynchronous=False)
    consumer.close()
    entry = ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(20)

    def is_set() -> bool:  # in the image of the broker, which follows that of the controller
        return admin.describe_configs([resource])[resource].result(20)["retention.ms"].value == "86400000"

    wait_until(is_set)


def create_many(servers: str) -> None:
    """One topic after the other, so that there are snapshots."""
    admin = answering(servers)
    for number in range(100):
        for created in admin.create_topics([NewTopic(f"many-{number}", 1, 1)]).values():
            created.result(20)


def described(place: Place) -> str:
    """The quorum as Kafka's tool tells it, by the controller."""
    return kafka_tool(
        "org.apache.kafka.tools.MetadataQuorumCommand",
        *("--bootstrap-controller", f"127.0.0.1:{place.controller}", "describe", "--replication"),
    )


def test_our_broker_serves_under_a_controller_of_kafka(tmp_path: Path, place: Place) -> None:
    controller = KafkaNode(tmp_path, place.of_controller(tmp_path / "kafka"), features=FEATURES)
    broker = OwnNode(place.of_broker(tmp_path / "own"))
    with controller.process(), broker.running() as first:
        use(place.servers, "first")
        assert [row.split()[0] for row in described(place).splitlines()[1:]] == ["1", "2"]
        create_many(place.servers)
        first.child.kill()
        first.child.wait(10)
    with controller.process(), broker.running():
        assert {"first", "many-99"} <= set(answering(place.servers).list_topics(timeout=5).topics)
        use(place.servers, "second")


def test_a_broker_of_kafka_serves_under_our_controller(tmp_path: Path, place: Place) -> None:
    controller = OwnNode(place.of_controller(tmp_path / "own"))
    broker = KafkaNode(tmp_path, place.of_broker(tmp_path / "kafka"))
    with controller.running():
        with broker.process(is_killed=True):
            use(place.servers, "first")
            assert [row.split()[0] for row in described(place).splitlines()[1:]] == ["1", "2"]
        with broker.process():
            use(place.servers, "second")
            create_many(place.servers)
    with controller.running(), broker.process():
        assert {"first", "second", "many-99"} <= set(answering(place.servers).list_topics(timeout=5).topics)
        use(place.servers, "third")
