"""A driver that was paused between two steps wakes while a newer one is between two of its own: all pairs,
without Spark.
"""

import threading
import warnings
from typing import NamedTuple

import pytest

from sparklog import Admin
from sparklog.errors import SparklogError
from tests.spark.kill_points.harness import NUMBERS, PARTITIONS, KillableBroker
from tests.spark.sinks import STEPS, Driver, committed, flat, names

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::UserWarning")]

BATCHES = [names(batch, tasks=2) for batch in range(3)]
PATIENCE_S = 60
TRIES_MAX = 3


class Late(NamedTuple):
    """The older driver is paused after a step of batch 1, and wakes when the newer is after a step of
    `newer_batch`.
    """

    older: str
    newer: str
    newer_batch: int
    is_abort: bool

    def __str__(self) -> str:
        return f"{'abort' if self.is_abort else 'commit'} {self.older}, {self.newer} of {self.newer_batch}"


def pairs() -> list[object]:
    """Every pair, those that once lost records in each run."""
    steps_of_abort = ("fence", "last_decision", "end_all", "condemn")
    every = [
        Late(older, newer, batch, is_abort=False) for older in STEPS for newer in STEPS for batch in (1, 2)
    ]
    every += [
        Late(older, newer, batch, is_abort=True)
        for older in steps_of_abort
        for newer in STEPS
        for batch in (1, 2)
    ]
    once_wrong = {
        Late("end_all", "check", 2, False),
        Late("end_all", "decide", 2, False),
        Late("last_decision", "decide", 1, True),
    }
    return [
        pytest.param(late, id=str(late), marks=() if late in once_wrong else pytest.mark.long)
        for late in every
    ]


class Paused:
    """A driver in a thread of its own, stopped after a step until it is woken."""

    def __init__(self, servers: str, identity: str, topic: str, late: Late) -> None:
        self._late = late
        self._reached, self._woken = threading.Event(), threading.Event()
        self._driver = Driver(servers, identity=identity, told=self._told)
        self._messages = self._driver.run_tasks(topic, 1, BATCHES[1])
        self._thread = threading.Thread(target=self._end)
        self._thread.start()
        assert self._reached.wait(PATIENCE_S)

    def wake(self) -> None:
        """Let it go on to its end."""
        self._woken.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _told(self, step: str) -> None:
        if step == self._late.older and not self._reached.is_set():
            self._reached.set()
            assert self._woken.wait(PATIENCE_S)

    def _end(self) -> None:
        with self._driver as driver, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                (driver.abort if self._late.is_abort else driver.commit)(self._messages, 1)
            except SparklogError:
                driver.abort(self._messages, 1)  # as Spark does
            finally:
                self._reached.set()  # a step that it never comes to: it has ended instead


@pytest.mark.parametrize("late", pairs())
def test_a_driver_that_wakes_between_two_steps_of_a_newer_one_takes_nothing_from_it(
    killable_broker: KillableBroker, late: Late
) -> None:
    servers, topic = killable_broker.bootstrap_servers, f"late-{next(NUMBERS)}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({topic: PARTITIONS})
    with Driver(servers, identity=topic) as first:
        first.run_batch(topic, 0, BATCHES[0])
    paused = Paused(servers, topic, topic, late)
    batch = 0

    def told(step: str) -> None:
        if (step, batch) == (late.newer, late.newer_batch):
            paused.wake()

    with Driver(servers, identity=topic, told=told) as newer:
        for batch in (1, 2):
            run_until_committed(newer, topic, batch)
    paused.wake()
    assert sorted(committed(servers, topic)) == flat(BATCHES)


def test_processes_that_commit_for_one_query_in_turn_do_not_shut_each_other_out(
    killable_broker: KillableBroker,
) -> None:
    """Spark keeps a pool of them for all queries: where two queries run, each is served by now one, now
    another.
    """
    servers, topic = killable_broker.bootstrap_servers, f"in-turn-{next(NUMBERS)}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({topic: PARTITIONS})
    with Driver(servers, identity=topic) as one, Driver(servers, identity=topic) as other:
        for batch, driver in enumerate((one, other, one)):
            driver.run_batch(topic, batch, BATCHES[batch])
    assert sorted(committed(servers, topic)) == flat(BATCHES)


def run_until_committed(driver: Driver, topic: str, batch: int) -> None:
    """As a query that is started again after it failed."""
    for last in (False,) * (TRIES_MAX - 1) + (True,):
        try:
            driver.run_batch(topic, batch, BATCHES[batch])
        except SparklogError:
            if last:
                raise
        else:
            return
