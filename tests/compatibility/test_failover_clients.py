"""Our producer and consumer while the leader of their partition is moved, stopped or killed, against three
nodes of a real Kafka.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.topics import NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.errors import SparklogError
from sparklog.model import TopicPartition
from tests.compatibility.kafka_broker import KafkaNode, free_ports
from tests.compatibility.mixed_cluster import answering
from tests.daemon.broker_process import wait_until

AT = TopicPartition("moved", 0)
NODES = (1, 2, 3)
MOVED_GAP_MS_MAX = 500
KILLED_GAP_MS_MAX = 15_000
"""Kafka fences a killed broker after `broker.session.timeout.ms`, 9 s. If the node is also the active
controller, the election of another one comes first.
"""
LOAD_S_MAX = 40


class ThreeNodes:
    """A cluster of three combined nodes of Kafka, each with the process that runs it."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        ports = free_ports(2 * len(NODES))
        brokers, controllers = ports[: len(NODES)], ports[len(NODES) :]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip(NODES, controllers, strict=True))
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in brokers)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for node, broker, controller in zip(NODES, brokers, controllers, strict=True):
            directory = root / str(node)
            directory.mkdir()
            properties: dict[str, object] = {
                "process.roles": "broker,controller",
                "node.id": node,
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": directory / "data",
                "offsets.topic.replication.factor": 3,
                "offsets.topic.num.partitions": 1,
                "transaction.state.log.replication.factor": 3,
                "transaction.state.log.min.isr": 2,
                "transaction.state.log.num.partitions": 1,
                "group.initial.rebalance.delay.ms": 0,
                "auto.leader.rebalance.enable": "false",
            }
            one = KafkaNode(directory, properties)
            self.processes[node] = stack.enter_context(one.process(is_killed=True))
        answering(self.bootstrap_servers, NODES)

    def leader(self) -> int:
        """The leader of the partition."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return admin.describe_topics([AT.topic])[AT.topic].partitions[AT.partition].leader


@contextmanager
def three_nodes(root: Path) -> Iterator[ThreeNodes]:
    """Start them; kill them at the end: a node that stops cleanly waits for a quorum."""
    with ExitStack() as stack:
        cluster = ThreeNodes(root, stack)
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics(
                [NewTopic(AT.topic, assignment=[[1, 2, 3]], configs={"min.insync.replicas": "2"})]
            )
        yield cluster


def move(cluster: ThreeNodes) -> None:
    """Make another replica the preferred one, and elect it."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_reassignments({AT: [2, 3, 1]})
        wait_until(lambda: not admin.list_reassignments())
        admin.elect_leaders([AT])


def stop(cluster: ThreeNodes) -> None:
    """Stop the leader cleanly: it hands over its partitions."""
    cluster.processes[cluster.leader()].send_signal(signal.SIGTERM)


def kill(cluster: ThreeNodes) -> None:
    """Kill the leader: it is fenced when its session ends."""
    cluster.processes[cluster.leader()].kill()


@pytest.mark.long
@pytest.mark.parametrize(
    ("strike", "gap_ms_max"), [(move, MOVED_GAP_MS_MAX), (stop, MOVED_GAP_MS_MAX), (kill, KILLED_GAP_MS_MAX)]
)
def test_records_are_written_and_read_once_and_in_order_while_the_leader_changes(
    tmp_path: Path, strike: Callable[[ThreeNodes], None], gap_ms_max: int
) -> None:
    took_ms: list[float] = []
    errors: list[SparklogError] = []

    def delivered(sent_s: float, _: object, error: SparklogError | None) -> None:
        took_ms.append((time.monotonic() - sent_s) * 1000)
        if error is not None:
            errors.append(error)

    with (
        three_nodes(tmp_path) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
        Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([AT])
        first, sent, read = cluster.leader(), 0, []

        def carry(until: Callable[[], bool]) -> None:
            nonlocal sent
            deadline = time.monotonic() + LOAD_S_MAX
            while not until():
                assert time.monotonic() < deadline
                producer.send(
                    AT.topic,
                    str(sent),
                    partition=AT.partition,
                    on_delivery=partial(delivered, time.monotonic()),
                )
                sent += 1
                read.extend(int(record.value or b"-1") for record in consumer.poll(5))

        carry(lambda: len(read) >= 200)
        known = len(took_ms)
        strike(cluster)
        carry(lambda: len(took_ms) > known + 200 and cluster.leader() != first)
        producer.flush()
        while len(read) < sent and (records := consumer.poll(10_000)):
            read += [int(record.value or b"-1") for record in records]
    assert errors == []
    assert read == list(range(sent))
    gap_ms = max(took_ms[known:])
    print(f"{strike.__name__}: gap_ms={gap_ms:.0f} records={sent}")
    assert gap_ms <= gap_ms_max
