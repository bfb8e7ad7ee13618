"""Our consumer in live groups: with members of other libraries beside it, through deaths, restarts and
commits.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import kafka
import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.failures import CommitFailed, FencedInstance, RebalanceInProgress
from sparklog.client.producer.producer import Producer
from sparklog.errors import SparklogError
from sparklog.model import TopicPartition
from tests.compatibility.conftest import LiveBroker

pytestmark = pytest.mark.compat

PATIENCE_S = 30.0
PARTITIONS = 6
COUNT = 120


def fill(live: LiveBroker, topic: str, count: int = COUNT) -> None:
    with Producer(bootstrap_servers=live.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


class Ours:
    """Our consumer, polled by a thread of its own until closed; its partitions can be read from
    outside.
    """

    def __init__(self, live: LiveBroker, topic: str, group: str, **given: Any) -> None:
        chosen = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 100} | given
        if chosen.get("group_protocol") != "consumer":
            chosen |= {"heartbeat_interval_ms": 300, "session_timeout_ms": 6000}
        self.held: tuple[int, ...] = ()
        self.values: list[bytes | None] = []
        self.told: list[str] = []
        self.error: SparklogError | None = None
        self._is_closing = False
        self._consumer = Consumer(bootstrap_servers=live.bootstrap_servers, group_id=group, **chosen)  # type: ignore[arg-type]
        self._consumer.subscribe(
            [topic],
            on_assign=lambda _: self.told.append("assigned"),
            on_revoke=lambda _: self.told.append("revoked"),
            on_lost=lambda _: self.told.append("lost"),
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self.values += [record.value for record in self._consumer.poll(50)]
                self.held = tuple(sorted(partition for _, partition in self._consumer.assignment()))
        except SparklogError as error:
            self.error = error
        finally:
            self._consumer.close()
            self.held = ()

    def close(self) -> None:
        self._is_closing = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


class Confluent:
    """The same with librdkafka."""

    def __init__(self, live: LiveBroker, topic: str, group: str, **given: Any) -> None:
        chosen = {
            "bootstrap.servers": live.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
        } | given
        if chosen.get("group.protocol") != "consumer":
            chosen |= {"heartbeat.interval.ms": 300, "session.timeout.ms": 6000}
        self.held: tuple[int, ...] = ()
        self.values: list[bytes | None] = []
        self._is_closing = False
        self._consumer = confluent_kafka.Consumer(chosen)
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closing:
            self.values += [
                message.value() for message in self._consumer.consume(50, 0.05) if message.error() is None
            ]
            self.held = tuple(sorted(one.partition for one in self._consumer.assignment()))
        self._consumer.close()
        self.held = ()

    def close(self) -> None:
        self._is_closing = True
        self._thread.join(PATIENCE_S)


class KafkaPython:
    """The same with kafka-python."""

    def __init__(self, live: LiveBroker, topic: str, group: str, **given: Any) -> None:
        self.held: tuple[int, ...] = ()
        self.values: list[bytes | None] = []
        self._is_closing = False
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=live.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
            session_timeout_ms=6000,
            **given,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closing:
            for records in self._consumer.poll(50).values():
                self.values += [record.value for record in records]
            self.held = tuple(sorted(one.partition for one in self._consumer.assignment()))
        self._consumer.close()
        self.held = ()

    def close(self) -> None:
        self._is_closing = True
        self._thread.join(PATIENCE_S)


@contextmanager
def members(*made: Any) -> Iterator[tuple[Any, ...]]:
    try:
        yield made
    finally:
        for member in made:
            member.close()


def wait_until(is_true: Callable[[], bool], *made: Any) -> None:
    """Wait; what these members hold is said where it does not come true."""
    deadline = time.monotonic() + PATIENCE_S
    waiting = threading.Event()
    while not is_true():
        assert time.monotonic() < deadline, describe(*made)
        waiting.wait(0.02)


def shared_by(*made: Any) -> bool:
    """Whether these members hold everything, none twice, and as evenly as can be."""
    held = sorted(partition for member in made for partition in member.held)
    sizes = [len(member.held) for member in made]
    return held == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1


def describe(*made: Any) -> str:
    return str([member.held for member in made])


STRATEGIES = {
    "range": (
        "range",
        {"partition.assignment.strategy": "range"},
        kafka.coordinator.assignors.range.RangePartitionAssignor,
    ),
    "roundrobin": (
        "roundrobin",
        {"partition.assignment.strategy": "roundrobin"},
        kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
    ),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_three_libraries_share_one_eager_group(live: LiveBroker, strategy: str) -> None:
    topic = live.create("own-eager", partitions=PARTITIONS)
    name, confluent, python = STRATEGIES[strategy]
    ours = Ours(live, topic, topic, partition_assignment_strategy=name)
    with members(ours):
        wait_until(lambda: shared_by(ours))
        rdkafka = Confluent(live, topic, topic, **confluent)
        with members(rdkafka):
            wait_until(lambda: shared_by(ours, rdkafka), ours, rdkafka)
            other = KafkaPython(live, topic, topic, partition_assignment_strategy=[python])
            with members(other):
                wait_until(lambda: shared_by(ours, rdkafka, other), ours, rdkafka, other)
            wait_until(lambda: shared_by(ours, rdkafka), ours, rdkafka)
        wait_until(lambda: shared_by(ours), ours)
    assert "lost" not in ours.told
    assert ours.error is None


@pytest.mark.parametrize("leader", ["ours", "confluent"])
def test_cooperative_members_of_three_libraries_share_one_group(live: LiveBroker, leader: str) -> None:
    topic = live.create("own-cooperative", partitions=PARTITIONS)

    def make(library: str) -> Any:
        if library == "ours":
            return Ours(live, topic, topic, partition_assignment_strategy="cooperative-sticky")
        return Confluent(live, topic, topic, **{"partition.assignment.strategy": "cooperative-sticky"})

    first = make(leader)
    with members(first):
        wait_until(lambda: shared_by(first))
        second = make("confluent" if leader == "ours" else "ours")
        with members(second):
            wait_until(lambda: shared_by(first, second), first, second)
            third = KafkaPython(live, topic, topic, partition_assignment_strategy=[CooperativeStickyAssignor])
            with members(third):
                wait_until(lambda: shared_by(first, second, third), first, second, third)
            wait_until(lambda: shared_by(first, second), first, second)
        wait_until(lambda: shared_by(first), first)


def test_both_libraries_share_a_group_of_the_new_protocol(live: LiveBroker) -> None:
    topic = live.create("own-modern", partitions=PARTITIONS)
    fill(live, topic)
    ours = Ours(live, topic, topic, group_protocol="consumer")
    with members(ours):
        wait_until(lambda: shared_by(ours))
        rdkafka = Confluent(live, topic, topic, **{"group.protocol": "consumer"})
        with members(rdkafka):
            wait_until(lambda: shared_by(ours, rdkafka), ours, rdkafka)
            wait_until(lambda: len({*ours.values, *rdkafka.values}) == COUNT)
        wait_until(lambda: shared_by(ours), ours)
    assert ours.error is None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_reading_goes_on_where_the_group_has_committed(live: LiveBroker, protocol: str) -> None:
    topic = live.create("own-resume", partitions=PARTITIONS)
    fill(live, topic)
    given = {
        "bootstrap_servers": live.bootstrap_servers,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "group_protocol": protocol,
    }
    read: list[bytes | None] = []
    with Consumer(**given, max_poll_records=50) as first:  # type: ignore[arg-type]
        first.subscribe([topic])
        while len(read) < COUNT // 2:
            read += [record.value for record in first.poll(1000, COUNT // 2 - len(read))]
    with Consumer(**given, enable_auto_commit=False) as second:  # type: ignore[arg-type]
        second.subscribe([topic])
        while len(read) < COUNT:
            read += [record.value for record in second.poll(1000)]
        second.commit()
        told = second.committed(second.assignment())
        assert sum(found.offset for found in told.values() if found is not None) == COUNT
        assert second.group_metadata().generation_id > 0
    assert sorted(read) == sorted(b"%d" % number for number in range(COUNT))


def test_commits_of_ours_are_those_that_others_resume_from(live: LiveBroker) -> None:
    topic = live.create("own-commits", partitions=1)
    with Producer(bootstrap_servers=live.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    partition = TopicPartition(topic, 0)
    answers: list[object] = []
    with Consumer(
        bootstrap_servers=live.bootstrap_servers, group_id=topic, enable_auto_commit=False
    ) as consumer:
        consumer.assign([partition])
        consumer.commit({partition: 4})
        consumer.commit_async(
            {partition: 7}, lambda offsets, error: answers.append((offsets[partition].offset, error))
        )
        while not answers:
            consumer.poll(10)
        assert answers == [(7, None)]
        assert consumer.committed([partition, TopicPartition(topic, 9)]) == {
            partition: (7, "", -1),
            TopicPartition(topic, 9): None,
        }
    other = Confluent(live, topic, topic)
    with members(other):
        wait_until(lambda: other.values == [b"7", b"8", b"9"])


def _read_until_killed(bootstrap_servers: str, topic: str, protocol: str, told: Any) -> None:
    given = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300} if protocol == "classic" else {}
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=topic, group_protocol=protocol, **given
    ) as consumer:  # type: ignore[arg-type]
        consumer.subscribe([topic], on_assign=lambda _: told.set())
        while True:
            consumer.poll(100)


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
def test_the_partitions_of_a_killed_process_go_to_the_others(live: LiveBroker, protocol: str) -> None:
    topic = live.create("own-killed", partitions=PARTITIONS)
    spawning = multiprocessing.get_context("spawn")
    told = spawning.Event()
    victim = spawning.Process(
        target=_read_until_killed, args=(live.bootstrap_servers, topic, protocol, told), daemon=True
    )
    victim.start()
    assert told.wait(PATIENCE_S)
    ours = Ours(live, topic, topic, group_protocol=protocol)
    with members(ours):
        wait_until(lambda: len(ours.held) == PARTITIONS // 2, ours)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not shared_by(ours):
            threading.Event().wait(0.1)
        assert shared_by(ours), describe(ours)
    victim.join(PATIENCE_S)


def test_a_static_member_comes_back_unnoticed_and_its_double_ends_it(live: LiveBroker) -> None:
    topic = live.create("own-static", partitions=PARTITIONS)
    other = Ours(live, topic, topic, group_instance_id="other")
    with members(other):
        wait_until(lambda: shared_by(other))
        ours = Ours(live, topic, topic, group_instance_id="ours")
        with members(ours):
            wait_until(lambda: shared_by(ours, other), ours, other)
        told = list(other.told)
        again = Ours(live, topic, topic, group_instance_id="ours")
        with members(again):
            wait_until(lambda: shared_by(again, other), again, other)
            assert other.told == told
            double = Ours(live, topic, topic, group_instance_id="ours")
            with members(double):
                wait_until(lambda: again.error is not None)
                assert isinstance(again.error, FencedInstance)


def test_who_does_not_poll_is_out_and_its_commit_says_why(live: LiveBroker) -> None:
    topic = live.create("own-silent", partitions=PARTITIONS)
    fill(live, topic)
    given = {"bootstrap_servers": live.bootstrap_servers, "group_id": topic, "auto_offset_reset": "earliest"}
    lost: list[object] = []
    with Consumer(
        **given,  # type: ignore[arg-type]
        enable_auto_commit=False,
        max_poll_interval_ms=500,
        heartbeat_interval_ms=100,
    ) as slow:
        slow.subscribe([topic], on_lost=lost.append)
        while not slow.poll(100, 1):
            pass
        other = Ours(live, topic, topic)
        with members(other):
            wait_until(lambda: shared_by(other), other)
            with pytest.raises(CommitFailed):
                slow.commit()
        slow.poll(0)
        assert len(lost) == 1


def test_patterns_find_topics_in_both_protocols(live: LiveBroker) -> None:
    stem = live.create("own-pattern", partitions=1)
    topics = [live.create(f"{stem}-x", partitions=1) for _ in range(2)]
    for protocol in ("classic", "consumer"):
        with Consumer(
            bootstrap_servers=live.bootstrap_servers,
            group_id=f"{stem}-{protocol}",
            group_protocol=protocol,  # type: ignore[arg-type]
        ) as consumer:
            consumer.subscribe(pattern=f"{stem}-x.*")
            deadline = time.monotonic() + PATIENCE_S
            while len(consumer.assignment()) < len(topics):
                assert time.monotonic() < deadline
                consumer.poll(50)
            assert sorted(partition.topic for partition in consumer.assignment()) == sorted(topics)


def test_a_rebalance_is_waited_out_before_committing(live: LiveBroker) -> None:
    topic = live.create("own-early", partitions=PARTITIONS)
    with Consumer(bootstrap_servers=live.bootstrap_servers, group_id=topic) as consumer:
        consumer.subscribe([topic])
        consumer.poll(0)
        try:
            consumer.commit({TopicPartition(topic, 0): 1})
        except RebalanceInProgress:
            while not consumer.assignment():
                consumer.poll(100)
            consumer.commit({TopicPartition(topic, 0): 1})
        told = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        assert told is not None
        assert told.offset == 1
