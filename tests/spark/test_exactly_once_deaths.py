"""The exactly-once sink against a live broker, without Spark: drivers that die after any step are replayed
without loss or duplicate.
"""

import random
from contextlib import suppress

import pytest

pytest.importorskip("pyspark.sql", reason="needs pyspark")

from sparklog import Admin
from sparklog.spark.delivery import Task
from tests.spark.conftest import MakeTopic
from tests.spark.sinks import (
    BATCHES,
    QUERY,
    STEPS,
    Died,
    Driver,
    child,
    committed,
    dies_at,
    flat,
    killed_at,
    names,
    open_ids,
)


@pytest.mark.parametrize("batch", [pytest.param(0, marks=pytest.mark.long), 1])
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_killed_after_any_step_is_replayed_without_loss_or_duplicate(
    servers: str, make_topic: MakeTopic, sink: str, step: str, batch: int
) -> None:
    topic = make_topic(2)

    def dies() -> None:
        with Driver(
            servers, identity=sink, told=lambda done: killed_at(step)(done) if is_due[0] else None
        ) as driver:
            for number in range(batch + 1):
                is_due[0] = number == batch
                driver.run_batch(topic, number, BATCHES[number])

    is_due = [False]
    with child(dies):
        pass
    with Driver(servers, identity=sink) as driver:
        for number in range(batch, 3):
            driver.run_batch(topic, number, BATCHES[number])
    assert sorted(committed(servers, topic)) == flat(BATCHES)


@pytest.mark.parametrize("step", STEPS)
def test_a_commit_that_raises_after_any_step_is_followed_by_abort_with_the_same_messages(
    servers: str, make_topic: MakeTopic, sink: str, step: str
) -> None:
    topic = make_topic(2)
    with Driver(servers, identity=sink) as driver:
        driver.run_batch(topic, 0, BATCHES[0])
    with Driver(servers, identity=sink, told=dies_at(step)) as driver:
        messages = driver.run_tasks(topic, 1, BATCHES[1])
        with pytest.raises(Died):
            driver.commit(messages, 1)
    with Driver(servers, identity=sink) as driver:
        driver.abort(messages, 1)
        is_decided = step in STEPS[STEPS.index("decide") :]
        assert sorted(committed(servers, topic)) == flat(BATCHES[: 2 if is_decided else 1])
    with Driver(servers, identity=sink) as driver:
        for number in (1, 2):
            driver.run_batch(topic, number, BATCHES[number])
    assert sorted(committed(servers, topic)) == flat(BATCHES)


@pytest.mark.parametrize("second", ["fence", "last_decision", "end_all", "sweep"])
@pytest.mark.parametrize("first", ["decide", "first end", pytest.param("check", marks=pytest.mark.long)])
def test_an_abort_that_dies_after_a_commit_that_died_changes_nothing(
    servers: str, make_topic: MakeTopic, sink: str, first: str, second: str
) -> None:
    topic = make_topic(2)
    with Driver(servers, identity=sink, told=dies_at(first)) as driver:
        messages = driver.run_tasks(topic, 0, BATCHES[0])
        with pytest.raises(Died):
            driver.commit(messages, 0)
    with Driver(servers, identity=sink, told=dies_at(second)) as driver, suppress(Died):
        driver.abort(messages, 0)
    with Driver(servers, identity=sink) as driver:
        for number in range(3):
            driver.run_batch(topic, number, BATCHES[number])
    assert sorted(committed(servers, topic)) == flat(BATCHES)


def run_history(seed: int, servers: str, topic: str, sink: str, admin: Admin) -> None:
    """Run drivers one after another until all batches are committed: each starts at the end of Spark's commit
    log, dies at a random step, and may be aborted by Spark first.
    """
    chance = random.Random(seed)
    done, batches = (
        0,
        [names(batch, tasks=chance.randint(1, 3), rows=chance.randint(0, 2)) for batch in range(4)],
    )
    while done < len(batches):
        told = dies_at(chance.choice([*STEPS, "never"]))
        with Driver(servers, identity=sink, told=told) as driver:
            messages = driver.run_tasks(topic, done, batches[done])
            if chance.random() < 0.3:
                messages[-1] = driver.run_task(
                    topic, Task(len(messages) - 1, 1, QUERY, done), batches[done][-1]
                )
            try:
                driver.commit(messages, done)
                done += 1
            except Died:
                if chance.random() < 0.5:
                    try:
                        driver.abort(chance.choice([messages, [None] * len(messages)]), done)
                    except Died:
                        continue
    with Driver(servers, identity=sink) as driver:
        driver.abort([None], done)
    assert sorted(committed(servers, topic)) == flat(batches), f"seed {seed}"
    assert open_ids(admin, sink) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_random_history_of_deaths_ends_with_each_record_once(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin, seed: int
) -> None:
    run_history(seed, servers, make_topic(2), sink, admin)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_histories_of_deaths_end_with_each_record_once(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin, seed: int
) -> None:
    run_history(seed, servers, make_topic(2), sink, admin)
