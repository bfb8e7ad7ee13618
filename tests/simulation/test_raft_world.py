"""Raft over simulated machines: no seed breaks an invariant, and each planted fault is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.model import NodeId
from sparklog_server.simulation import raft_world, scenario
from sparklog_server.simulation.randomness import random_for
from sparklog_server.simulation.scenario import Fault, Kind, Scenario
from tests.simulation.raft_planted import PLANTED, refused_links_tell_nothing

SCENARIOS = Path(__file__).parent / "scenarios"
SEEDS, SEEDS_OF_A_TEST, LONG_SEEDS = 200, 50, 1_000
PLANTED_SEEDS_MAX = 50
QUICK_MS = 1_500


def failed(seeds: range) -> dict[int, str]:
    failures = {seed: raft_world.run(raft_world.drawn(seed)).failure for seed in seeds}
    return {seed: str(failure) for seed, failure in failures.items() if failure is not None}


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_OF_A_TEST))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    assert failed(range(first, first + SEEDS_OF_A_TEST)) == {}, "`tests.simulation.seeds` shrinks a seed"


@pytest.mark.long
@pytest.mark.parametrize("first", range(SEEDS, LONG_SEEDS, SEEDS_OF_A_TEST))
def test_no_later_seed_breaks_an_invariant(first: int) -> None:
    assert failed(range(first, first + SEEDS_OF_A_TEST)) == {}, "`tests.simulation.seeds` shrinks a seed"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_scenario_breaks_no_invariant(path: Path) -> None:
    assert raft_world.run(scenario.read(path.read_text())).failure is None


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_within_few_seeds(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[fault].plant(monkeypatch)
    found = (raft_world.run(raft_world.drawn(seed)).failure for seed in range(PLANTED_SEEDS_MAX))
    assert next((failure.rule for failure in found if failure is not None), None) in PLANTED[fault].rules


def calm(seed: int) -> Scenario:
    """Three voters of which one at a time is killed, and nothing else happens."""
    random, nodes = random_for(seed, "calm"), (NodeId(1), NodeId(2), NodeId(3))
    faults = (
        Fault(3_000 * number + random.randrange(1_000), 1_000, Kind.KILL, (random.choice(nodes),))
        for number in range(1, 6)
    )
    return Scenario("raft", seed, nodes, nodes, nodes, 20_000, 24_000, 28_000, tuple(faults))


def test_a_killed_leader_is_replaced_before_the_fetch_timeout() -> None:
    outcomes = [raft_world.run(calm(seed)) for seed in range(20)]
    assert [outcome.failure for outcome in outcomes if outcome.failure] == []
    assert 0 < max(outcome.leaderless_ms_max for outcome in outcomes) <= QUICK_MS


def test_a_late_replacement_of_a_killed_leader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    refused_links_tell_nothing(monkeypatch)  # 37
    assert any(raft_world.run(calm(seed)).leaderless_ms_max > QUICK_MS for seed in range(PLANTED_SEEDS_MAX))


def test_a_run_repeats_under_another_hash_seed_and_with_reference_kernels() -> None:
    code = (
        "from sparklog_server.simulation import raft_world\n"
        "for seed in (1, 2, 3): print(raft_world.run(raft_world.drawn(seed))[1:3])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "SPARKLOG_KERNELS": kernels},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed, kernels in (("1", "auto"), ("2", "auto"), ("3", "reference"))
    }
    assert len(told) == 1


def test_a_fault_that_is_left_out_changes_nothing_before_it() -> None:
    drawn = scenario.read((SCENARIOS / "leaders-in-turn.txt").read_text())
    whole: list[str] = []
    part: list[str] = []
    raft_world.run(drawn, trace=whole.append)
    raft_world.run(drawn._replace(faults=drawn.faults[:-1]), trace=part.append)
    at_ms = drawn.faults[-1].at_ms
    assert [line for line in whole if _ms(line) < at_ms] == [line for line in part if _ms(line) < at_ms]
    assert whole != part


def _ms(line: str) -> float:
    return float(line.split()[0].removeprefix("t="))
