"""Consumers of Kafka's Java client and of librdkafka that name their rack read from the replica there."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic

from tests.compatibility.kafka_tools import kafka_tool
from tests.compatibility.mixed_cluster import Place, answering
from tests.daemon.broker_process import wait_until

pytestmark = pytest.mark.compat
PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
TOPIC, COUNT = "near", 2_000
LEADER, FOLLOWER = 2, 3
RACKS = {1: "a", LEADER: "a", FOLLOWER: "b"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """Three nodes in two racks, and a topic that the rack `b` only follows."""
    place = Place(tmp_path, *["broker,controller"] * 3, replicas=3)
    with ExitStack() as running:
        for node, rack in RACKS.items():
            own = place.own(node, {"broker.rack": rack, "replica.selector.class": SELECTOR})
            running.enter_context(own.process())
        servers = ",".join(map(place.servers, RACKS))
        admin = answering(servers, list(RACKS))
        topic = NewTopic(TOPIC, 1, replica_assignment=[[LEADER, FOLLOWER]])
        admin.create_topics([topic])[TOPIC].result(20)
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        for number in range(COUNT):
            producer.produce(TOPIC, b"%d" % number * 100)
        assert producer.flush(60) == 0
        yield servers


def test_a_java_consumer_reads_from_the_replica_in_its_rack(servers: str, tmp_path: Path) -> None:
    properties = tmp_path / "consumer.properties"
    properties.write_text("client.rack=b\n")
    told = kafka_tool(
        PERFORMANCE,
        *("--bootstrap-server", servers, "--topic", TOPIC, "--num-records", str(COUNT)),
        *("--command-config", properties, "--print-metrics", "--show-detailed-stats", "--hide-header"),
    )
    named = re.search(r"preferred-read-replica.*: *(-?[0-9.]+)", told)
    assert named is not None, told
    assert float(named[1]) == FOLLOWER


def test_librdkafka_reads_from_the_replica_in_its_rack(servers: str) -> None:
    statistics: list[str] = []
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "near",
            "auto.offset.reset": "earliest",
            "client.rack": "b",
            "statistics.interval.ms": 50,
            "stats_cb": statistics.append,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    read = 0

    def reads_near() -> bool:
        nonlocal read
        read += len(consumer.consume(COUNT, 0.2))
        partition = json.loads(statistics[-1])["topics"].get(TOPIC, {}) if statistics else {}
        source = partition.get("partitions", {}).get("0", {}).get("broker")
        return read == COUNT and source == FOLLOWER

    try:
        wait_until(reads_near)
    finally:
        consumer.close()
