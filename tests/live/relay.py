"""Clients of sparklog that copy one topic into another exactly once: the copies and the offsets of the group
are committed in one transaction. (librdkafka 2.16 cannot: by its issues 5456 and 5511, the call that adds the
offsets does not return once the coordinator has left the metadata.)
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

import sparklog
from sparklog.client.consumer.records import ConsumerRecord
from sparklog.errors import SparklogError
from tests.live.load import COPIED_BY_CLASSIC_GROUP, COPIED_BY_MODERN_GROUP, PLAIN, Load


def copy_in_classic_group(load: Load) -> None:
    _copy(load, "classic", COPIED_BY_CLASSIC_GROUP)


def copy_in_modern_group(load: Load) -> None:
    _copy(load, "consumer", COPIED_BY_MODERN_GROUP)


def _copy(load: Load, protocol: Literal["classic", "consumer"], target: str) -> None:
    """After an error the outcome is unknown: the next incarnation resumes from what is committed."""
    numbers = load.numbers()
    for _ in numbers:
        with (
            suppress(SparklogError),
            sparklog.Producer(bootstrap_servers=load.servers, transactional_id=target) as producer,
            sparklog.Consumer(
                bootstrap_servers=load.servers,
                group_id=target,
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as consumer,
        ):
            producer.init()
            consumer.subscribe([PLAIN])
            _copy_until_error(numbers, producer, consumer, target)


def _copy_until_error(
    numbers: Iterator[int], producer: sparklog.Producer, consumer: sparklog.Consumer, target: str
) -> None:
    for _ in numbers:
        records = consumer.poll(timeout_ms=100)
        if records:
            producer.begin()
            for record in records:
                producer.send(target, value=bytes(record.value), partition=record.partition)
            producer.send_offsets(_reached(records), consumer.group_metadata())
            producer.commit()


def _reached(records: Sequence[ConsumerRecord]) -> dict[sparklog.TopicPartition, int]:
    """The offset of the next record of each partition."""
    return {sparklog.TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
