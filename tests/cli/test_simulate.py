"""`sparklog simulate`: a seed's history, and the verdict."""

import subprocess
import sys

from click.testing import CliRunner

from sparklog_server.cli.simulate import simulate


def test_a_seed_prints_its_history_and_what_is_wrong_with_it() -> None:
    told = CliRunner().invoke(simulate, ["--seed", "3"])
    *history, verdict = told.output.splitlines()
    assert told.exit_code == 0
    assert verdict.startswith("seed 3: ")
    assert verdict.endswith(" 0 anomalies")
    assert any("broker: loses power" in line or "broker: is killed" in line for line in history)
    assert CliRunner().invoke(simulate, ["--seed", "3", "--quiet"]).output == f"{verdict}\n"


def test_the_help_of_the_program_loads_neither_the_simulation_nor_a_broker() -> None:
    code = "import sys; from sparklog_server.cli.main import main; main(['--help']); print(*sorted(sys.modules), sep='\\n')"  # noqa: E501
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    rooms = {line for line in run.stdout.splitlines() if line.startswith("sparklog_server.")}
    assert {room for room in rooms if not room.startswith("sparklog_server.cli")} == set()
