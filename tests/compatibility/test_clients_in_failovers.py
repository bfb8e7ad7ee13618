"""Clients of three live nodes, of which the coordinator and then the leader of their partition are killed: no
error reaches the caller, no record is lost or twice, and no call takes longer than the failover and the
back-off of the client.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import aiokafka  # type: ignore[import-untyped]
import confluent_kafka
import pytest

import sparklog
from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.client.admin.topics import NewTopic
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.coordinator.placement import partition_for
from tests.daemon.broker_process import wait_until

TOPIC, GROUP, ID = "t", "g", "id"
DATA = TopicPartition(TOPIC, 0)
COORDINATOR_PARTITIONS = 3
OFFSETS = TopicPartition("__consumer_offsets", partition_for(GROUP, COORDINATOR_PARTITIONS))
TRANSACTIONS = TopicPartition("__transaction_state", partition_for(ID, COORDINATOR_PARTITIONS))
STEPS = 100
"""The steps before each kill, and after it."""
FAILOVER_S_MAX = 1.0
OWN_BACK_OFF_S = 1.0
"""`retry.backoff.max.ms` and `reconnect.backoff.max.ms` of our clients."""
FOREIGN_BACK_OFF_S = 2.0
"""librdkafka looks for a coordinator or a leader by a timer of 1 s, which may come too early once."""

Step = Callable[[int | None], list[int]]
"""Writes a number, unless it is None, and returns the numbers that the client has read since the last step,
whose offsets it commits.
"""


@contextmanager
def own(servers: str) -> Iterator[Step]:
    """Our producer, and our consumer in a group."""
    with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer(
            bootstrap_servers=servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        consumer.subscribe([TOPIC])

        def step(number: int | None) -> list[int]:
            if number is not None:
                producer.send(TOPIC, b"%d" % number).result()
            return read_on(consumer)

        yield step


@contextmanager
def own_transactions(servers: str) -> Iterator[Step]:
    """Our transactional producer, which commits each record, and our consumer of committed records."""
    with (
        Producer(bootstrap_servers=servers, transactional_id=ID) as producer,
        Consumer(
            bootstrap_servers=servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
    ):
        producer.init()
        consumer.subscribe([TOPIC])

        def step(number: int | None) -> list[int]:
            if number is not None:
                producer.begin()
                producer.send(TOPIC, b"%d" % number)
                producer.commit()
            return read_on(consumer)

        yield step


def read_on(consumer: Consumer) -> list[int]:
    """Poll, and commit."""
    numbers = [int(record.value or b"") for record in consumer.poll(5)]
    if numbers:
        consumer.commit()
    return numbers


@contextmanager
def librdkafka(servers: str) -> Iterator[Step]:
    """An idempotent producer, and a consumer in a group that commits in the background."""
    common = {"bootstrap.servers": servers, "log_level": 0}
    failed: list[object] = []
    producer = confluent_kafka.Producer({**common, "enable.idempotence": True})
    consumer = confluent_kafka.Consumer(
        {**common, "group.id": GROUP, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 10}
    )
    consumer.subscribe([TOPIC])

    def step(number: int | None) -> list[int]:
        if number is not None:
            producer.produce(
                TOPIC, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            assert producer.flush(30) == 0
        assert not failed
        messages = consumer.consume(100, 0.005)
        assert not [message.error() for message in messages if message.error() is not None]
        return [int(message.value()) for message in messages]

    yield step
    consumer.close()


@contextmanager
def aiokafka_clients(servers: str) -> Iterator[Step]:
    """An idempotent producer, and a consumer in a group that commits in the background."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs each attempt to connect
    loop = asyncio.new_event_loop()

    async def started() -> tuple[aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=10,
        )
        await producer.start()
        await consumer.start()
        return producer, consumer

    producer, consumer = loop.run_until_complete(started())

    async def stepped(number: int | None) -> list[int]:
        if number is not None:
            await producer.send_and_wait(TOPIC, b"%d" % number)
        found = await consumer.getmany(timeout_ms=5)
        return [int(record.value) for records in found.values() for record in records]

    async def stopped() -> None:
        await producer.stop()
        await consumer.stop()

    yield lambda number: loop.run_until_complete(stepped(number))
    loop.run_until_complete(stopped())
    loop.close()


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded(
        nodes=3,
        offsets_topic_num_partitions=COORDINATOR_PARTITIONS,
        transaction_state_log_num_partitions=COORDINATOR_PARTITIONS,
        auto_leader_rebalance_enable="false",  # a killed node that comes back is not to lead meanwhile
    ) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("client", "coordinated", "back_off_s"),
    [
        (own, OFFSETS, OWN_BACK_OFF_S),
        (own_transactions, TRANSACTIONS, OWN_BACK_OFF_S),
        pytest.param(librdkafka, OFFSETS, FOREIGN_BACK_OFF_S, marks=pytest.mark.long),
        pytest.param(aiokafka_clients, OFFSETS, FOREIGN_BACK_OFF_S, marks=pytest.mark.long),
    ],
)
def test_records_are_written_and_read_once_while_the_coordinator_and_then_the_leader_are_killed(
    cluster: EmbeddedBroker,
    client: Callable[[str], AbstractContextManager[Step]],
    coordinated: TopicPartition,
    back_off_s: float,
) -> None:
    servers = cluster.bootstrap_servers
    sent, read, took_s = 0, list[int](), list[float]()
    with Admin(bootstrap_servers=servers) as admin:
        find_coordinators(servers)
        coordinator = leader(admin, coordinated)
        others = [node for node in (1, 2, 3) if node != coordinator]
        admin.create_topics([NewTopic(TOPIC, assignment=[[*others, coordinator]])])
        with client(servers) as step:

            def carry(count: int) -> None:
                nonlocal sent
                for _ in range(count):
                    began_s = time.monotonic()
                    read.extend(step(sent))
                    took_s.append(time.monotonic() - began_s)
                    sent += 1

            carry(1)
            wait_until(lambda: read.extend(step(None)) or bool(read))  # the group is formed
            took_s.clear()
            carry(STEPS)
            for at in (coordinated, DATA):
                victim = leader(admin, at)
                os.kill(cluster.pids[victim - 1], signal.SIGKILL)
                carry(STEPS)
                wait_until(lambda at=at, victim=victim: leader(admin, at) != victim)  # type: ignore[misc]
                carry(STEPS)
            wait_until(lambda: read.extend(step(None)) or len(read) >= sent)
    assert read == list(range(sent))
    longest_s = max(took_s)
    print(f"{client.__name__}: longest step {longest_s:.2f} s")
    assert longest_s <= FAILOVER_S_MAX + back_off_s


def test_topics_are_created_once_while_the_active_controller_is_killed(cluster: EmbeddedBroker) -> None:
    names = [f"topic-{number}" for number in range(40)]
    took_s = []
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        controller = admin.describe_quorum().leader
    # A change whose response is lost is an error by design: the node that is asked is not the one that dies.
    asked = cluster.bootstrap_servers.split(",")[controller % 3]
    with Admin(bootstrap_servers=asked) as admin:
        for name in names:
            if name == names[20]:
                os.kill(cluster.pids[controller - 1], signal.SIGKILL)
            began_s = time.monotonic()
            admin.create_topics({name: 1})
            took_s.append(time.monotonic() - began_s)
        assert sorted(admin.list_topics()) == sorted(names)
    print(f"longest creation {max(took_s):.2f} s")
    assert max(took_s) <= FAILOVER_S_MAX + OWN_BACK_OFF_S


def test_an_administrator_reads_on_while_each_node_is_killed_in_turn(cluster: EmbeddedBroker) -> None:
    find_coordinators(cluster.bootstrap_servers)
    took_s = []
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        for pid in cluster.pids:
            wait_until(lambda: len(isr(admin, OFFSETS)) == 3)
            os.kill(pid, signal.SIGKILL)
            for _ in range(STEPS):
                began_s = time.monotonic()
                admin.list_topics(include_internal=True)
                assert admin.list_group_offsets([GROUP]) == {GROUP: {}}
                took_s.append(time.monotonic() - began_s)
    print(f"longest read {max(took_s):.2f} s")
    assert max(took_s) <= FAILOVER_S_MAX + OWN_BACK_OFF_S


def find_coordinators(servers: str) -> None:
    """Have the internal topics created."""
    with Producer(bootstrap_servers=servers, transactional_id=ID) as producer:
        producer.init()
    with Admin(bootstrap_servers=servers) as admin:
        admin.list_group_offsets([GROUP])


def leader(admin: Admin, at: TopicPartition) -> int:
    """The leader of a partition, or -1."""
    return admin.describe_topics([at.topic])[at.topic].partitions[at.partition].leader


def isr(admin: Admin, at: TopicPartition) -> tuple[int, ...]:
    """The in-sync replicas of a partition."""
    return admin.describe_topics([at.topic])[at.topic].partitions[at.partition].isr
