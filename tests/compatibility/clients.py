"""Three foreign client libraries behind one pair of functions: produce records with a codec, consume a
partition from the beginning.

Settings are each library's defaults but for the codec, and no consumer belongs to a group.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import aiokafka
import confluent_kafka
import kafka

PATIENCE_S = 30.0


class Sent(NamedTuple):
    """A record as all three libraries can carry it."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp_ms: int


Produce = Callable[[str, str, str, Sequence[Sent]], list[int]]
"""(bootstrap servers, topic, codec, records) -> the offsets acknowledged for partition 0, in order."""

Consume = Callable[[str, str, int], list[Sent]]
"""(bootstrap servers, topic, count) -> the first `count` records of partition 0."""


def produce_with_confluent(
    bootstrap_servers: str, topic: str, codec: str, records: Sequence[Sent]
) -> list[int]:
    return _produce_with_librdkafka(
        {"bootstrap.servers": bootstrap_servers, "compression.type": codec}, topic, records
    )


def produce_with_confluent_idempotent(
    bootstrap_servers: str, topic: str, codec: str, records: Sequence[Sent]
) -> list[int]:
    settings = {"bootstrap.servers": bootstrap_servers, "compression.type": codec, "enable.idempotence": True}
    return _produce_with_librdkafka(settings, topic, records)


def _produce_with_librdkafka(settings: dict[str, object], topic: str, records: Sequence[Sent]) -> list[int]:
    producer = confluent_kafka.Producer(settings)
    offsets: list[int] = []
    failures: list[object] = []

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            failures.append(error)

    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp=record.timestamp_ms,
            partition=0,
            on_delivery=delivered,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []
    return offsets


def consume_with_confluent(bootstrap_servers: str, topic: str, count: int) -> list[Sent]:
    # A group id is mandatory in this library, though nothing is ever committed under it.
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        messages = consumer.consume(count, timeout=PATIENCE_S)
    finally:
        consumer.close()
    assert [message.error() for message in messages if message.error()] == []
    return [Sent(m.key(), m.value(), m.headers() or [], m.timestamp()[1]) for m in messages]


def produce_with_aiokafka(
    bootstrap_servers: str, topic: str, codec: str, records: Sequence[Sent]
) -> list[int]:
    async def run() -> list[int]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, compression_type=None if codec == "none" else codec
        )
        await producer.start()
        try:
            pending = [
                await producer.send(
                    topic,
                    key=r.key,
                    value=r.value,
                    headers=r.headers,
                    timestamp_ms=r.timestamp_ms,
                    partition=0,
                )
                for r in records
            ]
            return [
                metadata.offset for metadata in await asyncio.wait_for(asyncio.gather(*pending), PATIENCE_S)
            ]
        finally:
            await producer.stop()

    return asyncio.run(run())


def consume_with_aiokafka(bootstrap_servers: str, topic: str, count: int) -> list[Sent]:
    async def run() -> list[Sent]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [
                Sent(r.key, r.value, list(r.headers), r.timestamp)
                for r in [await consumer.getone() for _ in range(count)]
            ]
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def produce_with_kafka_python(
    bootstrap_servers: str, topic: str, codec: str, records: Sequence[Sent]
) -> list[int]:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap_servers, compression_type=None if codec == "none" else codec
    )
    try:
        pending = [
            producer.send(
                topic, key=r.key, value=r.value, headers=r.headers, timestamp_ms=r.timestamp_ms, partition=0
            )
            for r in records
        ]
        return [future.get(timeout=PATIENCE_S).offset for future in pending]
    finally:
        producer.close()


def consume_with_kafka_python(bootstrap_servers: str, topic: str, count: int) -> list[Sent]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap_servers, consumer_timeout_ms=int(PATIENCE_S * 1000)
    )
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return [
            Sent(r.key, r.value, list(r.headers), r.timestamp)
            for _, r in zip(range(count), consumer, strict=False)
        ]
    finally:
        consumer.close()


PRODUCERS: dict[str, Produce] = {
    "confluent-kafka": produce_with_confluent,
    "confluent-kafka-idempotent": produce_with_confluent_idempotent,
    "aiokafka": produce_with_aiokafka,
    "kafka-python": produce_with_kafka_python,
}
CONSUMERS: dict[str, Consume] = {
    "confluent-kafka": consume_with_confluent,
    "aiokafka": consume_with_aiokafka,
    "kafka-python": consume_with_kafka_python,
}
