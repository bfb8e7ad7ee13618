"""The harness sees what it is there to see: duplicates of what is written at least once, and every step of
a commit.
"""

import pytest

from tests.spark.kill_points.harness import (
    COUNT,
    PER_BATCH,
    TASKS,
    Harness,
    committed_numbers,
    is_exact,
    wrong,
)
from tests.spark.kill_points.points import RAISE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_lost_and_repeated_numbers_are_told() -> None:
    assert wrong(list(range(COUNT))) == {}
    assert wrong([0, 0, *range(2, COUNT)]) == {"lost": [1], "twice": [0]}


def test_duplicates_of_a_batch_written_at_least_once_are_found(harness: Harness) -> None:
    query = harness.query(delivery="at_least_once")
    harness.points.on("commit", query.target, RAISE, batch=1)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert len(wrong(committed_numbers(query.servers, query.target))["twice"]) == PER_BATCH


def test_undisturbed_batches_are_of_several_transactions(harness: Harness) -> None:
    query = harness.query()
    harness.run_to_the_end(query, failures=0)
    assert is_exact(query)
    written = sorted(
        (point.batch, point.partition) for point in harness.points.passed if point.name == "written"
    )
    assert written == [
        (batch, partition) for batch in range(COUNT // PER_BATCH) for partition in range(TASKS)
    ]
    steps = [
        "commit",
        "fence",
        "last_decision",
        "check",
        "decide",
        "first_end",
        "end_all",
        "sweep",
        "committed",
    ]
    assert [
        name for name in harness.points.names(query.target, 1) if name not in ("begun", "written")
    ] == steps
