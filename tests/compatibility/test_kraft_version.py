"""Kafka's tools on directories of kraft.version 0 and 1, and our broker in one that Kafka formatted."""

import re
from os import urandom
from pathlib import Path

import pytest

from sparklog.local_broker import embedded
from sparklog.model import Millis
from sparklog_server.broker.opening.formatting import format_node, standalone
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.os_disk import OsDisk
from tests.compatibility import kafka_tools as tools
from tests.compatibility.kafka_broker import CLUSTER_ID, RealKafka, free_ports
from tests.compatibility.kafka_tools import all_that_is_said, kafka_tool

pytestmark = pytest.mark.compat

FEATURES = "org.apache.kafka.tools.FeatureCommand"
STORAGE = "kafka.tools.StorageTool"
METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
STATIC = {"controller_quorum_voters": "1@127.0.0.1:9093"}
"""These voters keep a new directory at kraft.version 0, as every directory of an earlier release is."""


def dumped(data_dir: Path) -> str:
    """The metadata log as Kafka's decoder prints it."""
    (log,) = sorted((data_dir / "__cluster_metadata-0").glob("*.log"))
    output = kafka_tool(tools.DUMP_LOG, "--cluster-metadata-decoder", "--files", log)
    assert "isvalid: false" not in output
    return output


def properties(root: Path, data_dir: Path) -> Path:
    """Settings of a Kafka node with both roles over a directory."""
    broker, controller = free_ports(2)
    path = root / "kafka.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n"
        f"log.dirs={data_dir}\n"
    )
    return path


def features(server: str, *words: str) -> str:
    """What kafka-features prints, and its complaints."""
    return all_that_is_said(FEATURES, "--bootstrap-server", server, *words)


def described(server: str) -> dict[str, tuple[int, int]]:
    """The supported maximum and the finalized level of each feature."""
    output = features(server, "describe")
    found = re.findall(r"Feature: (\S+)\s.*SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)", output)
    number = {"4.3-IV0": 30}
    return {name: (number.get(most) or int(most), number.get(at) or int(at)) for name, most, at in found}


def test_a_new_directory_is_one_of_kraft_version_1_to_kafkas_tools(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with embedded(data_dir=data) as broker:
        assert described(broker.bootstrap_servers)["kraft.version"] == (1, 1)
        status = kafka_tool(
            METADATA_QUORUM, "--bootstrap-server", broker.bootstrap_servers, "describe", "--status"
        )
        assert re.search(r'CurrentVoters:\s+\[\{"id": 1, "directoryId": "\S{22}"', status)
        refused = features(broker.bootstrap_servers, "downgrade", "--feature", "kraft.version=0")
        assert "Can't downgrade the version of this feature" in refused
    output = dumped(data)
    assert re.search(r'KRaftVersion \{"version":0,"kRaftVersion":1\}', output)
    assert re.search(
        r'KRaftVoters \{"version":0,"voters":\[\{"voterId":1,"voterDirectoryId":"\S{22}"', output
    )
    info = kafka_tool(STORAGE, "info", "-c", properties(tmp_path, data))
    assert "Found problem" not in info
    assert re.search(r"directory\.id=\S{22}", info)


def test_a_directory_that_sparklog_formatted_is_a_formatted_one_to_kafkas_tools(tmp_path: Path) -> None:
    data = tmp_path / "data"
    path = properties(tmp_path, data)
    given = dict(line.split("=", 1) for line in path.read_text().splitlines())
    settings = BrokerSettings.of(given)
    format_node(
        settings,
        OsDisk(),
        cluster_id=CLUSTER_ID,
        voters=standalone(settings, urandom),
        entropy=urandom,
        wall_ms=Millis(1),
    )
    info = kafka_tool(STORAGE, "info", "-c", path)
    assert "Found problem" not in info
    assert f"cluster.id={CLUSTER_ID}" in info
    (snapshot,) = data.rglob("*.checkpoint")
    output = kafka_tool(tools.DUMP_LOG, "--cluster-metadata-decoder", "--files", snapshot)
    assert "isvalid: false" not in output
    assert re.search(r'KRaftVersion \{"version":0,"kRaftVersion":1\}', output)
    port = given["controller.quorum.bootstrap.servers"].rpartition(":")[2]
    assert f'"endpoints":[{{"name":"CONTROLLER","host":"127.0.0.1","port":{port}}}]' in output
    again = all_that_is_said(STORAGE, "format", "-t", CLUSTER_ID, "-c", path, "--standalone")
    assert "is already formatted" in again


def test_kafka_features_raises_a_directory_of_kraft_version_0(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with embedded(data_dir=data, **STATIC) as broker:
        assert described(broker.bootstrap_servers)["kraft.version"] == (1, 0)
        assert "KRaftVersion" not in dumped(data)
        told = features(broker.bootstrap_servers, "upgrade", "--feature", "kraft.version=1")
        assert "kraft.version was upgraded to 1." in told
        assert described(broker.bootstrap_servers)["kraft.version"] == (1, 1)
    batches = [batch for batch in dumped(data).split("baseOffset: ") if "KRaftVersion {" in batch]
    assert len(batches) == 1
    assert "KRaftVoters" in batches[0]
    with embedded(data_dir=data, **STATIC) as broker:
        assert described(broker.bootstrap_servers)["kraft.version"] == (1, 1)
    info = kafka_tool(STORAGE, "info", "-c", properties(tmp_path, data))
    assert "Found problem" not in info


def test_a_directory_that_kafka_formatted_begins_with_the_levels_of_its_format(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = properties(tmp_path, data)
    kafka_tool(
        STORAGE, "format", "-t", CLUSTER_ID, "-c", settings, "--standalone", "--feature", "group.version=0"
    )
    with embedded(data_dir=data) as broker:
        levels = described(broker.bootstrap_servers)
        assert levels["kraft.version"] == (1, 1)
        assert levels["group.version"] == (1, 0)
        assert levels["metadata.version"] == (30, 30)
        assert "share.version" not in levels
    assert '"voterId":1,"voterDirectoryId":"' in dumped(data)


@pytest.mark.long
def test_kafka_goes_on_in_a_directory_whose_voters_are_in_our_log(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path)
    with embedded(data_dir=kafka.data_dir) as broker:
        assert described(broker.bootstrap_servers)["kraft.version"][1] == 1
    with kafka.running():
        output = features(kafka.bootstrap_servers, "describe")
        assert re.search(r"Feature: kraft\.version\s.*FinalizedVersionLevel: 1\s", output)
    with embedded(data_dir=kafka.data_dir) as broker:
        assert described(broker.bootstrap_servers)["kraft.version"][1] == 1
