"""Runs seeds of a world on all cores, and keeps the tally.

    python -m tests.simulation.seeds --seeds 5000 [--from 0] [--world cluster]

Without `--from` it goes on after the last seed of the tally, `build/simulation/<world>.json`, to which an
interrupted run adds its seeds too. A failing seed is shrunk, and its scenario written beside the tally; the
exit status is then 1.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from sparklog_server.simulation import cluster_world, raft_world, replica_world
from sparklog_server.simulation.scenario import Scenario, written
from sparklog_server.simulation.shrink import shrink
from sparklog_server.simulation.world import Violation

WORLDS = {"raft": raft_world, "cluster": cluster_world, "replica": replica_world}
PLACE = Path("build/simulation")
_CHUNK = 25
_SHRUNK_MAX = 5


class Told(NamedTuple):
    """What a seed gave: the broken rule, or None."""

    seed: int
    events: int
    failure: str | None
    reached: dict[str, int]


class Tally(msgspec.Struct):
    """What the seeds of all runs gave: the seed after the last one, how many passed, those whose last run
    failed, and how often each state was reached.
    """

    next: int = 0
    passed: int = 0
    failed: list[int] = []
    reached: dict[str, int] = {}

    def add(self, told: Told) -> None:
        """Count one more seed."""
        self.next = max(self.next, told.seed + 1)
        self.reached = dict(Counter(self.reached) + Counter(told.reached))
        self.failed = sorted({*self.failed, told.seed} if told.failure else {*self.failed} - {told.seed})
        self.passed += told.failure is None


def run(world: str, seed: int) -> Told:
    """Run one seed."""
    module = WORLDS[world]
    outcome = module.run(module.drawn(seed))
    failure = None if outcome.failure is None else str(outcome.failure)
    return Told(seed, outcome.events, failure, outcome.reached)


def shrunk(world: str, seed: int) -> tuple[Scenario, Violation]:
    """The smallest scenario that breaks the same rule as the seed."""
    module = WORLDS[world]
    scenario = module.drawn(seed)
    failure = module.run(scenario).failure
    assert failure is not None

    def fails(candidate: Scenario) -> bool:
        found = module.run(candidate).failure
        return found is not None and found.rule == failure.rule

    small = shrink(scenario, fails)
    found = module.run(small).failure
    assert found is not None
    return small, found


def main(arguments: Sequence[str] | None = None, place: Path = PLACE) -> int:
    """Run the seeds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--from", dest="first", type=int)
    parser.add_argument("--world", choices=list(WORLDS), default="raft")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{options.world}.json"
    tally = msgspec.json.decode(path.read_bytes(), type=Tally) if path.exists() else Tally()
    first = tally.next if options.first is None else options.first
    seeds = range(first, first + options.seeds)
    failed = _run_all(options.world, seeds, tally, path, processes=options.processes)
    for seed in failed[:_SHRUNK_MAX]:
        scenario, failure = shrunk(options.world, seed)
        found = place / f"{options.world}-{seed}.txt"
        found.write_text(written(scenario, str(failure)))
        print(f"seed {seed} shrunk to {len(scenario.faults)} faults: {found}")
    print(f"in all runs so far: {tally.passed} passed; failed: {', '.join(map(str, tally.failed)) or 'none'}")
    return 1 if failed else 0


def _run_all(world: str, seeds: range, tally: Tally, path: Path, *, processes: int) -> list[int]:
    """Run seeds, and add them to the tally and its file; returns those that failed."""
    began = time.monotonic()
    events, failed, reached = 0, [], Counter[str]()
    try:
        with ProcessPoolExecutor(processes) as pool:
            for told in pool.map(partial(run, world), seeds, chunksize=_CHUNK):
                events += told.events
                reached.update(told.reached)
                tally.add(told)
                if told.failure is not None:
                    failed.append(told.seed)
                    print(f"seed {told.seed}: {told.failure}", flush=True)
    finally:
        path.write_bytes(msgspec.json.encode(tally))
    seconds = time.monotonic() - began
    print(
        f"{world}: seeds {seeds.start} to {seeds.stop - 1}, {len(failed)} failed,"
        f" {events} events in {seconds:.1f} s: {events / seconds:.0f} events/s,"
        f" {len(seeds) / seconds * 60:.0f} seeds/min"
    )
    print("reached: " + " ".join(f"{state}={count}" for state, count in sorted(reached.items())))
    return failed


if __name__ == "__main__":
    sys.exit(main())
