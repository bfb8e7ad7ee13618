"""Two drivers on one checkpoint: the older is paused in a commit, as on a machine that hangs, and wakes
beside the newer, or after it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.spark.kill_points.harness import Harness, KillableBroker, Spark, is_exact
from tests.spark.kill_points.points import RAISE

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def other_harness(
    killable_broker: KillableBroker, one_harness: Harness, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """For a second Spark."""
    harness = Harness(killable_broker, one_harness.points, tmp_path_factory.mktemp("older"))
    yield harness
    harness.close()


@pytest.fixture
def older(other_harness: Harness) -> Iterator[Spark]:
    """The second Spark."""
    spark = other_harness.spark
    yield spark
    spark.kill_if_paused()


@pytest.mark.parametrize(
    "point",
    ["written", "commit", "fence", "last_decision", "check", "decide", "first_end", "end_all", "sweep"],
)
def test_a_driver_that_wakes_after_a_newer_one_has_ended_changes_nothing(
    harness: Harness, older: Spark, point: str
) -> None:
    query = harness.query()
    paused = harness.points.hold(point, query.target, batch=1)
    number = older.start(query)
    worker = paused.reached().pid
    older.pause(worker)
    harness.run_to_the_end(query, failures=0)
    older.wake(worker)
    paused.release()
    older.ended(number)  # in any way: its actions must not matter
    harness.points.check()
    assert is_exact(query)


class Meeting(NamedTuple):
    """Where the older driver sleeps in batch 1, and where the newer one is held when it wakes."""

    older: str
    newer: str
    newer_batch: int = 1


MEETINGS = [
    *(Meeting("commit", newer) for newer in ("commit", "fence", "check", "decide", "end_all")),
    *(Meeting("check", newer) for newer in ("commit", "fence", "last_decision", "check", "decide")),
    *(Meeting("decide", newer) for newer in ("commit", "fence", "last_decision", "end_all")),
    *(Meeting("end_all", newer, 2) for newer in ("written", "check", "decide", "first_end")),
]


@pytest.mark.parametrize("meeting", MEETINGS, ids=lambda meeting: "-".join(map(str, meeting)))
def test_a_driver_that_wakes_while_a_newer_one_commits_changes_nothing(
    harness: Harness, older: Spark, meeting: Meeting
) -> None:
    query = harness.query()
    paused = harness.points.hold(meeting.older, query.target, batch=1)
    old_number = older.start(query)
    worker = paused.reached().pid
    older.pause(worker)
    held = harness.points.hold(meeting.newer, query.target, batch=meeting.newer_batch)
    number = harness.spark.start(query)
    held.reached()
    older.wake(worker)
    paused.release()
    older.ended(old_number)
    held.release()
    harness.spark.ended(number)
    harness.run_to_the_end(query, failures=None)  # one may be fenced yet, and fail once more
    harness.points.check()
    assert is_exact(query)


@pytest.mark.parametrize("newer", ["written", "check", "decide", "first_end"])
def test_an_abort_that_wakes_while_a_newer_driver_commits_takes_nothing_from_it(
    harness: Harness, older: Spark, newer: str
) -> None:
    query = harness.query()
    harness.points.on("fence", query.target, RAISE, batch=1)
    paused = harness.points.hold(
        "last_decision", query.target, batch=1
    )  # in abort: the commit did not come so far
    old_number = older.start(query)
    worker = paused.reached().pid
    older.pause(worker)
    held = harness.points.hold(newer, query.target, batch=1)
    number = harness.spark.start(query)
    held.reached()
    older.wake(worker)
    paused.release()
    older.ended(old_number)
    held.release()
    harness.spark.ended(number)
    harness.run_to_the_end(query, failures=None)  # one may be fenced yet, and fail once more
    harness.points.check()
    assert is_exact(query)
