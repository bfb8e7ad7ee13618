"""Partitions with replicas on a real Kafka and on two of our brokers: each leads in turn, and the logs are
equal to the byte.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.kafka_tools import kafka_tool
from tests.compatibility.mixed_cluster import Place, answering
from tests.daemon.broker_process import wait_until

pytestmark = [pytest.mark.compat, pytest.mark.long]
TOPIC, COUNT = "replicated", 400


@pytest.mark.parametrize("controller", ["kafka", "own"])
def test_replicas_of_kafka_and_ours_hold_the_same_bytes(tmp_path: Path, controller: str) -> None:
    place = Place(tmp_path, "controller", "broker", "broker", "broker", replicas=3)
    nodes = [place.kafka(1) if controller == "kafka" else place.own(1)]
    nodes += [place.kafka(2), place.own(3), place.own(4)]
    servers = ",".join(place.servers(node) for node in place.brokers)
    written = 0
    with ExitStack() as running:
        for node in nodes:
            running.enter_context(node.process())
        for node in place.brokers:
            admin = answering(place.servers(node), place.brokers)
        # Each broker is the preferred leader of one partition.
        orders = [[2, 3, 4], [3, 4, 2], [4, 2, 3]]
        for created in admin.create_topics(
            [NewTopic(TOPIC, 3, replica_assignment=orders, config={"min.insync.replicas": "2"})]
        ).values():
            created.result(20)
        wait_until(partial(in_sync, admin))
        for leader in place.brokers:
            written += write(servers)
            reassign_leader(admin, place, leader, tmp_path)
        written += write(servers)
        wait_until(partial(in_sync, admin))
        assert read(servers, written) == written
    contents = [logs(place.directory(node)) for node in place.brokers]
    assert contents[0]
    assert contents[0] == contents[1] == contents[2]


def in_sync(admin: AdminClient) -> bool:
    """Whether every replica is in sync."""
    parts = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
    return len(parts) == 3 and all(len(part.isrs) == 3 for part in parts)


def write(servers: str) -> int:
    """Write with idempotence and acks=all to each partition; returns how many records."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    failed: list[object] = []
    for number in range(COUNT):
        producer.produce(
            TOPIC,
            b"%d" % number * 20,
            partition=number % 3,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert not failed
    return COUNT


def reassign_leader(admin: AdminClient, place: Place, leader: int, root: Path) -> None:
    """Make a broker the leader of all partitions: first replica, then preferred election."""
    others = [node for node in place.brokers if node != leader]
    plan = root / f"plan-{leader}.json"
    parts = ",".join(
        f'{{"topic":"{TOPIC}","partition":{index},"replicas":[{leader},{others[0]},{others[1]}]}}'
        for index in range(3)
    )
    plan.write_text(f'{{"version":1,"partitions":[{parts}]}}')
    kafka_tool(
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--bootstrap-server", place.servers(leader), "--reassignment-json-file", plan, "--execute"),
    )
    parts_of_topic = [TopicPartition(TOPIC, index) for index in range(3)]
    wait_until(partial(elected, admin, parts_of_topic))
    wait_until(
        lambda: all(
            part.leader == leader
            for part in admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
        )
    )


def elected(admin: AdminClient, parts: list[TopicPartition]) -> bool:
    """Whether the preferred leaders could be elected."""
    outcome = admin.elect_leaders(ElectionType.PREFERRED, parts).result(20)
    return all(error is None or error.name() == "ELECTION_NOT_NEEDED" for error in outcome.values())


def read(servers: str, count: int) -> int:
    """Read all partitions from their starts; returns how many records there are."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "log_level": 0, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(3)])
    found = ends = 0
    while ends < 3:
        message = consumer.poll(20)
        assert message is not None, f"{found} of {count}"
        if message.error():
            ends += 1
        else:
            found += 1
    consumer.close()
    return found


def logs(directory: Path) -> dict[str, bytes]:
    """The content of the log segments by partition."""
    found: dict[str, bytes] = {}
    for path in sorted(directory.glob(f"{TOPIC}-*/*.log")):
        found[path.parent.name] = found.get(path.parent.name, b"") + path.read_bytes()
    return found
