"""Drivers of one sink that overtake each other: the decision of a newer one stays, however late the older one
wakes.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest

pytest.importorskip("pyspark.sql", reason="needs pyspark")

from sparklog import Admin, embedded
from sparklog.client.exactly_once.committer import BatchNotWhole
from sparklog.client.exactly_once.decisions import prefix_of, sink_name
from tests.spark.conftest import MakeTopic
from tests.spark.sinks import QUERY, Died, Driver, committed, dies_at


def overtaken_at(step: str, newer: Callable[[], None]) -> Callable[[str], None]:
    """A `told` that lets `newer` run after the first of these steps, as if the driver were paused there."""
    left = [newer]

    def told(done: str) -> None:
        if done == step and left:
            left.pop()()

    return told


def decides_and_dies(servers: str, sink: str, topic: str, batch: int, query: str = QUERY) -> None:
    """A newer driver writes a batch, decides it, and is no more before it ended a single transaction."""
    with Driver(servers, identity=sink, told=dies_at("decide")) as newer, suppress(Died):
        newer.run_batch(topic, batch, [["x"], ["y"]], query=query)


def test_an_abort_leaves_alone_what_a_newer_driver_has_decided_meanwhile(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    told = overtaken_at("last_decision", lambda: decides_and_dies(servers, sink, topic, 0))
    with Driver(servers, identity=sink, told=told) as old:
        old.abort([None], 0)
    with Driver(servers, identity=sink) as newest:
        newest.run_batch(topic, 1, [["z"]])
    assert committed(servers, topic) == ["x", "y", "z"]


@pytest.mark.filterwarnings("ignore:exactly-once sink")
def test_a_sweep_after_another_query_leaves_alone_what_a_newer_driver_has_decided_meanwhile(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink) as before:
        before.run_batch(topic, 7, [["v"]])
    told = overtaken_at("end_all", lambda: decides_and_dies(servers, sink, topic, 1, "another"))
    with Driver(servers, identity=sink, told=told) as old:
        old.run_batch(topic, 0, [["w"]], query="another")
    with Driver(servers, identity=sink) as newest:
        newest.run_batch(topic, 2, [["z"]], query="another")
    assert committed(servers, topic) == ["v", "w", "x", "y", "z"]


@pytest.mark.filterwarnings("ignore:exactly-once sink")
def test_a_sweep_leaves_alone_what_a_new_query_of_the_same_sink_has_decided_meanwhile(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    told = overtaken_at("end_all", lambda: decides_and_dies(servers, sink, topic, 0, "another"))
    with Driver(servers, identity=sink, told=told) as old:
        old.run_batch(topic, 5, [["w"]])
    with Driver(servers, identity=sink) as newest:
        newest.run_batch(topic, 1, [["z"]], query="another")
    assert committed(servers, topic) == ["w", "x", "y", "z"]


def commits_or_writes_again(
    servers: str, sink: str, topic: str, tasks: Sequence[Sequence[str]]
) -> Callable[[], None]:
    """A newer driver of another query has written its batch 0; what it gives commits that, or writes it
    anew where it is refused.
    """
    newer = Driver(servers, identity=sink)
    messages = newer.run_tasks(topic, 0, tasks, query="another")

    def commits() -> None:
        with newer:
            try:
                newer.commit(messages, 0)
            except BatchNotWhole:
                newer.abort(messages, 0)
                newer.run_batch(topic, 0, tasks, query="another")

    return commits


@pytest.mark.filterwarnings("ignore:exactly-once sink")
def test_an_abort_that_has_looked_its_last_aborts_nothing_that_a_newer_driver_decides_then(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    told = overtaken_at("abort", commits_or_writes_again(servers, sink, topic, [["x"], ["y"]]))
    with Driver(servers, identity=sink, told=told) as old:
        old.abort([None], 0)
    with Driver(servers, identity=sink) as newest:
        newest.run_batch(topic, 1, [["z"]], query="another")
    assert sorted(committed(servers, topic)) == ["x", "y", "z"]


@pytest.mark.filterwarnings("ignore:exactly-once sink")
def test_a_sweep_that_has_looked_its_last_aborts_nothing_that_a_newer_driver_decides_then(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    told = overtaken_at("abort", commits_or_writes_again(servers, sink, topic, [["x"], ["y"]]))
    with Driver(servers, identity=sink, told=told) as old:
        old.run_batch(topic, 5, [["w"]])
    with Driver(servers, identity=sink) as newest:
        newest.run_batch(topic, 1, [["z"]], query="another")
    assert sorted(committed(servers, topic)) == ["w", "x", "y", "z"]


def test_nobody_decides_on_what_a_driver_condemned_before_it_died(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic, tasks = make_topic(2), [["x"], ["y"]]
    with (
        Driver(servers, identity=sink) as newer,
        Driver(servers, identity=sink, told=dies_at("condemn")) as old,
    ):
        messages = newer.run_tasks(topic, 0, tasks)
        with pytest.raises(Died):
            old.abort([None], 0)
        with pytest.raises(BatchNotWhole, match="2 of 2 transactions are no longer open"):
            newer.commit(messages, 0)
        newer.abort(messages, 0)
        newer.run_batch(topic, 0, tasks)
    assert sorted(committed(servers, topic)) == ["x", "y"]


@pytest.fixture(scope="module")
def hasty_servers() -> Iterator[str]:
    """A broker that looks for late transactions all the time, not every ten seconds."""
    with embedded(transaction_abort_timed_out_transaction_cleanup_interval_ms=50) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("is_fenced_anew", [True, False])
def test_a_driver_that_sleeps_between_check_and_decision_until_time_is_up_is_told_so_and_decides_nothing(
    hasty_servers: str, sink: str, is_fenced_anew: bool
) -> None:
    servers, topic, prefix = hasty_servers, f"topic-{sink}", f"{prefix_of(sink_name(sink))}1."
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({topic: 2})

    def sleeps() -> None:
        until = time.monotonic() + 60
        with Admin(bootstrap_servers=servers) as admin:
            while admin.list_transactions(states=["Ongoing", "PrepareAbort"], prefix=prefix):
                assert time.monotonic() < until

    with Driver(servers, identity=sink, timeout_ms=2_000) as driver:
        driver.run_batch(topic, 0, [["w"]])
    told: list[Callable[[str], None]] = [lambda _: None]
    with Driver(servers, identity=sink, timeout_ms=2_000, told=lambda step: told[0](step)) as driver:
        if not is_fenced_anew:
            driver.run_batch(topic, 0, [["w"]])  # is there already, and the fence is kept
        told[0] = overtaken_at("check", sleeps)
        with pytest.raises(
            BatchNotWhole,
            match=r"batch 1 of sink .* 2 of 2 transactions are no longer open.*kafka.transaction.timeout.ms",
        ):
            driver.run_batch(topic, 1, [["x"], ["y"]])
    assert committed(servers, topic) == ["w"]
    with Driver(servers, identity=sink) as driver:
        driver.run_batch(topic, 1, [["x"], ["y"]])
    assert sorted(committed(servers, topic)) == ["w", "x", "y"]


def test_nothing_is_decided_about_a_transaction_whose_time_is_over(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink, timeout_ms=1_000) as driver:
        messages = driver.run_tasks(topic, 0, [["x"]])
        until = time.monotonic() + 30
        while not admin.list_transactions(prefix=prefix_of(sink_name(sink)), longer_than_ms=1_000):
            assert time.monotonic() < until
        with pytest.raises(BatchNotWhole, match=r"1 of 1 transactions are no longer open"):
            driver.commit(messages, 0)
        driver.abort(messages, 0)
    assert committed(servers, topic) == []
