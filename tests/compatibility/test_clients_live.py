"""Unmodified clients: the records of each are read by all, at their default settings."""

import asyncio
import time

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.compatibility.clients import CONSUMERS, PATIENCE_S, PRODUCERS, Sent, produce_with_confluent
from tests.compatibility.conftest import LiveBroker

pytestmark = pytest.mark.compat

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = time.time_ns() // 1_000_000 - 60_000
"""Recent, so that no retention deletes the records during a test."""


def assorted_records() -> list[Sent]:
    """Null, empty, short and long keys and values, with and without headers; enough to fill several
    batches.
    """
    odd = [
        Sent(None, b"value only", [], START_MS),
        Sent(b"tombstone", None, [], START_MS + 1),
        Sent(b"", b"", [("empty", b"")], START_MS + 2),
        Sent(
            b"k" * 300, b"v" * 70_000, [("a", b"1"), ("a", b"2"), ("name", "Müller".encode())], START_MS + 3
        ),
    ]
    even = [
        Sent(
            b"%d" % number, b'{"flight": %d, "delay": %d}' % (number, number % 60), [], START_MS + 4 + number
        )
        for number in range(1_000)
    ]
    return odd + even


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_what_one_client_writes_every_client_reads(live: LiveBroker, producer: str, codec: str) -> None:
    topic = live.create(f"{producer}-{codec}")
    records = assorted_records()

    offsets = PRODUCERS[producer](live.bootstrap_servers, topic, codec, records)

    assert offsets == list(range(len(records)))
    for consumer, consume in CONSUMERS.items():
        assert consume(live.bootstrap_servers, topic, len(records)) == records, f"read by {consumer}"


def test_librdkafka_lists_all_topics_though_its_request_ends_in_three_bytes_too_many(
    live: LiveBroker,
) -> None:
    # librdkafka 2.16 writes the null array of Metadata v13 in its old form: Kafka reads all topics and passes
    # over the three bytes left.
    topic = live.create("listed")
    cluster = AdminClient({"bootstrap.servers": live.bootstrap_servers}).list_topics(timeout=PATIENCE_S)
    assert topic in cluster.topics
    assert len(cluster.brokers) == 1


def test_a_topic_is_created_when_a_producer_first_asks_for_it(live: LiveBroker) -> None:
    topic = live.create("sibling") + "-unborn"
    offsets = produce_with_confluent(
        live.bootstrap_servers, topic, "none", [Sent(None, b"first", [], START_MS)]
    )
    assert offsets == [0]


def test_offsets_are_found_by_time_and_at_both_ends(live: LiveBroker) -> None:
    topic = live.create("by-time")
    records = [Sent(None, b"%d" % number, [], START_MS + 1000 * number) for number in range(10)]
    produce_with_confluent(live.bootstrap_servers, topic, "none", records)

    admin = AdminClient({"bootstrap.servers": live.bootstrap_servers})
    partition = confluent_kafka.TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        return int(admin.list_offsets({partition: spec})[partition].result(timeout=PATIENCE_S).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.for_timestamp(START_MS + 3000)) == 3
    assert offset(OffsetSpec.for_timestamp(START_MS + 3001)) == 4
    assert offset(OffsetSpec.for_timestamp(START_MS + 9001)) == -1
    assert offset(OffsetSpec.max_timestamp()) == 9


def test_a_consumer_that_waits_is_woken_by_the_next_record(live: LiveBroker) -> None:
    topic = live.create("waiting")

    async def run() -> list[bytes | None]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=live.bootstrap_servers, fetch_max_wait_ms=20_000, request_timeout_ms=40_000
        )
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=live.bootstrap_servers)
        await consumer.start()
        await producer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_end(partition)
            received = []
            for number in range(20):
                waiting = asyncio.create_task(consumer.getone())
                await producer.send_and_wait(topic, b"%d" % number, partition=0)
                # Far less than the fetch may wait: only a wake-up at the append can be in time.
                received.append((await asyncio.wait_for(waiting, 10)).value)
            return received
        finally:
            await producer.stop()
            await consumer.stop()

    assert asyncio.run(run()) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize(
    "rounds", [500, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_reading_the_latest_offset_after_an_acknowledged_write_never_misses_it(
    live: LiveBroker, rounds: int
) -> None:
    topic = live.create("read-latest")

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=live.bootstrap_servers)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=live.bootstrap_servers)
        await producer.start()
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            for number in range(rounds):
                written = await producer.send_and_wait(topic, b"%d" % number, partition=0)
                latest = (await consumer.end_offsets([partition]))[partition]
                assert (written.offset, latest) == (number, number + 1)
                read = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
                assert (read.offset, read.value) == (number, b"%d" % number)
        finally:
            await producer.stop()
            await consumer.stop()

    asyncio.run(run())
