"""A driver that never returns, and the broker that asks what it decided: rolled forward, or aborted, when
the time is over.
"""

import itertools
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark.sql", reason="needs pyspark")

from sparklog import Admin
from sparklog.client.exactly_once.decisions import TOPIC, coordinator_id, sink_name
from sparklog.client.producer.writer import BatchWriter
from sparklog.client.settings import ClientSettings
from sparklog.local_broker import EmbeddedBroker, embedded
from sparklog.record.batch import build_batch
from tests.spark.sinks import Died, Driver, committed, dies_at, flat, names

NUMBERS = itertools.count(1)
TIMEOUT_MS = 1_500
BATCH = names(0, tasks=3)


@pytest.fixture(scope="module")
def impatient() -> Iterator[EmbeddedBroker]:
    """A broker that looks for overdue transactions ten times a second."""
    with embedded(
        transaction_abort_timed_out_transaction_cleanup_interval_ms=100, transaction_max_timeout_ms=60_000
    ) as broker:
        yield broker


@pytest.fixture
def topic(impatient: EmbeddedBroker) -> str:
    name = f"resolved-{next(NUMBERS)}"
    with Admin(bootstrap_servers=impatient.bootstrap_servers) as admin:
        admin.create_topics({name: 2})
    return name


def dies(servers: str, topic: str, step: str, *, batch: int = 0) -> None:
    """A driver of the sink named like the topic dies after a step of its commit."""
    with Driver(servers, identity=topic, told=dies_at(step), timeout_ms=TIMEOUT_MS) as driver:
        messages = driver.run_tasks(topic, batch, BATCH)
        with pytest.raises(Died):
            driver.commit(messages, batch)


def test_a_transaction_whose_time_is_over_before_there_are_any_decisions_is_aborted() -> None:
    with embedded(transaction_abort_timed_out_transaction_cleanup_interval_ms=100) as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics({"t": 2})
            with Driver(servers, identity="never", timeout_ms=TIMEOUT_MS) as driver:
                driver.run_tasks("t", 0, BATCH)
            assert committed(servers, "t") == []
            assert TOPIC not in admin.list_topics(include_internal=True)


@pytest.mark.parametrize("step", ["decide", "first end"])
def test_what_was_decided_is_committed_when_its_time_is_over(
    impatient: EmbeddedBroker, topic: str, step: str
) -> None:
    dies(impatient.bootstrap_servers, topic, step)
    assert sorted(committed(impatient.bootstrap_servers, topic)) == flat([BATCH])
    assert "transaction-rolled-forward" in impatient.log()


@pytest.mark.parametrize("step", ["fence", "check"])
def test_what_was_not_decided_is_aborted_when_its_time_is_over(
    impatient: EmbeddedBroker, topic: str, step: str
) -> None:
    dies(impatient.bootstrap_servers, topic, step)
    assert committed(impatient.bootstrap_servers, topic) == []


def test_strays_beside_a_decision_are_aborted_and_later_decisions_are_seen(
    impatient: EmbeddedBroker, topic: str
) -> None:
    servers = impatient.bootstrap_servers
    for batch in range(3):
        with Driver(servers, identity=topic, told=dies_at("decide"), timeout_ms=TIMEOUT_MS) as driver:
            driver.run_tasks(topic, batch, [["stray"]])
            messages = driver.run_tasks(topic, batch, [[f"decided in {batch}"]])
            with pytest.raises(Died):
                driver.commit(messages, batch)
        assert sorted(committed(servers, topic)) == [f"decided in {earlier}" for earlier in range(batch + 1)]


def test_a_driver_that_died_while_it_wrote_its_decision_holds_up_others_no_longer_than_its_time(
    impatient: EmbeddedBroker, topic: str
) -> None:
    servers = impatient.bootstrap_servers
    with Driver(servers, identity=topic) as driver:
        driver.log.make_topic()
    settings = ClientSettings.from_kafka(
        {
            "bootstrap.servers": servers,
            "transactional.id": coordinator_id(sink_name(topic)),
            "transaction.timeout.ms": str(TIMEOUT_MS),
        }
    )
    for partition in range(16):
        with BatchWriter(settings) as writer:
            writer.init()
            writer.begin()
            writer.add(TOPIC, partition, build_batch([(b"nobody", b"x", (), 0)]), 1)
            writer.flush()
    dies(servers, topic, "decide")
    assert sorted(committed(servers, topic)) == flat([BATCH])
