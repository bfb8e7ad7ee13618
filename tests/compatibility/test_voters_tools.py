"""kafka-metadata-quorum adds and removes voters of our quorum, through brokers and through controllers."""

from pathlib import Path

import pytest

from tests.compatibility.kafka_tools import all_that_is_said, kafka_tool
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
