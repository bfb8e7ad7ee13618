"""Nodes of an earlier release and of this one in one cluster: upgraded node by node under load, taken back,
and upgraded again. What a node of this release writes meanwhile, one of the earlier release reads, on the
disk and as active controller.
"""

import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sparklog import Admin, NewTopic, TopicPartition
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.errors import SparklogError
from sparklog.model import NodeId
from sparklog_server.log.directory.identity import encode_uuid, new_uuid
from sparklog_server.metadata.features import SUPPORTED
from sparklog_server.operations.rolling import facts_of, faults_of
from tests.compatibility.kafka_broker import free_ports
from tests.daemon.broker_process import stored_by, wait_until

BEFORE = "191cccf701b115a5667bcc49d5d145465732da42"
"""The last commit whose controllers start no reassignment and whose voters do not change."""
PROJECT = Path(__file__).parents[2]
PROGRAM = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"
NODES, PARTITIONS = (1, 2, 3), 6
THROTTLE = "sparklog.reassignment.throttled.rate"
PATIENCE_S = 60


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the earlier release, from the history; their kernels are pure Python."""
    archived = subprocess.run(
        ["git", "archive", BEFORE, "sparklog", "sparklog_server"],
        cwd=PROJECT,
        capture_output=True,
        check=False,
    )
    if archived.returncode:
        pytest.skip(f"the history has no commit {BEFORE[:8]}")
    root = tmp_path_factory.mktemp("release-before")
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as packed:
        packed.extractall(root, filter="data")
    return root


class Nodes:
    """Three combined nodes; each process runs the release of a tree, in the directory of its node."""

    def __init__(self, root: Path, tree: Path) -> None:
        self.root = root
        ports = free_ports(2 * len(NODES))
        self._ports = dict(zip(NODES, ports, strict=False))
        self._controllers = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        cluster_id = encode_uuid(new_uuid(os.urandom))
        voters = ",".join(
            f"{node}@127.0.0.1:{port}:{encode_uuid(new_uuid(os.urandom))}"
            for node, port in self._controllers.items()
        )
        for node in NODES:
            ways = ["--cluster-id", cluster_id, "--initial-controllers", voters]
            process = self._run(node, tree, "format", *ways)
            assert process.wait(PATIENCE_S) == 0, self.log(node)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def log(self, node: int) -> str:
        return (self.root / f"{node}.log").read_text()

    def _run(self, node: int, tree: Path, *words: str) -> "subprocess.Popen[bytes]":
        given = {
            "process.roles": "broker,controller",
            "node.id": node,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node]},"
            f"CONTROLLER://127.0.0.1:{self._controllers[node]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(
                f"127.0.0.1:{port}" for port in self._controllers.values()
            ),
            "log.dirs": self.root / f"node-{node}",
            "min.insync.replicas": 2,
            "metadata.log.max.record.bytes.between.snapshots": 4096,  # a node that starts loads one
        }
        options = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        environment = os.environ | {"PYTHONPATH": str(tree)}
        if tree != PROJECT:
            environment["SPARKLOG_KERNELS"] = "reference"
        with (self.root / f"{node}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *words, *options],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=tree,
            )

    def start(self, node: int, tree: Path) -> None:
        self._processes[node] = self._run(node, tree, "start")

    def replace(self, node: int, tree: Path) -> None:
        """Stop a node cleanly, start it with the release of a tree, and wait until the cluster is whole."""
        self._processes[node].terminate()
        assert self._processes[node].wait(PATIENCE_S) == 0, self.log(node)
        self.start(node, tree)
        self.await_whole()

    def await_whole(self) -> None:
        """Wait until every node is in service and every replica in sync."""

        def is_whole() -> bool:
            running = [node for node in NODES if self._processes[node].poll() is not None]
            assert not running, self.log(running[0])
            return not faults_of(facts_of(admin)).reasons() and len(facts_of(admin).cluster.nodes) == 3

        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            until(is_whole)

    def leader(self) -> int:
        """The active controller."""
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            return admin.describe_quorum().leader

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def until(is_so: Callable[[], bool]) -> None:
    """Wait for a claim; a node that is away, or stops while it answers, is asked again."""

    def holds() -> bool:
        with suppress(SparklogError):
            return is_so()
        return False

    wait_until(holds, PATIENCE_S)


@contextmanager
def running(root: Path, tree: Path) -> Iterator[Nodes]:
    """A cluster of the release of a tree."""
    nodes = Nodes(root, tree)
    try:
        for node in NODES:
            nodes.start(node, tree)
        nodes.await_whole()
        yield nodes
    finally:
        nodes.end()


@contextmanager
def writing(servers: str) -> Iterator[list[int]]:
    """Write a number every few milliseconds; those that are acknowledged. A failure is an error."""
    acknowledged: list[int] = []
    failed: list[object] = []
    is_over = threading.Event()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})

    def write() -> None:
        number = 0
        while not is_over.is_set():

            def done(error: object, _: object, number: int = number) -> None:
                failed.append(error) if error else acknowledged.append(number)

            producer.produce("t", b"%d" % number, partition=number % PARTITIONS, on_delivery=done)
            number += 1
            producer.poll(0.005)
        producer.flush(30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()
    assert failed == []


def write_what_is_new(nodes: Nodes) -> None:
    """Have the active controller of this release write what the earlier one never wrote: the state of a
    broker, a reassignment in progress and its throttle, and changes of the voters.
    """
    with Admin(bootstrap_servers=nodes.bootstrap_servers) as admin:
        # A broker of the earlier release refuses it, since it is about another broker.
        until(lambda: _done(admin.set_broker_state, 2, "cordoned"))
        stopped = ConfigChange("leader.replication.throttled.rate", "0")
        admin.alter_configs({ConfigResource("broker", ""): [stopped]})
        admin.alter_configs(
            {ConfigResource("topic", "moved"): [ConfigChange("leader.replication.throttled.replicas", "*")]}
        )
        admin.alter_partition_reassignments({TopicPartition("moved", 0): [1, 3]})
        admin.alter_configs({ConfigResource("broker", ""): [ConfigChange(THROTTLE, "1000000")]})
        quorum = admin.describe_quorum()
        other = next(one for one in quorum.voters if one.node_id not in (quorum.leader, 3))
        endpoints = [
            (one.listener, one.host, one.port) for one in quorum.endpoints if one.node_id == other.node_id
        ]
        until(lambda: _done(admin.remove_raft_voter, other.node_id, other.directory_id))
        until(lambda: len(admin.describe_quorum().voters) == 2)
        until(lambda: _done(admin.add_raft_voter, other.node_id, other.directory_id, endpoints))
        until(lambda: len(admin.describe_quorum().voters) == 3)
    nodes.await_whole()


def _done(change: Callable[..., None], *arguments: object) -> bool:
    change(*arguments)
    return True


@pytest.mark.compat
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_cluster_is_upgraded_under_load_taken_back_and_upgraded_again(tmp_path: Path, before: Path) -> None:
    with running(tmp_path, before) as nodes, Admin(bootstrap_servers=nodes.bootstrap_servers) as admin:
        replicas = [[(first + step) % 3 + 1 for step in range(3)] for first in range(PARTITIONS)]
        admin.create_topics([NewTopic("t", assignment=replicas), NewTopic("moved", assignment=[[1, 2]])])
        features = admin.describe_features()
        producer = Producer({"bootstrap.servers": nodes.bootstrap_servers, "log_level": 0})
        producer.produce("moved", b"x" * 100_000, partition=0)  # a new replica of an empty log is in sync
        assert producer.flush(30) == 0
        with writing(nodes.bootstrap_servers) as acknowledged:
            until(lambda: len(acknowledged) > 100)
            for node in (1, 2):
                nodes.replace(node, PROJECT)
            while nodes.leader() == 3:
                nodes.replace(3, before)
            write_what_is_new(nodes)
            assert [*admin.list_reassignments()] == [TopicPartition("moved", 0)]

            while (controller := nodes.leader()) != 3:  # which replays all that, and keeps the move
                nodes.replace(controller, PROJECT)
            admin.create_topics([NewTopic("between", 3, 3)])
            admin.elect_leaders()
            nodes.await_whole()
            assert [*admin.list_reassignments()] == [TopicPartition("moved", 0)]

            for node in (2, 1):
                nodes.replace(node, before)
            admin.create_topics([NewTopic("back", 3, 3)])
            assert [*admin.list_reassignments()] == [TopicPartition("moved", 0)]

            for node in NODES:
                nodes.replace(node, PROJECT)
            until(lambda: not admin.list_reassignments())
            assert admin.describe_topics(["moved"])["moved"].partitions[0].replicas == (1, 3)
            assert admin.broker_states([2])[NodeId(2)] == "cordoned"
            settings = ConfigResource("broker", "")
            until(lambda: THROTTLE not in admin.describe_resources([settings])[settings])
            count = len(acknowledged)
            until(lambda: len(acknowledged) > count + 100)
        values = stored_by(nodes.bootstrap_servers, "t", PARTITIONS)
        assert sorted(int(value) for value in values if value is not None) == sorted(acknowledged)
        # This release adds no level, so there is nothing to finalize.
        assert {name: one.max_level for name, one in features.items()} == {
            name: one.max_level for name, one in admin.describe_features().items()
        }
        assert set(features) == set(SUPPORTED)
