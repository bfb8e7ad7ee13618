"""A consumer whose topic is deleted and created again with a longer log."""

import pytest

from sparklog import Admin, Consumer, Producer, TopicMadeAnew, TopicPartition
from sparklog.local_broker import EmbeddedBroker

T0 = TopicPartition("again", 0)


def fill(servers: str, values: range) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send("again", b"%d" % value, partition=0)


def values_of(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [int(record.value or b"") for record in consumer.poll(1000)]
    return found


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_reads_a_topic_made_anew_from_its_first_record(
    sparklog_broker: EmbeddedBroker, reset: str
) -> None:
    servers = sparklog_broker.bootstrap_servers
    with (
        Admin(bootstrap_servers=servers) as admin,
        Consumer(bootstrap_servers=servers, auto_offset_reset=reset) as consumer,  # type: ignore[arg-type]
    ):
        admin.create_topics({"again": 1})
        fill(servers, range(3))
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert values_of(consumer, 3) == [0, 1, 2]
        admin.delete_topics(["again"])
        admin.create_topics({"again": 1})
        fill(servers, range(100, 110))
        assert values_of(consumer, 10) == list(range(100, 110))
        admin.delete_topics(["again"])


def test_a_consumer_without_a_reset_is_told_that_its_topic_was_made_anew(
    sparklog_broker: EmbeddedBroker,
) -> None:
    servers = sparklog_broker.bootstrap_servers
    with (
        Admin(bootstrap_servers=servers) as admin,
        Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer,
    ):
        admin.create_topics({"again": 1})
        fill(servers, range(3))
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert values_of(consumer, 3) == [0, 1, 2]
        admin.delete_topics(["again"])
        admin.create_topics({"again": 1})
        fill(servers, range(100, 110))
        with pytest.raises(TopicMadeAnew, match="'again' was deleted and made anew"):
            values_of(consumer, 1)
        consumer.seek(T0, 4)
        assert values_of(consumer, 6) == list(range(104, 110))
        admin.delete_topics(["again"])


def test_a_consumer_creates_no_topic(sparklog_broker: EmbeddedBroker) -> None:
    servers = sparklog_broker.bootstrap_servers
    with (
        Admin(bootstrap_servers=servers) as admin,
        Consumer(bootstrap_servers=servers, group_id="misspelt") as consumer,
    ):
        consumer.subscribe(["ordrs"])
        consumer.poll(200)
        assert "ordrs" not in admin.list_topics()
