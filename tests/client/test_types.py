"""Keys and values keep their types from the serializer to the record; `make lint` checks the claims."""

from collections.abc import Iterator
from typing import NamedTuple, assert_type

import pytest

import sparklog
from sparklog import AsyncConsumer, AsyncProducer, Consumer, Producer, Record, TopicPartition


class Order(NamedTuple):
    number: int


def order_bytes(order: Order) -> bytes:
    return b"%d" % order.number


def order_of(content: bytes | None) -> Order:
    return Order(int(content or b""))


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with sparklog.embedded() as broker:
        yield broker.bootstrap_servers


def test_an_order_is_sent_and_read_as_an_order(servers: str) -> None:
    with Producer(bootstrap_servers=servers, value_serializer=order_bytes) as producer:
        producer.send("orders", Order(1), "key").result(20)
        producer.send_many("orders", [Order(2), Order(3)]).result(20)
    with Consumer(bootstrap_servers=servers, value_deserializer=order_of) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek_to_beginning()
        records = []
        while len(records) < 3:
            records += consumer.poll(20_000)
    assert_type(records, list[Record[bytes | None, Order]])
    assert_type(records[0].value, Order)
    assert_type(records[0].key, bytes | None)
    assert [record.value for record in records] == [Order(1), Order(2), Order(3)]
    assert records[0].key == b"key"


def test_without_serializers_keys_and_values_are_bytes_or_text() -> None:
    def plain(producer: Producer, consumer: Consumer, writer: AsyncProducer, reader: AsyncConsumer) -> None:
        assert_type(consumer.poll(), list[Record])
        producer.send("t", "text", b"key")

    def typed(producer: AsyncProducer[str, Order], consumer: AsyncConsumer[str, Order]) -> None:
        assert_type(producer, AsyncProducer[str, Order])

    assert plain is not None
    assert typed is not None
