"""Streams over topics that their principal cannot see for a while, and that were not deleted."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import sparklog
from sparklog import Admin, Producer
from sparklog.client.admin.acls import AclFilter, AclRule
from sparklog.errors import BrokerError
from sparklog.local_broker import EmbeddedBroker

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from sparklog.spark.stream_reader import StreamReader
from sparklog.spark.topics import TopicNotVisible
from tests.spark.test_stream_reader import changed, ranges, step, to_the_end

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
NODE: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "node",
    "sasl_password": "n",
}
ALICE = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": "a",
}
NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:node",
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=(
            f'{PLAIN} required username="node" password="n" user_node="n" user_alice="a";'
        ),
    ) as one:
        yield one


@pytest.fixture(scope="module")
def servers(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture(scope="module")
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers, **NODE) as admin:
        yield admin


class Topics:
    """Two topics of three records each: `a` is always visible, `b` while the rule is there."""

    def __init__(self, admin: Admin, servers: str) -> None:
        self.prefix = f"seen-{next(NUMBERS)}"
        self.a, self.b = f"{self.prefix}-a", f"{self.prefix}-b"
        self._admin, self._servers = admin, servers
        admin.create_topics({self.a: 1, self.b: 1})
        self.send(self.a, 3)
        self.send(self.b, 3)
        self.allow(self.a)
        self.allow(self.b)

    def send(self, topic: str, records: int) -> None:
        with Producer(bootstrap_servers=self._servers, **NODE) as producer:
            for _ in range(records):
                producer.send(topic, value=b"x")

    def allow(self, topic: str) -> None:
        self._admin.create_acls([AclRule("topic", topic, "User:alice", "read")])

    def hide(self, topic: str) -> None:
        self._admin.delete_acls([AclFilter("topic", topic, "literal")])


@pytest.fixture
def topics(admin: Admin, servers: str) -> Topics:
    return Topics(admin, servers)


def by_pattern(topics: Topics, **options: str) -> dict[str, str]:
    return {**ALICE, "subscribePattern": f"{topics.prefix}-.*", **options}


def changed_to(reader: StreamReader, start: dict[str, Any], offsets: dict[str, Any]) -> dict[str, Any]:
    """The first answer with these offsets."""
    end = start
    while end["off"] != offsets:
        end = changed(reader, end)
    return end


def first_batch(reader: StreamReader) -> dict[str, Any]:
    return step(reader, reader.initialOffset())


@pytest.mark.parametrize("when_lost", ["true", "warn", "skip"])
def test_a_topic_hidden_while_a_query_runs_is_read_on_from_its_position(
    topics: Topics, make_reader: Any, when_lost: str
) -> None:
    reader = make_reader(**by_pattern(topics, failOnDataLoss=when_lost))
    end = first_batch(reader)
    topics.hide(topics.b)
    topics.send(topics.a, 1)
    topics.send(topics.b, 2)
    with pytest.warns(UserWarning, match=f"topic '{topics.b}' cannot be seen, and was not deleted"):
        hidden = changed_to(reader, end, {topics.a: {"0": 4}, topics.b: {"0": 3}})
    topics.allow(topics.b)
    seen = changed(reader, hidden)
    assert ranges(reader, hidden, seen) == [[(0, 3, 5)]]
    assert "lost" not in seen


@pytest.mark.parametrize("when_lost", ["true", "skip"])
def test_a_query_restarted_while_its_topics_are_hidden_keeps_their_positions(
    topics: Topics, make_reader: Any, when_lost: str
) -> None:
    options = by_pattern(topics, failOnDataLoss=when_lost)
    end = first_batch(make_reader(**options))
    topics.hide(topics.a)
    topics.hide(topics.b)
    with pytest.warns(UserWarning, match="cannot be seen"):
        assert to_the_end(make_reader(**options), end) == []
    restarted = make_reader(**options)
    with pytest.warns(UserWarning, match="cannot be seen"):
        assert step(restarted, end) == end
    topics.send(topics.a, 1)
    topics.allow(topics.a)
    topics.allow(topics.b)
    seen = changed(restarted, end)
    assert ranges(restarted, end, seen) == [[(0, 3, 4)]]


@pytest.mark.parametrize("when_lost", ["true", "skip"])
@pytest.mark.parametrize("option", ["subscribe", "assign"])
def test_a_query_that_names_a_hidden_topic_fails_by_its_name_and_reads_on_after_a_restart(
    topics: Topics, make_reader: Any, option: str, when_lost: str
) -> None:
    named = {
        "subscribe": f"{topics.a},{topics.b}",
        "assign": json.dumps({topics.a: [0], topics.b: [0]}),
    }
    options = {**ALICE, option: named[option], "failOnDataLoss": when_lost}
    running = make_reader(**options)
    end = first_batch(running)
    topics.hide(topics.b)
    topics.send(topics.b, 2)
    with pytest.raises(BrokerError, match=rf"TOPIC_AUTHORIZATION_FAILED \(29\): topic '{topics.b}'"):
        changed(running, end)
    with pytest.raises(BrokerError, match=rf"TOPIC_AUTHORIZATION_FAILED \(29\): topic '{topics.b}'"):
        step(make_reader(**options), end)
    topics.allow(topics.b)
    restarted = make_reader(**options)
    assert ranges(restarted, end, step(restarted, end)) == [[(0, 3, 5)]]


def test_a_replayed_micro_batch_of_a_hidden_topic_fails_and_skips_nothing(
    topics: Topics, make_reader: Any
) -> None:
    options = by_pattern(topics, failOnDataLoss="skip")
    reader = make_reader(**options)
    end = first_batch(reader)
    topics.hide(topics.b)
    restarted = make_reader(**options)
    start = restarted.initialOffset()
    with pytest.raises(TopicNotVisible, match=f"the micro-batch to replay needs topic '{topics.b}'"):
        restarted.partitions(start, end)
    topics.allow(topics.b)
    restarted = make_reader(**options)
    assert sorted(r for task in ranges(restarted, restarted.initialOffset(), end) for r in task) == [
        (0, 0, 3),
        (0, 0, 3),
    ]


def test_a_topic_deleted_while_it_is_hidden_is_dropped_by_its_id(
    topics: Topics, admin: Admin, make_reader: Any
) -> None:
    options = by_pattern(topics, failOnDataLoss="skip")
    end = first_batch(make_reader(**options))
    topics.hide(topics.b)
    admin.delete_topics([topics.b])
    without = changed(make_reader(**options), end)
    assert (without["off"], without["lost"]) == ({topics.a: {"0": 3}}, {topics.b: {"0": 0}})
    admin.create_topics({topics.b: 1})
    topics.allow(topics.b)
    topics.send(topics.b, 1)
    reader = make_reader(**options)
    assert ranges(reader, without, changed(reader, without)) == [[(0, 0, 1)]]


def test_a_topic_left_out_of_the_subscription_keeps_its_position(topics: Topics, make_reader: Any) -> None:
    both = {**ALICE, "subscribe": f"{topics.a},{topics.b}"}
    end = first_batch(make_reader(**both))
    topics.send(topics.a, 1)
    topics.send(topics.b, 1)
    with pytest.warns(UserWarning, match=f"topic '{topics.b}' cannot be seen"):
        one = step(make_reader(**{**both, "subscribe": topics.a}), end)
    assert one["off"] == {topics.a: {"0": 4}, topics.b: {"0": 3}}
    again = make_reader(**both)
    assert ranges(again, one, step(again, one)) == [[(0, 3, 4)]]
