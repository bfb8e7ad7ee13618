"""What a driver or a task dies of, and where; each query is run again on its checkpoint until it ends by
itself.
"""

import pytest

from tests.spark.kill_points.harness import PER_BATCH, Harness, committed_numbers, is_exact
from tests.spark.kill_points.points import EXIT, RAISE, Point

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STEPS = ["commit", "fence", "last_decision", "check", "decide", "first_end", "end_all", "sweep", "committed"]


def and_long(first: str, points: list[str]) -> list[object]:
    """All of the points, those but the first for the long run."""
    return [first, *(pytest.param(point, marks=pytest.mark.long) for point in points if point != first)]


@pytest.mark.parametrize("point", and_long("decide", STEPS))
def test_a_driver_killed_in_a_commit_is_replayed_without_loss_or_duplicate(
    harness: Harness, point: str
) -> None:
    query = harness.query()
    harness.points.on(point, query.target, harness.kill_spark, batch=1)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert is_exact(query)


@pytest.mark.long
@pytest.mark.parametrize("point", ["written", "fence", "decide", "committed"])
def test_a_driver_killed_in_the_first_batch_is_replayed_without_loss_or_duplicate(
    harness: Harness, point: str
) -> None:
    query = harness.query()
    harness.points.on(point, query.target, harness.kill_spark, batch=0)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert is_exact(query)


@pytest.mark.long
def test_a_driver_killed_again_and_again_while_it_rolls_forward_ends_with_each_number_once(
    harness: Harness,
) -> None:
    query = harness.query()
    for point in ("first_end", "fence", "last_decision"):
        harness.points.on(point, query.target, harness.kill_spark, batch=1)
    harness.run_to_the_end(query, failures=3)
    harness.points.check()
    assert is_exact(query)


@pytest.mark.long
def test_a_driver_killed_between_the_sentence_and_the_end_of_a_lost_attempt_is_replayed(
    harness: Harness,
) -> None:
    query = harness.query()
    harness.points.on(
        "written", query.target, EXIT, batch=1, partition=1
    )  # all of it is there, without a report
    harness.points.on("condemn", query.target, harness.kill_spark, batch=1)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert is_exact(query)


@pytest.mark.parametrize("answer", [EXIT, pytest.param(RAISE, marks=pytest.mark.long)])
def test_a_task_that_dies_after_writing_is_tried_again_and_counts_once(harness: Harness, answer: str) -> None:
    query = harness.query()
    harness.points.on("written", query.target, answer, batch=1, partition=1)
    harness.run_to_the_end(query, failures=0)
    harness.points.check()
    attempts = [
        point.attempt
        for point in harness.points.passed
        if (point.name, point.batch, point.partition) == ("written", 1, 1)
    ]
    assert attempts == [0, 1]
    assert is_exact(query)


@pytest.mark.parametrize("point", and_long("decide", STEPS))
def test_a_commit_that_raises_is_followed_by_abort_and_counts_once(harness: Harness, point: str) -> None:
    query = harness.query()
    harness.points.on(point, query.target, RAISE, batch=1)
    (raised,) = harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert f"at {point} of batch 1" in raised
    assert "aborted" in harness.points.names(query.target, 1)
    assert is_exact(query)


@pytest.mark.long
def test_a_query_stopped_while_its_tasks_write_leaves_nothing_open(harness: Harness) -> None:
    query = harness.query()
    writing = [
        harness.points.hold("written", query.target, batch=1, partition=partition) for partition in (0, 1)
    ]
    number = harness.spark.start(query)
    for held in writing:
        held.reached()
    harness.spark.stop_queries()
    harness.spark.ended(number)
    for held in writing:
        held.release()
    assert "aborted" in harness.points.names(query.target, 1)
    assert (
        len(committed_numbers(query.servers, query.target)) == PER_BATCH
    )  # read to the end: no open transaction holds the reader
    harness.run_to_the_end(query, failures=0)
    harness.points.check()
    assert is_exact(query)


@pytest.mark.long
def test_an_abort_that_dies_is_made_up_for_by_the_next_commit(harness: Harness) -> None:
    query = harness.query()

    def raise_and_then_kill(point: Point) -> str:
        harness.points.on("abort", query.target, harness.kill_spark, batch=1)
        return RAISE

    harness.points.on("first_end", query.target, raise_and_then_kill, batch=1)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert is_exact(query)
