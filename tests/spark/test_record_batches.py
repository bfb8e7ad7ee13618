"""A task's records, from a broker and without Spark: ranges put together, and connections kept for the
next task.
"""

import os
from collections.abc import Iterator

import psutil
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import sparklog
from sparklog import Admin, Producer
from sparklog.arrow.ranges import DataLoss, OffsetRange
from sparklog.arrow.reading import gathered
from sparklog.model import Offset, TopicPartition
from sparklog.record.batch import build_batch
from sparklog.spark.connections import close_idle
from sparklog.spark.options import Options
from sparklog.spark.readers import record_batches
from sparklog.spark.schema import source_schema
from sparklog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.schema import Message
from tests.client.wire import TOPIC_ID, ScriptedBroker, metadata
from tests.spark.conftest import MakeTopic


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    close_idle()
    yield
    close_idle()


def options(servers: str, **given: str) -> Options:
    return Options.parse({"kafka.bootstrap.servers": servers, "subscribe": "t", **given})


def ranges(topic: str, limits: dict[int, int]) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition(topic, partition), Offset(0), Offset(limit))
        for partition, limit in limits.items()
    ]


def connections() -> int:
    return len(psutil.Process().net_connections("tcp"))


def test_tiny_ranges_come_as_one_batch(servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(9):
            producer.send(topic, value=b"%d" % number, partition=number % 3)
    given = options(servers)
    (batch,) = record_batches(given, source_schema(given), ranges(topic, {0: 3, 2: 3, 1: 2}))
    batch.validate(full=True)
    rows = zip(
        batch["partition"].to_pylist(), batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True
    )
    assert list(rows) == [
        (p, o, b"%d" % (3 * o + p)) for p, limit in ((0, 3), (2, 3), (1, 2)) for o in range(limit)
    ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([1, 2, 9, 1], [3, 9, 1]), ([9, 9], [9, 9]), ([2, 2, 2, 2], [6, 2]), ([], []), ([4, 1, 5], [5, 5])],
)
def test_only_small_batches_are_put_together_and_never_moved(sizes: list[int], expected: list[int]) -> None:
    batches = [pa.record_batch({"a": [place] * size}) for place, size in enumerate(sizes)]
    made = list(gathered(batches, 5))
    assert [batch.num_rows for batch in made] == expected
    assert pa.Table.from_batches(made, pa.schema({"a": pa.int64()})) == pa.Table.from_batches(
        batches, pa.schema({"a": pa.int64()})
    )


def test_few_rows_of_many_bytes_are_not_put_together_without_end() -> None:
    batches = [pa.record_batch({"a": [bytes([place]) * 1000]}) for place in range(10)]
    made = list(gathered(iter(batches), rows_min=100, bytes_min=3500))
    assert [batch.num_rows for batch in made] == [4, 4, 2]
    assert pa.Table.from_batches(made) == pa.Table.from_batches(batches)


def test_the_next_task_uses_the_connections_of_the_last_and_a_broken_off_one_leaves_none(
    servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, value=b"v")
    given = options(servers)
    before = connections()
    assert len(list(record_batches(given, source_schema(given), ranges(topic, {0: 1})))) == 1
    kept = connections()
    assert kept > before
    for _ in range(3):
        assert len(list(record_batches(given, source_schema(given), ranges(topic, {0: 1})))) == 1
        assert connections() == kept
    broken_off = record_batches(given, source_schema(given), ranges(topic, {0: 1}))
    next(broken_off)
    broken_off.close()  # type: ignore[attr-defined]
    assert connections() == before


def test_a_failed_task_leaves_no_connection(servers: str) -> None:
    given = options(servers)
    before = connections()
    with pytest.raises(
        DataLoss,
        match="there is no topic 'no-such-topic'; offsets 0 to 0 of no-such-topic-0 are gone with it",
    ):
        list(record_batches(given, source_schema(given), ranges("no-such-topic", {0: 1})))
    assert connections() == before


def test_a_topic_made_anew_after_it_was_planned_is_a_loss_and_not_read(
    servers: str, admin: Admin, make_topic: MakeTopic
) -> None:
    topic, other = make_topic(), make_topic()
    given = options(servers)
    with Producer(bootstrap_servers=servers) as producer:
        for name in (topic, other, topic):
            producer.send(name, value=b"old")
    planned = [
        OffsetRange(
            TopicPartition(name, 0), Offset(0), Offset(limit), admin.describe_topics([name])[name].topic_id
        )
        for name, limit in ((topic, 2), (other, 1))
    ]

    def read(**more: str) -> list[bytes]:
        schema = source_schema(given)
        return [
            value
            for batch in record_batches(options(servers, **more), schema, planned)
            for value in batch["value"].to_pylist()
        ]

    assert read() == [b"old"] * 3  # by a connection that knows the topic from now on
    admin.delete_topics([topic])
    gone = f"there is no topic '{topic}'; offsets 0 to 1 of {topic}-0 are gone with it"
    with pytest.raises(DataLoss, match=gone):
        read()
    admin.create_topics({topic: 1})
    with Producer(bootstrap_servers=servers) as producer:
        for _ in range(3):
            producer.send(topic, value=b"new")
    anew = f"topic '{topic}' was deleted and made anew; offsets 0 to 1 of {topic}-0 are gone with it"
    with pytest.raises(DataLoss, match=anew):
        read()
    assert read(failOnDataLoss="skip") == [b"old"]
    with pytest.warns(UserWarning, match=anew):
        assert read(failOnDataLoss="warn") == [b"old"]


@pytest.mark.parametrize("value_format", ["binary", "string", "json"])
def test_a_read_without_spark_has_the_same_columns(
    servers: str, make_topic: MakeTopic, value_format: str
) -> None:
    topic = make_topic(2)
    with Producer(bootstrap_servers=servers) as producer:
        for number, content in enumerate((b'{"a":1}', None, b'{"a":"x"}', b'{"b":2}')):
            producer.send(topic, content, b"key", partition=number % 2, headers=[("h", b"1")])
    schema = {"valueSchema": "a INT"} if value_format == "json" else {}
    given = options(servers, valueFormat=value_format, includeHeaders="true", **schema)
    columns = source_schema(given)
    batches = record_batches(given, columns, ranges(topic, {0: 2, 1: 2}))
    read = sparklog.read(
        topic,
        columns=columns.names,
        value_format=value_format,  # type: ignore[arg-type]
        value_schema=schema.get("valueSchema"),
        bootstrap_servers=servers,
    )
    expected = pa.Table.from_batches(batches, schema=read.schema)
    assert read.to_arrow().equals(expected)
    assert read.to_arrow().num_rows == 4


def test_a_forked_worker_opens_connections_of_its_own(servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, value=b"v")
    given = options(servers)
    schema, pieces = source_schema(given), ranges(topic, {0: 1})
    list(record_batches(given, schema, pieces))
    child = os.fork()
    if child == 0:
        os._exit(0 if sum(batch.num_rows for batch in record_batches(given, schema, pieces)) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sum(batch.num_rows for batch in record_batches(given, schema, pieces)) == 1


def test_typed_columns_are_made_of_what_is_read(servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=servers, compression_type="zstd") as producer:
        for content in (b'{"a":1,"b":"x"}', b"?", None):
            producer.send(topic, value=content)
    given = options(servers, valueFormat="json", valueSchema="a INT, b STRING")
    schema = StructType([source_schema(given)[name] for name in ("value", "_corrupt")])
    (batch,) = record_batches(given, schema, ranges(topic, {0: 3}))
    assert batch["value"].to_pylist() == [{"a": 1, "b": "x"}, None, None]
    assert [told and told["value"] for told in batch["_corrupt"].to_pylist()] == [None, b"?", None]


@pytest.mark.long
def test_memory_stays_flat_while_much_is_read(servers: str, make_topic: MakeTopic) -> None:
    topic, count = make_topic(), 300_000
    with Producer(bootstrap_servers=servers, linger_ms=20) as producer:
        for _ in range(count):
            producer.send(topic, value=bytes(1000))
    given = options(servers)
    resident: list[int] = []
    rows = 0
    for batch in record_batches(given, source_schema(given), ranges(topic, {0: count})):
        rows += batch.num_rows
        if rows > count // 3:
            resident.append(psutil.Process().memory_info().rss)
    assert rows == count
    assert max(resident) - min(resident) < 64 << 20


def test_a_task_requests_the_metadata_of_all_its_topics_at_once() -> None:
    records = bytes(build_batch([(None, b"v", (), 0)]))
    topics = [f"t{number}" for number in range(20)]
    with ScriptedBroker() as broker:

        def known(request: Message) -> Message:
            assert isinstance(request, MetadataRequest)
            names = [topic.name or "" for topic in request.topics or []]
            return metadata({key: [1] for key in names}, nodes=[(1, broker.port)])

        told = FetchableTopicResponse(
            topic_id=TOPIC_ID, partitions=[PartitionData(records=memoryview(records))]
        )
        broker.handlers |= {"Metadata": known, "Fetch": lambda _: FetchResponse(responses=[told])}
        given = options(broker.address)
        pieces = [piece for topic in topics for piece in ranges(topic, {0: 1})]
        (batch,) = record_batches(given, source_schema(given), pieces)
        assert batch["topic"].to_pylist() == topics
        asked = [request for _, request in broker.seen if isinstance(request, MetadataRequest)]
        assert [len(request.topics or []) for request in asked] == [20]
