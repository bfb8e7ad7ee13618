"""Whole clusters over simulated machines: no seed breaks a rule, and each planted fault is found."""

from collections.abc import Callable
from functools import cache

import pytest

from sparklog.model import Instant, Micros, NodeId
from sparklog_server.broker.broker import Broker
from sparklog_server.controller.sessions import Probe, Sessions
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.leader import LeaderReplica
from sparklog_server.simulation import cluster_world
from sparklog_server.simulation.randomness import random_for
from sparklog_server.simulation.scenario import Fault, Kind, Scenario, read
from tests.simulation.planted import MarkerLost, NoAbortedList, PrepareNotReplayed

SEEDS, SEEDS_OF_A_TEST, LONG_SEEDS = 14, 2, 1_054
PLANTED_SEEDS_MAX = 50


RARE = (
    "alone-in-sync",
    "eligible",
    "fenced",
    "leaderless",
    "served-by-core",
    "transactions",
    "truncations",
)


@cache
def outcome(seed: int) -> cluster_world.Outcome:
    return cluster_world.run(cluster_world.drawn(seed))


def failed(seeds: range) -> dict[int, str]:
    failures = {seed: outcome(seed).failure for seed in seeds}
    return {seed: str(failure) for seed, failure in failures.items() if failure is not None}


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_OF_A_TEST))
def test_no_seed_breaks_a_rule(first: int) -> None:
    assert failed(range(first, first + SEEDS_OF_A_TEST)) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(SEEDS, LONG_SEEDS, 20))
def test_no_later_seed_breaks_a_rule(first: int) -> None:
    assert failed(range(first, first + 20)) == {}


def test_a_commit_is_not_lost_that_is_acknowledged_while_the_checker_waits_for_an_older_answer() -> None:
    """The checker's connection is slow: its request is answered before the commit, and arrives after it."""
    lines = (
        "world=cluster seed=1116 nodes=1,2,3,4,5 voters=1,2,3,4,5 core=1,2,4 "
        "core-ms=10000 healed-ms=26000 end-ms=34000",
        "t=4742 for=296 cut 4 to 3",
    )
    assert cluster_world.run(read("\n".join(lines))).failure is None


@pytest.mark.timeout(600)
def test_the_seeds_reach_what_is_rare() -> None:
    missing = set(RARE)
    for seed in range(SEEDS):  # a few of them do
        missing -= {state for state, count in outcome(seed).reached.items() if count}
        if not missing:
            break
    assert missing == set()


def calm(seed: int) -> Scenario:
    """Five nodes, of which at times two are killed at once, and nothing else happens."""
    random, nodes = random_for(seed, "calm"), tuple(NodeId(node) for node in range(1, 6))
    faults = (Fault(4_000 * n, 2_000, Kind.KILL, tuple(sorted(random.sample(nodes, 2)))) for n in (1, 2, 3))
    return Scenario("cluster", seed, nodes, nodes, nodes, 15_000, 16_000, 18_000, tuple(faults))


def test_killed_brokers_are_fenced_soon_and_no_other_is() -> None:
    assert [cluster_world.run(calm(seed)).failure for seed in range(3)] == [None] * 3


def test_a_leader_whose_metadata_log_cannot_be_synced_is_replaced() -> None:
    """Seed 456: the leader has heard of no change since its disk hung; its followers are an epoch ahead."""
    faults = (
        Fault(1_457, 1, Kind.STOP, (NodeId(1),)),
        Fault(4_129, 21_871, Kind.HANG, (NodeId(1),)),
        Fault(4_818, 1, Kind.STOP, (NodeId(2),)),
    )
    nodes = NodeId(1), NodeId(2), NodeId(3)
    hung = Scenario("cluster", 456, nodes, nodes, nodes[1:], 10_000, 26_000, 34_000, faults)
    assert cluster_world.run(hung).failure is None


def fences_everybody(patch: pytest.MonkeyPatch) -> None:
    def activate(sessions: Sessions, image: MetadataImage, now: Instant) -> None:
        original(sessions, image, now)
        for session in sessions._by_node.values():
            session.expires_us = Micros(now.mono_us + 1)

    original = Sessions.activate
    patch.setattr(Sessions, "activate", activate)


def never_probes(patch: pytest.MonkeyPatch) -> None:
    def due_probes(sessions: Sessions, image: MetadataImage, now: Instant) -> list[Probe]:
        original(sessions, image, now)
        return []

    original = Sessions.due_probes
    patch.setattr(Sessions, "due_probes", due_probes)


@pytest.mark.parametrize(
    ("plant", "rule"), [(fences_everybody, "fenced-alive"), (never_probes, "fenced-late")]
)
def test_a_controller_that_fences_too_much_or_too_late_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)  # 48
    found = (cluster_world.run(calm(seed)).failure for seed in range(PLANTED_SEEDS_MAX))
    assert next((failure.rule for failure in found if failure is not None), None) == rule


def test_a_replica_that_does_not_return_to_the_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderReplica, "may_join", lambda *_, **__: False)
    failure = cluster_world.run(cluster_world.drawn(3)).failure
    assert failure is not None
    # With too few in sync the high watermark of a new leader does not rise, and nothing can be read.
    assert failure.rule in ("not-in-sync", "lost")


def test_a_run_repeats() -> None:
    scenario = cluster_world.drawn(1)
    assert cluster_world.run(scenario)[1:] == cluster_world.run(scenario)[1:]


@pytest.mark.parametrize(
    ("broker_class", "rules"),
    [
        (NoAbortedList, {"aborted-read"}),
        (MarkerLost, {"lost"}),
        # It stays open. The tests of one broker's transactions plant the same fault, and find it sooner.
        pytest.param(PrepareNotReplayed, {"hanging", "lost", "not-readable"}, marks=pytest.mark.long),
    ],
)
def test_a_transaction_that_is_not_whole_is_found(broker_class: type[Broker], rules: set[str]) -> None:
    found = (
        cluster_world.run(cluster_world.drawn(seed), broker_class=broker_class).failure
        for seed in range(PLANTED_SEEDS_MAX)
    )
    assert next((failure.rule for failure in found if failure is not None), None) in rules
