"""Every record is in the Delta table exactly once, by its offset, after any process is killed at any time."""

from collections.abc import Iterator

import pytest

from tests.spark.restarts.bench import Restarts, require_delta
from tests.spark.restarts.referee import Strike

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CALLS = {
    # Of batch 0 it is called twice: before it is stored, and when it is planned.
    "initialOffset": (2, 1),
    "getDefaultReadLimit": (1,),
    "prepareForTriggerAvailableNow": (1,),
    "latestOffset": (2, 1, 3),
    "reportLatestOffset": (2, 1),
    "partitions": (2, 1),
    "read": (3, 1, 2),
    "commit": (1,),
}
"""Which calls of each hook are struck: 60 records in batches of 30, two tasks each, and 20 more after the
strike.

All of them with the driver, with which everything is gone; and all of `read`, which alone runs in
executors. The first one of each where less is struck.
"""

QUICK = [
    Strike("driver", "partitions", 1, "after"),
    Strike("worker", "read", 3, "after"),
    Strike("hook", "read", 1, "before"),
]
MATRIX = [
    Strike(target, hook, nth, moment)  # type: ignore[arg-type]
    for target in ("driver", "worker", "hook", "broker")
    for hook, calls in CALLS.items()
    for nth in (calls if target == "driver" or hook == "read" else calls[:1])
    for moment in ("before", "after")
]
EARLY = [
    Strike(target, hook, 1, moment)  # type: ignore[arg-type]
    for target, hooks in {
        "driver": ("partitions", "getCache", "commit"),
        "hook": ("getCache",),
        "broker": ("partitions",),
    }.items()
    for hook in hooks
    for moment in ("before", "after")
]
"""Where each micro-batch is one task, its rows come with the plan, and no worker reads."""


@pytest.fixture(scope="module")
def restarts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarts]:
    require_delta()
    with Restarts(tmp_path_factory.mktemp("restarts")) as restarts:
        yield restarts


@pytest.mark.parametrize("strike", QUICK, ids=str)
def test_every_record_is_read_once_though_a_query_is_struck(restarts: Restarts, strike: Strike) -> None:
    found, expected = restarts.rows_after(strike)
    assert found == expected


@pytest.mark.long
@pytest.mark.parametrize("strike", [strike for strike in MATRIX if strike not in QUICK], ids=str)
def test_every_record_is_read_once_wherever_a_query_is_struck(restarts: Restarts, strike: Strike) -> None:
    found, expected = restarts.rows_after(strike)
    assert found == expected


@pytest.mark.long
@pytest.mark.parametrize("strike", EARLY, ids=str)
def test_every_record_is_read_once_wherever_a_query_is_struck_that_takes_rows_with_the_plan(
    restarts: Restarts, strike: Strike
) -> None:
    found, expected = restarts.rows_after(strike, tasks=1)
    assert found == expected
