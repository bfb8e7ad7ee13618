"""`sparklog transactions resolve`: open transactions of a sink whose driver never returns."""

import pytest

pytest.importorskip("pyspark.sql", reason="needs pyspark")

from sparklog.client.exactly_once.decisions import sink_name
from sparklog.local_broker import EmbeddedBroker
from tests.cli.conftest import Tell
from tests.spark.sinks import Died, Driver, committed, dies_at


@pytest.fixture
def made(tell: Tell, topic: str) -> str:
    assert tell("topics", "create", topic).code == 0
    return topic


def dies(servers: str, topic: str, step: str) -> None:
    with Driver(servers, identity=topic, told=dies_at(step)) as driver:
        stray = driver.run_tasks(topic, 0, [["stray"]])
        messages = driver.run_tasks(topic, 0, [["a"], ["b"]])
        assert stray
        with pytest.raises(Died):
            driver.commit(messages, 0)


def test_what_was_decided_is_committed_and_the_rest_aborted(
    tell: Tell, shared_broker: EmbeddedBroker, made: str
) -> None:
    servers = shared_broker.bootstrap_servers
    dies(servers, made, "decide")
    sink = sink_name(made)
    assert [sink, made, "3", "2"] in tell("transactions", "resolve").rows
    assert tell("transactions", "resolve", "--sink", made).rows == [[sink, made, "2", "1"]]
    assert sorted(committed(servers, made)) == ["a", "b"]
    assert tell("transactions", "resolve", "--sink", sink, "--json").json == [
        {"sink": sink, "identity": made, "committed": 0, "aborted": 0}
    ]


def test_what_was_not_decided_is_aborted(tell: Tell, shared_broker: EmbeddedBroker, made: str) -> None:
    servers = shared_broker.bootstrap_servers
    dies(servers, made, "check")
    sink = sink_name(made)
    assert tell("transactions", "resolve", "--sink", sink).rows == [[sink, sink, "0", "3"]]
    assert committed(servers, made) == []


def test_a_sink_that_nobody_knows_is_an_error(tell: Tell) -> None:
    told = tell("transactions", "resolve", "--sink", "nobody")
    assert told.code == 1
    assert "there is no sink 'nobody'" in told.err
