"""Producers and consumers of three kinds that note what they are told: each function runs in a thread until
the load is over.
"""

import asyncio
import logging
from collections.abc import Iterator

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaException, Producer

import sparklog
from tests.live.history import At, Told
from tests.live.load import PARTITIONS, PLAIN, QUIET, WHOLE, Load, told

DELIVERY_S = 120


def produce_by_librdkafka(load: Load) -> None:
    producer = Producer(
        {
            "bootstrap.servers": load.servers,
            "enable.idempotence": True,
            "message.timeout.ms": DELIVERY_S * 1000,
            **QUIET,
        }
    )

    def delivered(error: object, message: object) -> None:
        if error is not None:
            load.history.failures.append(f"produce_by_librdkafka: {error}")
        else:
            load.history.acknowledged.append(told(message))

    for number in load.numbers():
        producer.produce(PLAIN, f"rd:{number}", partition=number % PARTITIONS, on_delivery=delivered)
        producer.poll(0)
    producer.flush(DELIVERY_S)


def produce_by_sparklog(load: Load) -> None:
    acknowledged = load.history.acknowledged
    with sparklog.Producer(bootstrap_servers=load.servers, delivery_timeout_ms=DELIVERY_S * 1000) as producer:
        sent = []
        for number in load.numbers():
            value, partition = f"own:{number}", number % PARTITIONS
            sent.append((value, partition, producer.send(PLAIN, value=value.encode(), partition=partition)))
        producer.flush()
    for value, partition, receipt in sent:
        acknowledged.append(Told(At(PLAIN, partition), receipt.result().offset, value))


def produce_by_aiokafka(load: Load) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs each attempt to connect
    asyncio.run(_produce_by_aiokafka(load))


async def _produce_by_aiokafka(load: Load) -> None:
    """Goes on with another writer after an error, whose record may or may not be there."""
    numbers, incarnation = load.numbers(), 0
    for number in numbers:
        incarnation += 1
        producer = AIOKafkaProducer(
            bootstrap_servers=load.servers, enable_idempotence=True, request_timeout_ms=10_000
        )
        try:
            await producer.start()
            await _send_by_aiokafka(load, producer, number, numbers, f"aio{incarnation}")
        except KafkaError:
            continue
        finally:
            await producer.stop()


async def _send_by_aiokafka(
    load: Load, producer: AIOKafkaProducer, number: int, numbers: Iterator[int], writer: str
) -> None:
    while True:
        value, partition = f"{writer}:{number}", number % PARTITIONS
        answer = await producer.send_and_wait(PLAIN, value.encode(), partition=partition)
        load.history.acknowledged.append(Told(At(PLAIN, partition), answer.offset, value))
        if (following := next(numbers, None)) is None:
            return
        number = following


def transact(load: Load) -> None:
    """Transactions over all partitions, every third of which is aborted."""
    producer: Producer | None = None
    for number in load.numbers():
        values = frozenset(f"tx{partition}:{number}" for partition in range(PARTITIONS))
        try:
            if producer is None:
                producer = Producer({"bootstrap.servers": load.servers, "transactional.id": "live", **QUIET})
                producer.init_transactions(60)
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(WHOLE, f"tx{partition}:{number}", partition=partition)
            if number % 3:
                producer.commit_transaction(60)
                load.history.committed.append(values)
            else:
                producer.flush(60)
                producer.abort_transaction(60)
                load.history.aborted.append(values)
        except KafkaException:  # the outcome is unknown: the next incarnation resolves it
            producer = None


def consume_in_classic_group(load: Load) -> None:
    _consume_by_librdkafka(load, "classic")


def consume_in_modern_group(load: Load) -> None:
    _consume_by_librdkafka(load, "consumer")


def _consume_by_librdkafka(load: Load, protocol: str) -> None:
    group = f"group-{protocol}"
    settings: dict[str, object] = {
        "bootstrap.servers": load.servers,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        **QUIET,
    }
    consumer = Consumer(settings)
    consumer.subscribe([PLAIN, WHOLE])
    for number in load.numbers():
        for message in consumer.consume(500, timeout=0.1):
            if message.error() is None:
                load.history.seen.append(told(message))
        if number % 10 == 0:
            _commit(load, consumer, group)
    consumer.close()


def _commit(load: Load, consumer: Consumer, group: str) -> None:
    """Commit the positions, and note what the coordinator then gives out."""
    try:
        assigned = consumer.assignment()
        if not assigned or not any(one.offset >= 0 for one in consumer.position(assigned)):
            return
        consumer.commit(asynchronous=False)
        for one in consumer.committed(assigned, timeout=20):
            if one.offset >= 0:
                load.history.commits.append((group, At(one.topic, one.partition), one.offset))
    except KafkaException:
        return  # a fault is under way; the next commit tells


def consume_by_sparklog(load: Load) -> None:
    with sparklog.Consumer(
        bootstrap_servers=load.servers,
        group_id="group-own",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe([PLAIN, WHOLE])
        for _ in load.numbers():
            load.history.seen.extend(
                Told(At(record.topic, record.partition), record.offset, bytes(record.value).decode())
                for record in consumer.poll(timeout_ms=100)
            )
