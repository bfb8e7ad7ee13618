"""The Fetch that stands: news is told at once, the rest is silence."""

import threading
from collections.abc import Iterator

import pytest

from sparklog import Admin, Producer
from sparklog.client.clock import now_us
from sparklog.client.consumer.standing_fetch import StandingFetch
from sparklog.client.settings import ClientSettings
from sparklog.local_broker import EmbeddedBroker as Broker
from sparklog.model import Micros, TopicPartition

LONG_US = 20_000_000
"""Longer than anything here takes: whoever returns after it was not woken."""


def soon() -> Micros:
    return Micros(now_us() + 30_000)


def late() -> Micros:
    return Micros(now_us() + LONG_US)


@pytest.fixture
def admin(sparklog_broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=sparklog_broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def standing(sparklog_broker: Broker) -> Iterator[StandingFetch]:
    settings = ClientSettings.from_kafka({"bootstrap.servers": sparklog_broker.bootstrap_servers})
    standing = StandingFetch(settings)
    yield standing
    standing.close()


def send(broker: Broker, topic: str, partition: int = 0) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, value=b"v", partition=partition)


def at(topic: str, *ends: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): end for partition, end in enumerate(ends)}


def test_nothing_watched_is_no_news(standing: StandingFetch) -> None:
    assert not standing.wait(late())


def test_what_is_there_already_is_news_at_once_and_what_was_read_is_none(
    sparklog_broker: Broker, admin: Admin, standing: StandingFetch
) -> None:
    admin.create_topics({"there": 2})
    send(sparklog_broker, "there", partition=1)
    standing.watch(at("there", 0, 0))
    assert standing.wait(late())
    standing.watch(at("there", 0, 1))
    assert not standing.wait(soon())
    assert not standing.wait(soon())


def test_a_record_wakes_who_waits(sparklog_broker: Broker, admin: Admin, standing: StandingFetch) -> None:
    admin.create_topics({"wakes": 2})
    for round_ in range(3):
        standing.watch(at("wakes", 0, round_))
        assert not standing.wait(soon())
        sender = threading.Thread(target=send, args=(sparklog_broker, "wakes", 1))
        sender.start()
        began = now_us()
        assert standing.wait(late())
        assert now_us() - began < LONG_US
        sender.join()


def test_news_that_nobody_acts_on_is_told_once(
    sparklog_broker: Broker, admin: Admin, standing: StandingFetch
) -> None:
    admin.create_topics({"once": 1})
    send(sparklog_broker, "once")
    standing.watch(at("once", 0))
    assert standing.wait(late())
    assert not standing.wait(soon())


def test_partitions_may_come_to_what_is_watched(
    sparklog_broker: Broker, admin: Admin, standing: StandingFetch
) -> None:
    admin.create_topics({"more": 1})
    standing.watch(at("more", 0))
    assert not standing.wait(soon())
    admin.create_partitions({"more": 2})
    send(sparklog_broker, "more", partition=1)
    standing.watch(at("more", 0, 0))
    assert standing.wait(late())


def test_a_topic_that_is_deleted_is_news(admin: Admin, standing: StandingFetch) -> None:
    admin.create_topics({"gone": 1})
    standing.watch(at("gone", 0))
    assert not standing.wait(soon())
    admin.delete_topics(["gone"])
    assert standing.wait(late())


def test_a_position_beyond_the_log_is_news(admin: Admin, standing: StandingFetch) -> None:
    admin.create_topics({"beyond": 1})
    standing.watch(at("beyond", 5))
    assert standing.wait(late())


def test_brokers_that_cannot_be_reached_are_no_news() -> None:
    standing = StandingFetch(ClientSettings.from_kafka({"bootstrap.servers": "127.0.0.1:1"}))
    standing.watch(at("t", 0))
    assert not standing.wait(soon())
    standing.close()
