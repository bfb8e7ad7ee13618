"""Kafka's own tool moves partitions between nodes while a producer writes: execute, list, verify, cancel,
generate, and the replica verification at the end.
"""

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

import sparklog
from sparklog import Admin
from sparklog.local_broker import EmbeddedBroker
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.kafka_tools import all_that_is_said, kafka_tool
from tests.daemon.broker_process import wait_until

pytestmark = pytest.mark.compat

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded(nodes=4) as cluster:
        yield cluster


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """A node that hangs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Writer:
    """Writes to a topic with idempotence until the end; `acked` counts."""

    def __init__(self, servers: str, topic: str) -> None:
        self.acked, self.failed = 0, list[object]()
        self._servers, self._topic, self._is_over = servers, topic, threading.Event()

    @contextmanager
    def writing(self) -> Iterator["Writer"]:
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            thread.join()

    def _write(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "log_level": 0}
        )
        number = 0
        while not self._is_over.is_set():
            producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._delivered)
            number += 1
            producer.poll(0.002)
        assert producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: object, _: object) -> None:
        if error is None:
            self.acked += 1
        else:
            self.failed.append(error)


def create(cluster: EmbeddedBroker, topic: str, replicas: Sequence[int]) -> str:
    servers = cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([sparklog.NewTopic(topic, assignment=[replicas])])
    return servers


def planned(path: Path, topic: str, replicas: Sequence[int]) -> Path:
    path.write_text(
        json.dumps(
            {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": list(replicas)}]}
        )
    )
    return path


def replicas_of(admin: Admin, topic: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    (partition,) = admin.describe_topics([topic])[topic].partitions
    return tuple(partition.replicas), tuple(sorted(partition.isr))


def is_moved(admin: Admin, topic: str, replicas: Sequence[int]) -> bool:
    return replicas_of(admin, topic) == (tuple(replicas), tuple(sorted(replicas)))


def test_a_partition_moves_to_other_nodes_while_a_producer_writes(
    cluster: EmbeddedBroker, tmp_path: Path
) -> None:
    servers = create(cluster, "moving", [1, 2])
    tool = ("--bootstrap-server", servers)
    with Writer(servers, "moving").writing() as writer, Admin(bootstrap_servers=servers) as admin:
        wait_until(lambda: writer.acked > 100)
        for target in ([3, 4], [2, 3], [1, 2, 4]):
            file = ("--reassignment-json-file", planned(tmp_path / "plan.json", "moving", target))
            output = kafka_tool(REASSIGN, *tool, *file, "--execute")
            assert "Successfully started partition reassignment for moving-0" in output
            wait_until(lambda target=target: is_moved(admin, "moving", target))  # type: ignore[misc]
            assert "Reassignment of partition moving-0 is completed" in kafka_tool(
                REASSIGN, *tool, *file, "--verify"
            )
        assert "No partition reassignments found." in kafka_tool(REASSIGN, *tool, "--list")
        before = writer.acked
        wait_until(lambda: writer.acked > before + 100)
    assert writer.failed == []
    assert read(servers, "moving") == writer.acked


def read(servers: str, topic: str) -> int:
    """How many records partition 0 has, by a consumer from its start; each number once and in order."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        found.append(int(message.value()))
    consumer.close()
    assert found == list(range(len(found)))
    return len(found)


def test_a_move_to_a_node_that_is_down_waits_and_can_be_cancelled(
    cluster: EmbeddedBroker, tmp_path: Path
) -> None:
    servers = create(cluster, "waiting", [1, 2])
    alive = servers.split(",")[0]
    tool = ("--bootstrap-server", alive)
    file = ("--reassignment-json-file", planned(tmp_path / "plan.json", "waiting", [1, 4]))
    with Admin(bootstrap_servers=alive) as admin, paused(cluster.pids[3]):
        kafka_tool(REASSIGN, *tool, *file, "--execute")
        assert "waiting-0: replicas: 1,4,2. adding: 4. removing: 2." in kafka_tool(REASSIGN, *tool, "--list")
        assert "Reassignment of partition waiting-0 is still in progress." in kafka_tool(
            REASSIGN, *tool, *file, "--verify"
        )
        output = kafka_tool(REASSIGN, *tool, *file, "--cancel", "--preserve-throttles")
        assert "Successfully cancelled partition reassignment for: waiting-0" in output
        assert sorted(replicas_of(admin, "waiting")[0]) == [1, 2]
    assert "None of the specified partition moves are active." in kafka_tool(
        REASSIGN, *tool, *file, "--cancel", "--preserve-throttles"
    )


def test_kafka_plans_moves_and_finds_the_replicas_equal(cluster: EmbeddedBroker, tmp_path: Path) -> None:
    servers = create(cluster, "planned", [1, 2])
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "planned"}]}')
    output = kafka_tool(
        REASSIGN,
        *("--bootstrap-server", servers, "--topics-to-move-json-file", topics),
        *("--broker-list", "3,4", "--generate"),
    )
    proposal = json.loads(output.splitlines()[-1])
    assert sorted(proposal["partitions"][0]["replicas"]) == [3, 4]
    said = all_that_is_said(
        REASSIGN,
        *("--bootstrap-server", servers, "--execute", "--reassignment-json-file"),
        planned(tmp_path / "plan.json", "planned", [3, 9]),
    )
    assert "Unknown broker id 9" in said
