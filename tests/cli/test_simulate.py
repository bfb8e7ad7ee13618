"""`sparklog simulate`: a seed's history, and the verdict."""

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
