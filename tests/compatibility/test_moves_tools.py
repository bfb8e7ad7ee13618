"""Moves between log directories as Kafka's own tool asks for them, with a throttle set and taken back."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.local_broker import EmbeddedBroker, embedded
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.kafka_tools import kafka_tool

pytestmark = pytest.mark.compat

REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with embedded(data_dir=f"{tmp_path}/one,{tmp_path}/two") as broker:
        yield broker


def test_kafka_reassign_partitions_moves_a_replica_and_verifies_it(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(timeout=30)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for _ in range(50):
        producer.produce("t", b"x" * 10_000, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    (home,) = tmp_path.glob("*/t-0")
    target = tmp_path / ("two" if home.parent.name == "one" else "one")
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [str(target)]}],
            }
        )
    )
    tool = ("--bootstrap-server", servers, "--reassignment-json-file", plan)
    output = kafka_tool(
        REASSIGN_PARTITIONS, *tool, "--execute", "--replica-alter-log-dirs-throttle", "100000000"
    )
    assert f"Successfully started moving log directory to {target} for replica t-0 with broker 1" in output
    ends = time.monotonic() + PATIENCE_S
    while "completed successfully" not in (
        output := kafka_tool(REASSIGN_PARTITIONS, *tool, "--verify", "--preserve-throttles")
    ):
        assert time.monotonic() < ends, output
    assert list(tmp_path.glob("*/t-0*")) == [target / "t-0"]
    told = json.loads(
        kafka_tool(LOG_DIRS, "--bootstrap-server", servers, "--describe", "--topic-list", "t").splitlines()[
            -1
        ]
    )
    (dirs,) = [one["logDirs"] for one in told["brokers"]]
    assert {one["logDir"]: [part["isFuture"] for part in one["partitions"]] for one in dirs} == {
        str(target): [False],
        str(home.parent): [],
    }
