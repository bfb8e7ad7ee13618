"""Clients that copy one topic into another exactly once: the copies and the offsets of the group are
committed in one transaction.
"""

from collections.abc import Iterator
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.live.load import COPIED_BY_CLASSIC_GROUP, COPIED_BY_MODERN_GROUP, PLAIN, QUIET, Load

TRANSACTION_S = 60
RECORDS_MAX = 500


def copy_in_classic_group(load: Load) -> None:
    _copy(load, "classic", COPIED_BY_CLASSIC_GROUP)


def copy_in_modern_group(load: Load) -> None:
    _copy(load, "consumer", COPIED_BY_MODERN_GROUP)


def _copy(load: Load, protocol: str, target: str) -> None:
    """After an error the outcome is unknown: the next incarnation resumes from what is committed."""
    numbers = load.numbers()
    for _ in numbers:
        with suppress(KafkaException):
            _copy_until_error(load, numbers, protocol, target)


def _copy_until_error(load: Load, numbers: Iterator[int], protocol: str, target: str) -> None:
    producer = Producer({"bootstrap.servers": load.servers, "transactional.id": target, **QUIET})
    producer.init_transactions(TRANSACTION_S)
    settings: dict[str, object] = {
        "bootstrap.servers": load.servers,
        "group.id": target,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        **QUIET,
    }
    consumer = Consumer(settings)
    try:
        # With a callback librdkafka changes the assignment only within `consume`, never between a record and
        # the commit of its offset.
        consumer.subscribe([PLAIN], on_assign=lambda *_: None)
        for _ in numbers:
            records = [one for one in consumer.consume(RECORDS_MAX, timeout=0.1) if one.error() is None]
            if records:
                _commit_copies(producer, consumer, records, target)
    finally:
        consumer.close()


def _commit_copies(producer: Producer, consumer: Consumer, records: list[Message], target: str) -> None:
    producer.begin_transaction()
    for record in records:
        producer.produce(target, record.value(), partition=record.partition())
    reached = {record.partition(): record.offset() + 1 for record in records}
    producer.send_offsets_to_transaction(
        [TopicPartition(PLAIN, partition, offset) for partition, offset in reached.items()],
        consumer.consumer_group_metadata(),
        TRANSACTION_S,
    )
    producer.commit_transaction(TRANSACTION_S)
