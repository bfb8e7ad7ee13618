"""The tally of simulated seeds over several runs."""

from pathlib import Path

import msgspec
import pytest

from sparklog_server.simulation import raft_world
from tests.simulation.seeds import Tally, Told, main


def test_a_tally_counts_the_seeds_that_passed_beside_one_that_failed() -> None:
    tally = Tally()
    for told in (
        Told(0, 10, None, {"split": 2}),
        Told(1, 10, "lost: a record", {"split": 1, "full": 1}),
        Told(2, 10, None, {}),
    ):
        tally.add(told)
    assert tally == Tally(next=3, passed=2, failed=[1], reached={"split": 3, "full": 1})
    tally.add(Told(1, 10, None, {}))  # mended
    assert tally == Tally(next=3, passed=3, failed=[], reached={"split": 3, "full": 1})


def test_a_run_goes_on_after_the_last_seed_of_the_run_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = dict[str, int]()
    for seed in range(3):
        for state, count in raft_world.run(raft_world.drawn(seed)).reached.items():
            reached[state] = reached.get(state, 0) + count
    for count in (1, 2):
        assert main(["--seeds", str(count), "--processes", "1"], tmp_path) == 0
    told = capsys.readouterr().out
    assert "raft: seeds 0 to 0, 0 failed" in told
    assert "raft: seeds 1 to 2, 0 failed" in told
    assert told.endswith("in all runs so far: 3 passed; failed: none\n")
    tally = msgspec.json.decode((tmp_path / "raft.json").read_bytes(), type=Tally)
    assert tally == Tally(next=3, passed=3, failed=[], reached=reached)
