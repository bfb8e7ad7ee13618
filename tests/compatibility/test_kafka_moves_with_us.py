"""Partitions move from a real Kafka to a broker of ours and back, under either controller, while a producer
writes: nothing is lost, and both end with the same bytes.
"""

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.kafka_tools import kafka_tool
from tests.compatibility.mixed_cluster import Place, answering
from tests.daemon.broker_process import wait_until

pytestmark = [pytest.mark.compat, pytest.mark.long]
TOPIC, COUNT = "moved", 300
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
KAFKA, OWN, OTHER = 2, 3, 4


@pytest.mark.parametrize("controller", ["kafka", "own"])
def test_partitions_move_from_kafka_to_us_and_back(tmp_path: Path, controller: str) -> None:
    place = Place(tmp_path, "controller", "broker", "broker", "broker", replicas=2)
    nodes = [place.kafka(1) if controller == "kafka" else place.own(1)]
    nodes += [place.kafka(KAFKA), place.own(OWN), place.own(OTHER)]
    servers = ",".join(place.servers(node) for node in place.brokers)
    written = 0
    with ExitStack() as running:
        for node in nodes:
            running.enter_context(node.process())
        for broker in place.brokers:
            admin = answering(place.servers(broker), place.brokers)
        for created in admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[KAFKA]])]).values():
            created.result(20)
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        for target in ([OWN], [KAFKA, OWN], [OTHER], [KAFKA], [OTHER, KAFKA]):
            written += write(producer)
            move(servers, tmp_path, target)
            written += write(producer)
            wait_until(partial(is_at, admin, target))
        assert producer.flush(60) == 0
        wait_until(partial(is_at, admin, [OTHER, KAFKA]))
        assert read(servers) == written
    contents = [logs(place.directory(node)) for node in (KAFKA, OTHER)]
    assert contents[0]
    assert contents[0] == contents[1]
    assert not logs(place.directory(OWN))


def move(servers: str, root: Path, target: list[int]) -> None:
    plan = root / "plan.json"
    parts = [{"topic": TOPIC, "partition": 0, "replicas": target}]
    plan.write_text(json.dumps({"version": 1, "partitions": parts}))
    kafka_tool(REASSIGN, "--bootstrap-server", servers, "--reassignment-json-file", plan, "--execute")


def is_at(admin: AdminClient, target: list[int]) -> bool:
    part = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0]
    return part.replicas == target and sorted(part.isrs) == sorted(target)


def write(producer: Producer) -> int:
    """Write without waiting; returns how many records."""
    failed: list[object] = []
    for number in range(COUNT):
        producer.produce(
            TOPIC,
            b"%d" % number * 20,
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert not failed
    return COUNT


def read(servers: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "log_level": 0, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = 0
    while (message := consumer.poll(20)) is not None and not message.error():
        found += 1
    consumer.close()
    return found


def logs(directory: Path) -> bytes:
    """The content of the log segments."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob(f"{TOPIC}-0/*.log")))
