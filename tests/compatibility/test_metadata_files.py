"""Kafka's own decoder reads the snapshots of our metadata log, record by record, and a Kafka begins with
them.
"""

import json
import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.local_broker import embedded
from tests.compatibility import kafka_tools as tools
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.kafka_broker import RealKafka
from tests.compatibility.kafka_tools import kafka_tool

pytestmark = pytest.mark.compat


def create(bootstrap_servers: str, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for made in admin.create_topics(list(topics)).values():
        made.result(timeout=PATIENCE_S)


def test_dump_log_reads_a_metadata_snapshot(tmp_path: Path) -> None:
    with embedded(data_dir=tmp_path / "data", metadata_log_max_record_bytes_between_snapshots=4000) as broker:
        create(
            broker.bootstrap_servers,
            NewTopic("plain", 60, 1),
            NewTopic("configured", 2, 1, config={"retention.ms": "1234567"}),
        )
    snapshots = sorted((tmp_path / "data").rglob("*.checkpoint"))
    assert snapshots

    dumped = kafka_tool(tools.DUMP_LOG, "--cluster-metadata-decoder", "--files", snapshots[-1])

    assert "isvalid: false" not in dumped
    assert "Could not decode" not in dumped
    assert "Snapshot end offset: {}, epoch: {}".format(*map(int, snapshots[-1].stem.split("-"))) in dumped
    assert re.search(r'SnapshotHeader \{"version":0,"lastContainedLogTimestamp":\d{13}\}', dumped)
    assert 'SnapshotFooter {"version":0}' in dumped.splitlines()[-1]
    records = [json.loads(found) for found in re.findall(r'payload: (\{"type".*\})$', dumped, re.MULTILINE)]
    types = [record["type"] for record in records]
    assert types[:4] == [*["FEATURE_LEVEL_RECORD"] * 3, "REGISTER_BROKER_RECORD"]
    assert types.count("PARTITION_RECORD") == 62
    assert {record["data"]["name"] for record in records if record["type"] == "TOPIC_RECORD"} == {
        "plain",
        "configured",
    }
    configs = [record["data"] for record in records if record["type"] == "CONFIG_RECORD"]
    assert {(config["resourceName"], config["name"], config["value"]) for config in configs} == {
        ("", "min.insync.replicas", "1"),
        ("configured", "retention.ms", "1234567"),
    }


@pytest.mark.long
def test_kafka_begins_with_nothing_but_our_snapshot_and_we_go_on_behind_kafka(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path)
    with embedded(data_dir=kafka.data_dir, metadata_log_max_record_bytes_between_snapshots=4000) as broker:
        create(
            broker.bootstrap_servers,
            NewTopic("ours", 60, 1),
            NewTopic("configured", 2, 1, config={"retention.ms": "1234567"}),
        )
    directory = kafka.data_dir / "__cluster_metadata-0"
    assert list(directory.glob("*.checkpoint"))
    for pattern in ("*.log", "*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint"):
        for path in directory.glob(pattern):
            path.unlink()
    with kafka.running() as admin:
        found = admin.list_topics(timeout=PATIENCE_S).topics
        assert {name: len(topic.partitions) for name, topic in found.items()} == {"ours": 60, "configured": 2}
        assert {partition.leader for partition in found["ours"].partitions.values()} == {1}
        create(kafka.bootstrap_servers, NewTopic("theirs", 3, 1))
    with embedded(data_dir=kafka.data_dir) as broker:
        topics = (
            AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            .list_topics(timeout=PATIENCE_S)
            .topics
        )
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {
            "ours": 60,
            "configured": 2,
            "theirs": 3,
        }
