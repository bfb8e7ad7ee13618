"""`sparklog top`, `health`, `debug bundle` and plans of moves in front of a real Kafka."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.model import TopicPartition
from sparklog_server.cli.main import main
from tests.compatibility.kafka_broker import RealKafka

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    kafka = RealKafka(tmp_path_factory.mktemp("kafka"))
    with kafka.running(is_killed=True):
        with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 2, 1)])
            admin.alter_group_offsets("g", {TopicPartition("t", 0): 0})
        yield kafka.bootstrap_servers


def told(*arguments: str) -> tuple[int, Any]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main([*arguments, "--json"])
    return code, json.loads(printed.getvalue())


def test_top(servers: str) -> None:
    code, figures = told("top", "--once", "--interval", "0.5", "-b", servers)
    assert code == 0
    assert figures["records_in"] == 0
    assert [(one["group"], one["state"], one["lag"]) for one in figures["groups"]] == [("g", "Empty", 0)]
    (broker,) = figures["brokers"]
    assert (broker["state"], broker["total"] > broker["usable"] > 0) == ("ok", True)


def test_health(servers: str) -> None:
    code, answer = told("health", "--watch", "1", "-b", servers)
    states = {one["subject"]: one["state"] for one in answer["findings"]}
    assert code in (0, 1)  # the disk of the machine may be full
    assert set(states) - {"disk"} == {
        *("partitions", "controller", "brokers", "log directories", "settings", "clocks", "groups")
    }
    assert {state for subject, state in states.items() if subject != "disk"} == {"OK"}


def test_moves_are_planned_and_states_of_nodes_refused(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told("partitions", "balance", "-b", servers)[1]["moves"] == []
    assert told("partitions", "reassignments", "-b", servers) == (0, [])
    code, status = told("cluster", "status", "-b", servers)
    assert (code, status["reassignments"], status["nodes"][0]["asked"]) == (0, 0, "active")
    assert main(["cluster", "drain", "1", "-b", servers]) == 1
    assert "these brokers cannot be cordoned, drained or decommissioned" in capsys.readouterr().err


def test_bundle(servers: str, tmp_path: Path) -> None:
    code, answer = told("debug", "bundle", "--output", str(tmp_path / "b.zip"), "-b", servers)
    assert (code, answer["missing"]) == (0, {})
