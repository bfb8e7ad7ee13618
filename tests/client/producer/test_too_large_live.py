"""Batches larger than their topic allows, against a real broker: they are sent in parts."""

import asyncio
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

import sparklog
from sparklog import Admin, NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.failures import RecordTooLarge, TransactionAbortable
from sparklog.client.producer.async_producer import AsyncProducer
from sparklog.client.producer.producer import Producer
from sparklog.model import TopicPartition

PATIENCE_S = 20
MESSAGE_BYTES_MAX = 2_000
COUNT = 3_000
TOO_LARGE = b"x" * 3_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with sparklog.embedded() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^\w.-]", "-", request.node.name)[:200]
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 1, configs={"max.message.bytes": str(MESSAGE_BYTES_MAX)})])
    return name


def values_of(servers: str, topic: str) -> dict[int, bytes | None]:
    """The values of committed records by their offsets, in the order in which they are read."""
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        found: dict[int, bytes | None] = {}
        while consumer.position(partition) < end:
            found |= {record.offset: record.value for record in consumer.poll(PATIENCE_S * 1000, 100_000)}
        return found


def contents(count: int = COUNT) -> list[bytes]:
    return [b"%d:" % number + b"v" * (number % 300) for number in range(count)]


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_each_record_is_written_once_in_order_and_told_its_offset(
    servers: str, topic: str, compression: str, acks: str
) -> None:
    in_flight = 5 if acks == "all" else 1  # without idempotence more of them lose the order
    with Producer(
        bootstrap_servers=servers,
        acks=acks,
        compression_type=compression,
        max_in_flight_requests_per_connection=in_flight,
    ) as producer:
        sent = [producer.send(topic, value) for value in contents()]
        offsets = [one.result(PATIENCE_S).offset for one in sent]
    assert offsets == list(range(COUNT))
    assert values_of(servers, topic) == dict(enumerate(contents()))


def test_only_the_record_that_is_too_large_fails(servers: str, topic: str) -> None:
    values = contents()
    values[1_000] = TOO_LARGE
    told: list[bool] = []
    with Producer(bootstrap_servers=servers, linger_ms=50) as producer:
        sent = [
            producer.send(topic, value, on_delivery=lambda _, error: told.append(error is None))
            for value in values
        ]
        producer.flush()
    failed = [number for number, one in enumerate(sent) if one.exception(0) is not None]
    assert failed == [1_000]
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
        sent[1_000].result(0)
    assert told == [number != 1_000 for number in range(COUNT)]
    written = values_of(servers, topic)
    assert [written[one.result(0).offset] for one in sent if one is not sent[1_000]] == [
        value for value in values if value != TOO_LARGE
    ]
    assert list(written.values()) == [value for value in values if value != TOO_LARGE]


def test_records_of_one_call_have_the_ranges_of_the_parts(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        many = producer.send_many(topic, contents()).result(PATIENCE_S)
        table = pa.table({"value": pa.array(contents(), pa.binary())})
        rows = producer.send_arrow(topic, table).result(PATIENCE_S)
    places = [place for one in (*many, *rows) for place in range(one.offset, one.offset + one.record_count)]
    assert places == list(range(2 * COUNT))
    assert list(values_of(servers, topic).values()) == 2 * contents()


def test_a_transaction_commits_parts_and_is_aborted_after_a_record_too_large(
    servers: str, topic: str
) -> None:
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init()
        producer.begin()
        producer.send_many(topic, contents())
        producer.commit()
        producer.begin()
        refused = producer.send_many(topic, [b"lost", TOO_LARGE])
        with pytest.raises(RecordTooLarge):
            refused.result(PATIENCE_S)
        with pytest.raises(TransactionAbortable):
            producer.commit()
        producer.abort()
        producer.begin()
        producer.send_many(topic, [b"end"])
        producer.commit()
    assert list(values_of(servers, topic).values()) == [*contents(), b"end"]


def test_an_asyncio_producer_sends_parts(servers: str, topic: str) -> None:
    values = contents()
    values[1_000] = TOO_LARGE

    async def send() -> list[int | type]:
        async with AsyncProducer(bootstrap_servers=servers, linger_ms=20) as producer:
            sent = [await producer.send(topic, value) for value in values]
            results = await asyncio.gather(*sent, return_exceptions=True)
        return [type(one) if isinstance(one, BaseException) else one.offset for one in results]

    results = asyncio.run(send())
    assert results.pop(1_000) is RecordTooLarge
    assert results == list(range(COUNT - 1))
    assert list(values_of(servers, topic).values()) == [value for value in values if value != TOO_LARGE]
