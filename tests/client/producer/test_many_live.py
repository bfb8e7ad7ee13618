"""Lists and tables of records through a real broker, and promises as futures of the standard library."""

import asyncio
import concurrent.futures
import datetime
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.client.consumer.consumer import Consumer, ConsumerRecord
from sparklog.client.failures import RecordTooLarge
from sparklog.client.producer.intake import partition_for
from sparklog.client.producer.producer import Producer
from sparklog.errors import SettingsError
from sparklog.model import TopicPartition
from sparklog.record.columns import RowRefused
from tests.client.wire import ScriptedBroker

PATIENCE_S = 20
PARTITIONS = 3


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with sparklog.embedded() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^\w.-]", "-", request.node.name)[:200]
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({name: PARTITIONS})
    return name


def written(servers: str, topic: str) -> list[ConsumerRecord]:
    with Consumer(bootstrap_servers=servers) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        count = sum(consumer.end_offsets(partitions).values())
        records: list[ConsumerRecord] = []
        while len(records) < count:
            records += consumer.poll(PATIENCE_S * 1000, 100_000)
        return records


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_many_records_of_one_call_are_all_written_in_order(
    servers: str, topic: str, compression: str
) -> None:
    values = [b"%06d" % number for number in range(20_000)]
    with Producer(
        bootstrap_servers=servers,
        batch_size=5_000,
        buffer_memory=100_000,
        compression_type=compression,  # type: ignore[arg-type]
    ) as producer:
        sent = producer.send_many(topic, values, partition=1, timestamp_ms=7)
        ranges = sent.result(PATIENCE_S)
        assert sent.done()
    records = written(servers, topic)
    assert [record.value for record in records] == values
    assert {record.timestamp_ms for record in records} == {7}
    assert len(sent) == len(values) == sum(one.record_count for one in ranges)
    assert [one.offset for one in ranges][:2] == [0, ranges[0].record_count]


def test_the_keys_of_many_records_choose_their_partitions(servers: str, topic: str) -> None:
    keys = [f"key-{number % 50}" for number in range(3_000)]
    values = [str(number) for number in range(3_000)]
    with Producer(bootstrap_servers=servers) as producer:
        assert len(producer.send_many(topic, values, keys)) == 3_000
    records = written(servers, topic)
    assert len(records) == 3_000
    for record in records:
        assert record.key is not None
        assert record.partition == partition_for(record.key, PARTITIONS)
    for number in range(PARTITIONS):
        of_one = [int(record.value or b"") for record in records if record.partition == number]
        assert of_one == sorted(of_one)


def test_serializers_and_partitioners_see_many_records_as_they_see_one(servers: str, topic: str) -> None:
    with Producer(
        bootstrap_servers=servers,
        value_serializer=lambda value: b"<%r>" % value,
        partitioner=lambda _topic, _key, value, count: (value or b"")[1] % count,
    ) as producer:
        producer.send_many(topic, range(9))
        producer.send(topic, 9)
    records = written(servers, topic)
    assert {(record.partition, record.value) for record in records} == {
        ((48 + number) % PARTITIONS, b"<%d>" % number) for number in range(10)
    }


def test_records_before_a_refused_one_are_sent(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, max_request_size=2_000) as producer:
        with pytest.raises(TypeError, match="neither bytes nor text"):
            producer.send_many(topic, [b"a", b"b", 3])
        with pytest.raises(RecordTooLarge):
            producer.send_many(topic, [b"c", bytes(3_000)])
        with pytest.raises(ValueError, match="1 keys for 2 values"):
            producer.send_many(topic, [b"d", b"e"], [b"k"])
    assert sorted(record.value or b"" for record in written(servers, topic)) == [b"a", b"b", b"c"]


def test_a_table_is_written_and_read_again(servers: str, topic: str) -> None:
    count = 50_000
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC)
    table = pa.table(
        {
            "value": pa.array([b"%d" % number for number in range(count)]),
            "key": pa.array([None if number % 7 else f"k{number}" for number in range(count)]),
            "partition": pa.array([number % PARTITIONS for number in range(count)], pa.int32()),
            "timestamp": pa.array([when] * count, pa.timestamp("ms", tz="UTC")),
            "other": pa.array(range(count)),
        }
    )
    with Producer(bootstrap_servers=servers, buffer_memory=400_000, batch_size=50_000) as producer:
        sent = producer.send_arrow(topic, table)
        assert len(sent) == count
        assert sum(one.record_count for one in sent.result(PATIENCE_S)) == count
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        consumer.seek_to_beginning()
        read = []
        while sum(one.num_rows for one in read) < count:
            read.append(consumer.poll_arrow(PATIENCE_S * 1000))
        assert consumer.poll_arrow(0).num_rows == 0
        consumer.seek_to_beginning()
        headers = consumer.poll_arrow(PATIENCE_S * 1000, ["headers", "value"])
    assert headers.column_names == ["headers", "value"]
    everything = pa.concat_tables(read).sort_by([("partition", "ascending"), ("offset", "ascending")])
    expected = sorted(range(count), key=lambda number: number % PARTITIONS)
    assert everything.column("value").to_pylist() == [b"%d" % number for number in expected]
    assert everything.column("key").to_pylist() == [
        None if number % 7 else b"k%d" % number for number in expected
    ]
    assert set(everything.column("timestamp").to_pylist()) == {when}
    assert set(everything.column("topic").to_pylist()) == {topic}


def test_a_table_follows_the_records_sent_before_it(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=1_000) as producer:
        producer.send(topic, b"first", partition=0)
        row = {"value": pa.array([b"second"]), "partition": pa.array([0], pa.int32())}
        producer.send_arrow(topic, pa.table(row))
        producer.send(topic, b"third", partition=0)
    assert [record.value for record in written(servers, topic)] == [b"first", b"second", b"third"]


@pytest.mark.parametrize(
    ("columns", "refusal"),
    [
        ({"key": [b"k"]}, "column 'value' is missing"),
        ({"value": [1]}, "column 'value' is int64, and must be text or binary"),
        ({"value": [b"v"], "partition": [1]}, "column 'partition' is int64, and must be int32"),
        ({"value": [b"v"], "headers": [b"h"]}, "column 'headers' is binary"),
    ],
)
def test_a_table_with_a_wrong_column_is_refused(
    servers: str, topic: str, columns: dict[str, list[object]], refusal: str
) -> None:
    with Producer(bootstrap_servers=servers) as producer, pytest.raises(SettingsError, match=refusal):
        producer.send_arrow(topic, pa.table(columns))


def test_a_row_that_cannot_be_written_is_named(servers: str, topic: str) -> None:
    early = datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC)
    late = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    times = pa.table({"value": [b"a", b"b"], "timestamp": pa.array([late, early], pa.timestamp("us", "UTC"))})
    outside = pa.table({"value": [b"a", b"b"], "partition": pa.array([0, 9], pa.int32())})
    with Producer(bootstrap_servers=servers) as producer:
        with pytest.raises(RowRefused, match="row 1: its timestamp is before 1970"):
            producer.send_arrow(topic, times)
        with pytest.raises(RowRefused, match="row 1: "):
            producer.send_arrow(topic, outside)


def test_an_unknown_column_is_refused_before_records_are_taken(servers: str, topic: str) -> None:
    with Consumer(bootstrap_servers=servers) as consumer, pytest.raises(SettingsError, match="'valeu'"):
        consumer.poll_arrow(0, ["valeu"])


def test_promises_are_futures_of_the_standard_library(broker: ScriptedBroker) -> None:
    with Producer(bootstrap_servers=broker.address) as producer:
        first = [producer.send("t", b"%d" % number) for number in range(10)]
        done, left = concurrent.futures.wait(first, PATIENCE_S)
        assert (done, left) == (set(first), set())
        again = producer.send("t", b"again")
        assert [one.result() for one in concurrent.futures.as_completed([again], PATIENCE_S)] == [
            again.metadata()
        ]
        assert not again.cancel()
        assert not again.cancelled()
        assert not again.running()
        assert repr(again) == f"<Delivery t-0: {again.metadata()}>"


def test_promises_are_awaited_in_an_event_loop(broker: ScriptedBroker) -> None:
    async def main(producer: Producer) -> None:
        sent = [producer.send("t", b"%d" % number) for number in range(10)]
        written = await asyncio.gather(*(asyncio.wrap_future(one) for one in sent))
        assert [one.offset for one in written] == list(range(written[0].offset, written[0].offset + 10))
        assert (await producer.send("t", b"last")).offset == written[-1].offset + 1

    with Producer(bootstrap_servers=broker.address) as producer:
        asyncio.run(asyncio.wait_for(main(producer), PATIENCE_S))


def test_a_cancelled_task_leaves_its_record_to_be_sent(broker: ScriptedBroker) -> None:
    async def main(producer: Producer) -> None:
        sent = producer.send("t", b"x")
        task = asyncio.ensure_future(sent)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await sent).offset >= 0

    with Producer(bootstrap_servers=broker.address, linger_ms=100) as producer:
        asyncio.run(asyncio.wait_for(main(producer), PATIENCE_S))


def test_a_wait_for_promises_that_are_never_acknowledged_ends_in_time(broker: ScriptedBroker) -> None:
    broker.handlers["Produce"] = lambda _: b""
    producer = Producer(bootstrap_servers=broker.address)
    sent = producer.send("t", b"x")
    assert concurrent.futures.wait([sent], 0.05) == (set(), {sent})
    producer.close(0)
    done, _ = concurrent.futures.wait([sent], PATIENCE_S)
    assert done == {sent}
    assert sent.exception() is not None
