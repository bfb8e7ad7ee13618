"""The broker is killed at each point of a micro-batch and comes back while the worker goes on."""

import pytest

from tests.spark.kill_points.harness import Harness, is_exact
from tests.spark.kill_points.points import GO, Point
from tests.spark.kill_points.test_deaths import STEPS, and_long

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("point", and_long("decide", ["begun", "written", *STEPS]))
def test_a_broker_killed_and_restarted_loses_nothing_and_doubles_nothing(
    harness: Harness, point: str
) -> None:
    query = harness.query()
    harness.points.on(point, query.target, harness.restart_broker, batch=1)
    harness.spark.run(query)  # whether the query outlives it is not the question here
    harness.run_to_the_end(query, failures=0)
    harness.points.check()
    assert is_exact(query)


@pytest.mark.long
@pytest.mark.parametrize("point", ["written", "fence", "decide", "first_end", "end_all"])
def test_a_broker_and_a_driver_killed_together_lose_nothing_and_double_nothing(
    harness: Harness, point: str
) -> None:
    query = harness.query()

    def kill_both(at: Point) -> str:
        harness.restart_broker(at)
        return harness.kill_spark(at)

    harness.points.on(point, query.target, kill_both, batch=1)
    harness.run_to_the_end(query, failures=1)
    harness.points.check()
    assert is_exact(query)


@pytest.mark.long
def test_a_broker_killed_at_every_step_of_one_batch_loses_nothing_and_doubles_nothing(
    harness: Harness,
) -> None:
    query = harness.query()

    def restart(point: Point) -> str:
        harness.restart_broker(point)
        return GO

    for step in ("commit", "check", "decide", "end_all"):
        harness.points.on(step, query.target, restart, batch=1)
    harness.spark.run(query)
    harness.run_to_the_end(query, failures=0)
    assert is_exact(query)
