"""Kafka's own tools, unmodified, on a cluster of three nodes and on the files that it leaves."""

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import sparklog
from sparklog import Admin, Producer
from tests.compatibility import kafka_tools as tools
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.kafka_tools import all_that_is_said, java_command, kafka_tool
from tests.compatibility.test_groups_tools import NEW_PROTOCOL
from tests.compatibility.test_transactions_java import COPIER, from_to
from tests.compatibility.test_transactions_own import read
from tests.daemon.broker_process import wait_until

pytestmark = pytest.mark.compat

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
STORAGE = "kafka.tools.StorageTool"
SHELL = "org.apache.kafka.shell.MetadataShell"
NODES = ["1", "2", "3"]
VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
TOPIC = "led-by-all-nodes"
COMPARED = "compared"
PARTITIONS = 60
RECORDS = [f"record-{number}" for number in range(100)]


class Three(NamedTuple):
    """A cluster with a topic whose partitions have leaders on all nodes; how tools reach it."""

    id: str
    data_dir: Path
    at_brokers: tuple[str, str]
    at_controllers: tuple[str, str]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    data_dir = tmp_path_factory.mktemp("three") / "data"
    settings = {"metadata_log_max_record_bytes_between_snapshots": 4000}
    with (
        sparklog.embedded(nodes=3, data_dir=data_dir, **settings) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics({TOPIC: PARTITIONS})
        controllers = [f"{one.host}:{one.port}" for one in admin.describe_quorum().endpoints]
        yield Three(
            admin.describe_cluster().cluster_id,
            data_dir,
            ("--bootstrap-server", cluster.bootstrap_servers),
            ("--bootstrap-controller", ",".join(controllers)),
        )


def test_the_quorum_is_described_by_brokers_and_by_controllers(three: Three) -> None:
    for at in (three.at_brokers, three.at_controllers):
        told = kafka_tool(QUORUM, *at, "describe", "--status")
        assert re.search(rf"^ClusterId: +{three.id}$", told, re.MULTILINE)
        assert re.search(r"^LeaderId: +[123]$", told, re.MULTILINE)
        assert re.findall(r'"id": (\d), "directoryId": "[\w-]{22}"', told) == NODES
        assert len(set(re.findall(r"CONTROLLER://127\.0\.0\.1:(\d+)", told))) == 3
    rows = kafka_tool(QUORUM, *three.at_brokers, "describe", "--replication").splitlines()[1:]
    assert sorted(row.split()[0] for row in rows) == NODES
    assert sorted(row.split()[-1] for row in rows) == ["Follower", "Follower", "Leader"]


def test_brokers_and_controllers_are_listed(three: Three) -> None:
    assert kafka_tool(CLUSTER, "cluster-id", *three.at_controllers) == f"Cluster ID: {three.id}\n"
    brokers = kafka_tool(CLUSTER, "list-endpoints", *three.at_brokers)
    assert re.findall(r"^(\d) .* unfenced +broker", brokers, re.MULTILINE) == NODES
    controllers = kafka_tool(CLUSTER, "list-endpoints", *three.at_controllers)
    assert re.findall(r"^(\d) .* controller", controllers, re.MULTILINE) == NODES


def test_a_broker_that_is_not_registered_cannot_be_unregistered(three: Three) -> None:
    told = all_that_is_said(CLUSTER, "unregister", "--id", "9", *three.at_brokers)
    assert "BrokerIdNotRegisteredException: Broker ID 9 is not currently registered" in told


def test_controllers_tell_the_features_of_the_cluster(three: Three) -> None:
    told = kafka_tool(FEATURES, *three.at_controllers, "describe")
    assert re.search(r"metadata\.version .*FinalizedVersionLevel: 4\.3-IV0", told)


def test_partitions_are_led_by_all_nodes_and_serve_kafkas_clients(three: Three) -> None:
    described = kafka_tool(tools.TOPICS, *three.at_brokers, "--describe", "--topic", TOPIC)
    places = re.findall(r"Leader: (\d)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)", described)
    leaders = [leader for leader, _, _ in places]
    assert [leaders.count(node) for node in NODES] == [PARTITIONS // 3] * 3
    for leader, replicas, isr in places:
        assert replicas[0] == leader
        assert sorted(replicas.split(",")) == sorted(isr.split(",")) == NODES
    given = "".join(f"{one}\n" for one in RECORDS)
    kafka_tool(tools.CONSOLE_PRODUCER, *three.at_brokers, "--topic", TOPIC, given=given)
    group = ("--group", "readers", "--from-beginning", "--max-messages", str(len(RECORDS)))
    read = kafka_tool(
        tools.CONSOLE_CONSUMER, *three.at_brokers, "--topic", TOPIC, *group, complaints=[NEW_PROTOCOL]
    )
    assert sorted(read.splitlines()) == sorted(RECORDS)


def test_kafkas_tool_finds_the_same_records_on_every_replica(three: Three) -> None:
    _, bootstrap_servers = three.at_brokers
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics({COMPARED: 1})
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for record in RECORDS:
            producer.send(COMPARED, record)
    arguments = ("--broker-list", bootstrap_servers, "--topics-include", COMPARED, "--time", "-2")
    command = java_command(VERIFICATION, *arguments, "--report-interval-ms", "100")
    caught_up = f"max lag is 0 for partition {COMPARED}-0 at offset {len(RECORDS)} among 1 partitions"
    told: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as tool:
        limit = threading.Timer(60, tool.kill)
        limit.start()
        assert tool.stdout is not None
        for line in tool.stdout:
            told.append(line)
            if caught_up in line:
                break
        limit.cancel()
        tool.kill()
    assert caught_up in "".join(told)
    assert [line for line in told if "match" in line] == []


def test_every_broker_offers_kafkas_clients_the_same(three: Three) -> None:
    told = kafka_tool(tools.BROKER_API_VERSIONS, *three.at_brokers)
    assert (
        sorted(re.findall(r"^127\.0\.0\.1:\d+ \(id: (\d) .*isFenced: false\)", told, re.MULTILINE)) == NODES
    )
    assert len(set(re.findall(r"\tProduce\(0\): .*", told))) == 1


def test_a_java_transaction_spans_partitions_of_all_nodes(three: Three) -> None:
    live = LiveBroker(three.at_brokers[1], three.data_dir)
    source, target = live.create("source", partitions=6), live.create("target", partitions=6)
    with Producer(bootstrap_servers=live.bootstrap_servers) as producer:
        for number in range(300):
            producer.send(source, str(number), partition=number % 6)
    kafka_tool(
        COPIER,
        *("--broker-list", live.bootstrap_servers, "--transactional-id", "copier"),
        *from_to(source, target, size=30),
        "--group-mode",
    )
    expected = [str(number) for part in range(6) for number in range(part, 300, 6)]
    assert read(live, target, partitions=6) == expected


def test_the_files_of_a_node_are_read(three: Three, tmp_path: Path) -> None:
    node = three.data_dir / "node-2"
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=2\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={node}\n"
    )
    told = kafka_tool(STORAGE, "info", "-c", config)
    assert f"cluster.id={three.id}" in told
    assert "node.id=2" in told
    metadata = node / "__cluster_metadata-0"
    wait_until(lambda: TOPIC.encode() in max(metadata.glob("*.checkpoint")).read_bytes())
    formatted, *_, newest = sorted(metadata.glob("*.checkpoint"))
    log = metadata / f"{0:020}.log"
    dumped = kafka_tool(
        tools.DUMP_LOG, "--cluster-metadata-decoder", "--files", ",".join(map(str, (formatted, newest, log)))
    )
    assert "isvalid: false" not in dumped
    assert "Could not decode" not in dumped
    assert dumped.count('KRaftVersion {"version":0,"kRaftVersion":1}') == 3
    assert all(f'"voterId":{node}' in dumped for node in NODES)
    assert dumped.count('LeaderChange: {"version":0') >= 1
    copied = tmp_path / "copied" / newest.name  # Kafka's shell locks the directory, as the node does
    copied.parent.mkdir()
    copied.write_bytes(newest.read_bytes())

    def lists_the_image() -> bool:
        """It may list before its loader has what its reader has read; it complains of the control records
        of a snapshot, those of Kafka's own too.
        """
        found = set(all_that_is_said(SHELL, "--snapshot", copied, "find", "/image").splitlines())
        expected = {f"/image/topics/byName/{TOPIC}/{number}" for number in range(PARTITIONS)}
        return expected | {f"/image/cluster/controllers/{node}" for node in NODES} <= found

    wait_until(lists_the_image)
