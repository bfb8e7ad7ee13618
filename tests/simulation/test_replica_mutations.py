"""Every planted bug of replication is found by what its registry names."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.replica_mutations import MUTATIONS

ROOT = Path(__file__).parents[2]
SEEDS = 100


def test_each_planted_bug_names_a_world_or_tests_that_exist() -> None:
    found_by = {planted.found_by for planted in MUTATIONS.values()} - {"replica", "cluster"}
    assert [path for path in sorted(found_by) if not (ROOT / path).exists()] == []


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_bug_is_found(name: str) -> None:
    command = [sys.executable, "-m", "tests.simulation.replica_mutations", "--seeds", str(SEEDS), name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert not done.stdout.startswith("  -1 "), done.stdout
    assert name in done.stdout
