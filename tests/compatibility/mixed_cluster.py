"""What the tests share that mix a real Kafka and our nodes in one cluster."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from sparklog_server.cli.main import main
from tests.compatibility.kafka_broker import CLUSTER_ID, KafkaNode, free_ports
from tests.compatibility.kafka_tools import kafka_tool
from tests.daemon.broker_process import wait_until

PARTITIONS, TRANSACTIONS = 3, 20
FEATURES = {"share.version": 0, "streams.version": 0}
"""Levels that our broker supports, in place of those that a new cluster of Kafka has."""
PROGRAM = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"


class OwnNode:
    """One of our nodes, formatted, with its log in `root`. Its directory outlives each process, as that of a
    `KafkaNode` does.
    """

    def __init__(self, root: Path, properties: Mapping[str, object], *, quorum: Sequence[str] = ()) -> None:
        """`quorum` are the options of the format that name the first voters."""
        self._log = root / "sparklog.log"
        self._given = [word for key, value in properties.items() for word in ("--set", f"{key}={value}")]
        assert main(["format", "--cluster-id", CLUSTER_ID, *quorum, *self._given]) == 0

    @contextmanager
    def process(self, *, is_killed: bool = False) -> Iterator["subprocess.Popen[bytes]"]:
        """Start it; at the end stop it cleanly, or kill it."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-c", PROGRAM, "start", *self._given]
        with self._log.open("ab") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            yield process
            if process.poll() is None and not is_killed:
                process.terminate()
                assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()


class Place:
    """The roles, ports and directories of the nodes 1, 2, … of a cluster."""

    def __init__(
        self, root: Path, *roles: str, directories: Sequence[str] = ("data",), replicas: int = 1
    ) -> None:
        """The internal topics have that many `replicas`."""
        self.ids = range(1, len(roles) + 1)
        self.brokers = [node for node in self.ids if "broker" in roles[node - 1]]
        self._root = root
        self._directories = directories
        self._replicas = replicas
        self._roles = dict(zip(self.ids, roles, strict=True))
        ports = free_ports(2 * len(roles))
        self._addresses = {node: f"127.0.0.1:{ports.pop()}" for node in self.ids}
        self.controllers = {
            node: f"127.0.0.1:{ports.pop()}" for node in self.ids if "controller" in self._roles[node]
        }

    def servers(self, node: int) -> str:
        """The address of a broker."""
        return self._addresses[node]

    def directory(self, node: int, name: str = "data") -> Path:
        """A log directory of a node; the first one has its metadata log."""
        return self._root / f"node-{node}" / name

    def kafka(self, node: int) -> KafkaNode:
        """A new node of Kafka; its directory, if it had one, is lost."""
        return KafkaNode(*self._new(node), features=FEATURES)

    def own(self, node: int, more: Mapping[str, object] = {}) -> OwnNode:
        """A new node of ours, with `more` properties; its directory, if it had one, is lost."""
        root, properties = self._new(node)
        return OwnNode(root, {**properties, **more})

    def _new(self, node: int) -> tuple[Path, dict[str, object]]:
        root, roles = self._root / f"node-{node}", self._roles[node]
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        listeners = [f"PLAINTEXT://{self._addresses[node]}"] if "broker" in roles else []
        if node in self.controllers:
            listeners.append(f"CONTROLLER://{self.controllers[node]}")
        return root, {
            "process.roles": roles,
            "node.id": node,
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": ",".join(f"{one}@{at}" for one, at in self.controllers.items()),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(str(self.directory(node, name)) for name in self._directories),
            "metadata.log.max.record.bytes.between.snapshots": 4096,  # a node that starts loads one
            "offsets.topic.replication.factor": self._replicas,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": self._replicas,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
        }


def answering(servers: str, ids: Sequence[int]) -> AdminClient:
    """An administrator, once the broker answers and names these brokers."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def answers() -> bool:
        try:
            return sorted(admin.list_topics(timeout=1).brokers) == sorted(ids)
        except KafkaException:
            return False

    wait_until(answers)
    return admin


def create(admin: AdminClient, name: str, partitions: int = 1) -> None:
    """Create a topic, and wait until the controller has done so."""
    for created in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        created.result(20)


def use(servers: str, name: str, ids: Sequence[int]) -> None:
    """Once the broker names these: create a topic, write by transactions, read them in a group, and set the
    retention of the topic.
    """
    admin = answering(servers, ids)
    create(admin, name, PARTITIONS)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(name, str(number), partition=partition)
        producer.flush(20)  # an abort would drop the records that are not yet sent
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


def create_many(servers: str, ids: Sequence[int]) -> None:
    """One topic after the other, so that there are snapshots."""
    admin = answering(servers, ids)
    for number in range(100):
        create(admin, f"many-{number}")


def described(place: Place) -> list[str]:
    """The node ids of the quorum, controllers and observers, as Kafka's tool tells them by a controller."""
    told = kafka_tool(
        "org.apache.kafka.tools.MetadataQuorumCommand",
        *("--bootstrap-controller", ",".join(place.controllers.values()), "describe", "--replication"),
    )
    return sorted(row.split()[0] for row in told.splitlines()[1:])
