"""A registry of planted bugs, and what finds each: seeds of a world, or the tests of a file."""

import argparse
import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest

from sparklog_server.simulation import cluster_world, replica_world

Planted = Iterator[None]


class Mutation(NamedTuple):
    """A planted bug, and what finds it: seeds of a world, or the tests of a file."""

    plant: Callable[[], Planted]
    found_by: str


MUTATIONS: dict[str, Mutation] = {}


def mutation(
    name: str, found_by: str = "replica"
) -> Callable[[Callable[[], Planted]], Callable[[], Planted]]:
    """Register a planted bug; its name begins with the number of the list that it comes from."""

    def register(plant: Callable[[], Planted]) -> Callable[[], Planted]:
        MUTATIONS[name] = Mutation(plant, found_by)
        return plant

    return register


def seeds_needed(plant: Callable[[], Planted], seeds: int, *, world: str) -> tuple[int, str]:
    """(how many seeds it took, the violation); (-1, "") if none of them found it."""
    tried = 0
    for seed in range(1, 100 * seeds):
        if world == "cluster" and cluster_world.replication_of(cluster_world.drawn(seed)).factor == 1:
            continue
        tried += 1
        with contextlib.contextmanager(plant)():
            if world == "cluster":
                failure = cluster_world.run(cluster_world.drawn(seed)).failure
            else:
                failure = replica_world.run(replica_world.drawn(seed)).failure
        if failure is not None:
            return tried, str(failure).partition(":")[0]
        if tried == seeds:
            break
    return -1, ""


def failed_test(plant: Callable[[], Planted], paths: Sequence[str]) -> tuple[int, str]:
    """(1, the first test that failed); (-1, "") if none did."""

    class First:
        name = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed and not self.name:
                self.name = report.nodeid

    first = First()
    options = [
        "-q",
        "-x",
        "-m",
        "not long",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        *paths,
    ]
    with contextlib.contextmanager(plant)(), contextlib.redirect_stdout(io.StringIO()):
        pytest.main(options, plugins=[first])
    return (1, first.name) if first.name else (-1, "")


def main() -> None:
    """Print a line for each mutation: seeds needed, what found it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--world", choices=("replica", "cluster"))
    parser.add_argument("--tests", action="append")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    for name, (plant, found_by) in MUTATIONS.items():
        if options.names and not any(one == name or name.startswith(f"{one} ") for one in options.names):
            continue
        world = options.world or found_by
        if options.tests or world not in ("replica", "cluster"):
            needed, found = failed_test(plant, options.tests or [world])
        else:
            needed, found = seeds_needed(plant, options.seeds, world=world)
        print(f"{needed:4}  {name}: {found}", flush=True)
