"""Worlds of several machines: a run repeats, faults end, and a planted fault is found and shrunk."""

import os
import subprocess
import sys

import pytest

from sparklog.model import NodeId
from sparklog_server.simulation import scenario as scenarios
from sparklog_server.simulation.nemesis import drawn
from sparklog_server.simulation.scenario import Kind, Scenario
from sparklog_server.simulation.shrink import shrink
from sparklog_server.simulation.world import Violation
from tests.simulation import toy

NODES = (NodeId(1), NodeId(2), NodeId(3))
LETHAL = (Kind.KILL, Kind.STOP, Kind.POWER, Kind.LOSE, Kind.OLDER)  # the toy keeps its values in memory
SEEDS_MAX = 50


def of(seed: int) -> Scenario:
    scenario = drawn("toy", seed, NODES, NODES)
    return scenario._replace(faults=tuple(fault for fault in scenario.faults if fault.kind not in LETHAL))


@pytest.mark.parametrize("seed", range(20))
def test_one_primary_goes_on_committing_after_all_faults(seed: int) -> None:
    _, watch = toy.run(of(seed))
    assert watch.ledger.end > 60


@pytest.mark.parametrize("seed", range(5))
def test_a_run_repeats(seed: int) -> None:
    first, second = (toy.run(of(seed))[0] for _ in range(2))
    assert (first.events, first.digest) == (second.events, second.digest)
    assert first.events > 1_000


def test_a_run_repeats_under_another_hash_seed_and_with_reference_kernels() -> None:
    code = (
        "from tests.simulation.test_world import of, toy\n"
        "world = toy.run(of(3))[0]\n"
        "print(world.events, world.digest)"
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


def test_a_second_primary_is_found_and_its_scenario_shrunk_to_few_faults() -> None:
    scenario = next(found for seed in range(SEEDS_MAX) if toy.fails(found := of(seed)))
    small = shrink(scenario, toy.fails)
    assert len(small.faults) <= 2
    again = scenarios.read(scenarios.written(small, "Two primaries."))
    assert again == small
    with pytest.raises(Violation, match="committed-changed"):
        toy.run(again, takes_over=True)


@pytest.mark.parametrize("seed", range(50))
def test_a_scenario_is_read_as_it_was_written(seed: int) -> None:
    scenario = drawn("raft", seed, NODES, NODES, kinds=tuple(Kind))
    assert scenarios.read(scenarios.written(scenario, "From a seed.")) == scenario


@pytest.mark.parametrize(
    "line", ["kill 2", "t=1 for=2 vanish 2", "t=1 for=2 kill x", "t=1 for=2 cut 1 at 2", "t=1 for=2 cut 1 to"]
)
def test_a_line_that_is_no_fault_is_refused(line: str) -> None:
    text = scenarios.written(drawn("raft", 1, NODES, NODES)._replace(faults=()))
    with pytest.raises(ValueError, match=r"."):
        scenarios.read(text + line)
