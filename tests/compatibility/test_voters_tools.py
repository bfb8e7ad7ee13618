"""kafka-metadata-quorum adds and removes voters of our quorum, through brokers and through controllers; and
controllers of Kafka and of ours join each other's quorums.
"""

import re
from pathlib import Path

import pytest

from tests.compatibility.kafka_broker import KafkaNode, free_ports
from tests.compatibility.kafka_tools import all_that_is_said, kafka_tool
from tests.compatibility.mixed_cluster import FEATURES, OwnNode
from tests.daemon.broker_process import wait_until
from tests.daemon.voter_nodes import VoterNodes

pytestmark = pytest.mark.compat

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"


def properties(nodes: VoterNodes, node: int, root: Path) -> Path:
    """The settings of a controller, as `add-controller` reads them."""
    path = root / f"controller-{node}.properties"
    path.write_text(
        f"process.roles=broker,controller\nnode.id={node}\nlog.dirs={nodes.directory(node)}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{nodes.broker_ports[node]},"
        f"CONTROLLER://127.0.0.1:{nodes.controller_ports[node]}\n"
        f"controller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{nodes.controller_ports[1]}\n"
    )
    return path


@pytest.mark.parametrize("through", ["--bootstrap-server", "--bootstrap-controller"])
def test_kafka_metadata_quorum_adds_and_removes_a_controller(through: str, tmp_path: Path) -> None:
    nodes = VoterNodes(tmp_path, 2)
    with nodes.running(1, 2):
        directory = nodes.await_observer(2)
        ports = nodes.broker_ports if through == "--bootstrap-server" else nodes.controller_ports
        reached = (through, f"127.0.0.1:{ports[2]},127.0.0.1:{ports[1]}")
        config = ("--command-config", properties(nodes, 2, tmp_path))
        told = kafka_tool(QUORUM, *reached, *config, "add-controller")
        assert (
            f"Added controller 2 with directory id {directory} and endpoints: CONTROLLER://127.0.0.1:" in told
        )
        assert nodes.voters() == [1, 2]
        again = all_that_is_said(QUORUM, *reached, *config, "add-controller")
        assert "DuplicateVoterException" in again
        status = kafka_tool(QUORUM, *reached, "describe", "--status")
        assert f'{{"id": 2, "directoryId": "{directory}"' in status
        removal = ("remove-controller", "--controller-id", "2", "--controller-directory-id", directory)
        told = kafka_tool(QUORUM, *reached, *removal)
        assert f"KRaft controller 2 with directory id {directory}" in told
        nodes.await_voters(1)
        assert "VoterNotFoundException" in all_that_is_said(QUORUM, *reached, *removal)


@pytest.mark.long
@pytest.mark.parametrize("first", ["kafka", "own"])
def test_a_controller_joins_a_quorum_of_the_other_kind(first: str, tmp_path: Path) -> None:
    ports = free_ports(2)
    quorum = ",".join(f"127.0.0.1:{port}" for port in ports)

    def settings(node: int) -> dict[str, object]:
        (tmp_path / f"{node}").mkdir()
        return {
            "process.roles": "controller",
            "node.id": node,
            "listeners": f"CONTROLLER://127.0.0.1:{ports[node - 1]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": quorum,
            "controller.quorum.auto.join.enable": "true" if node == 2 else "false",
            "log.dirs": tmp_path / f"{node}" / "data",
        }

    def voters() -> list[str]:
        told = all_that_is_said(QUORUM, "--bootstrap-controller", f"127.0.0.1:{ports[0]}", *status)
        found = re.search(r"CurrentVoters:(.*)", told)
        return re.findall(r'"id": (\d+)', found[1]) if found else []

    status = ("describe", "--status")
    standalone, joins = ("--standalone",), ("--no-initial-controllers",)
    begun: KafkaNode | OwnNode
    joining: KafkaNode | OwnNode
    if first == "kafka":
        begun = KafkaNode(tmp_path / "1", settings(1), features=FEATURES, quorum=standalone)
        joining = OwnNode(tmp_path / "2", settings(2), quorum=joins)
    else:
        begun = OwnNode(tmp_path / "1", settings(1), quorum=standalone)
        joining = KafkaNode(tmp_path / "2", settings(2), quorum=joins)
    with begun.process():
        wait_until(lambda: voters() == ["1"], 30)
        with joining.process(is_killed=True):
            wait_until(lambda: voters() == ["1", "2"], 60)
