"""Runs seeds of a world on all cores, and keeps the tally.

    python -m tests.simulation.seeds --seeds 5000 [--from 0] [--world cluster]

Without `--from` it goes on after the last seed of the tally, `build/simulation/<world>.json`. A failing seed
is shrunk, and its scenario written beside the tally; the exit status is then 1.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

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


def main() -> int:
    """Run the seeds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--from", dest="first", type=int)
    parser.add_argument("--world", choices=list(WORLDS), default="raft")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    tally_path = PLACE / f"{options.world}.json"
    tally = json.loads(tally_path.read_text()) if tally_path.exists() else {"next": 0, "passed": 0}
    first = tally["next"] if options.first is None else options.first
    began = time.monotonic()
    events, failed, reached = 0, [], Counter[str]()
    with ProcessPoolExecutor(options.processes) as pool:
        for told in pool.map(
            partial(run, options.world), range(first, first + options.seeds), chunksize=_CHUNK
        ):
            events += told.events
            reached.update(told.reached)
            if told.failure is not None:
                failed.append(told.seed)
                print(f"seed {told.seed}: {told.failure}", flush=True)
    seconds = time.monotonic() - began
    print(
        f"{options.world}: seeds {first} to {first + options.seeds - 1}, {len(failed)} failed,"
        f" {events} events in {seconds:.1f} s: {events / seconds:.0f} events/s,"
        f" {options.seeds / seconds * 60:.0f} seeds/min"
    )
    print("reached: " + " ".join(f"{state}={count}" for state, count in sorted(reached.items())))
    for seed in failed[:_SHRUNK_MAX]:
        scenario, failure = shrunk(options.world, seed)
        path = PLACE / f"{options.world}-{seed}.txt"
        path.write_text(written(scenario, str(failure)))
        print(f"seed {seed} shrunk to {len(scenario.faults)} faults: {path}")
    if not failed:
        tally = {
            "next": max(tally["next"], first + options.seeds),
            "passed": tally["passed"] + options.seeds,
        }
        tally_path.write_text(json.dumps(tally))
        print(f"passed in all runs so far: {tally['passed']} seeds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
