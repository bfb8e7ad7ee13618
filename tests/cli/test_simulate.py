"""`sparklog simulate`: a seed's history, and the verdict."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from sparklog_server.broker.coordinators.transaction_coordinator_service import ProducerIds
from sparklog_server.cli.simulate import simulate
from sparklog_server.simulation.scenario import read


def test_a_seed_prints_its_history_and_what_is_wrong_with_it() -> None:
    told = CliRunner().invoke(simulate, ["--seed", "3"])
    *history, verdict = told.output.splitlines()
    assert told.exit_code == 0
    assert verdict.startswith("seed 3: ")
    assert verdict.endswith(" 0 anomalies")
    assert any("broker: loses power" in line or "broker: is killed" in line for line in history)
    assert CliRunner().invoke(simulate, ["--seed", "3", "--quiet"]).output == f"{verdict}\n"


def test_a_seed_of_a_cluster_prints_its_settings_faults_and_counts() -> None:
    told = CliRunner().invoke(simulate, ["--seed", "1", "--nodes", "4"])
    options, *scenario, verdict = told.output.splitlines()
    assert told.exit_code == 0
    assert options.startswith("# replication.factor=")
    assert read("\n".join(scenario)).nodes == (1, 2, 3, 4)
    assert verdict.startswith("seed 1: ")
    assert verdict.endswith(": no violation")


def test_a_violation_of_a_cluster_is_printed_with_the_smallest_scenario(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProducerIds, "take", lambda _: 7)
    told = CliRunner().invoke(simulate, ["--seed", "1", "--nodes", "3", "--quiet"])
    violation, _, scenario, *events, verdict = told.output.splitlines()
    assert told.exit_code == 1
    assert violation == "violation: producer-id-twice: 7"
    assert read(scenario).faults == ()
    assert events[0] == "last events:"
    assert len(events) > 1
    assert verdict.endswith(": producer-id-twice")


def test_the_help_of_the_program_loads_neither_the_simulation_nor_a_broker() -> None:
    code = "import sys; from sparklog_server.cli.main import main; main(['--help']); print(*sorted(sys.modules), sep='\\n')"  # noqa: E501
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    rooms = {line for line in run.stdout.splitlines() if line.startswith("sparklog_server.")}
    assert {room for room in rooms if not room.startswith("sparklog_server.cli")} == set()
