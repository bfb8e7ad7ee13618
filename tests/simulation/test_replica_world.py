"""Replication alone over simulated machines: no seed breaks a rule, and the seeds reach what is rare."""

from collections import Counter
from functools import cache

import pytest

from sparklog_server.simulation import replica_world

SEEDS, SEEDS_OF_A_TEST, LONG_SEEDS = 50, 10, 2_250
ONCE_FAILED = (1_250, 1_675, 2_096, 7_904, 7_963, 7_984, 11_785, 22_328, 44_222)


RARE = (
    "alone-in-sync",
    "disk-full",
    "elected-in-haste",
    "eligible",
    "isr-not-changed",
    "leaderless",
    "replica-begins-anew",
    "replica-truncated",
    "resigned-while-expanding",
    "resigned-while-shrinking",
    "resigned-with-parked-requests",
    "throttled",
)


@cache
def outcome(seed: int) -> replica_world.Outcome:
    return replica_world.run(replica_world.drawn(seed))


def failed(seeds: range) -> dict[int, str]:
    failures = {seed: outcome(seed).failure for seed in seeds}
    return {seed: str(failure) for seed, failure in failures.items() if failure is not None}


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_OF_A_TEST))
def test_no_seed_breaks_a_rule(first: int) -> None:
    assert failed(range(first, first + SEEDS_OF_A_TEST)) == {}


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_no_seed_breaks_a_rule_again(seed: int) -> None:
    assert failed(range(seed, seed + 1)) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(SEEDS, LONG_SEEDS, 200))
def test_no_later_seed_breaks_a_rule(first: int) -> None:
    assert failed(range(first, first + 200)) == {}


def test_the_seeds_reach_what_is_rare() -> None:
    reached = Counter[str]()
    for seed in range(SEEDS):
        reached.update(outcome(seed).reached)
    assert {state: reached[state] for state in RARE if reached[state] == 0} == {}


def test_a_run_repeats() -> None:
    scenario = replica_world.drawn(1)
    assert replica_world.run(scenario) == replica_world.run(scenario)
