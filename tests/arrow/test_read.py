"""`sparklog.read` against a real broker: ranges, columns, formats, losses, and the end of a read."""

import datetime
import json
import re
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import sparklog
from sparklog import Admin, DataLoss, NewTopic, Producer, SettingsError, TopicPartition, UnknownTopic
from sparklog.arrow.ranges import OffsetRange
from sparklog.arrow.workers import BATCHES_MAX, ParallelRead
from sparklog.client.failures import ClientClosed
from sparklog.client.settings import ClientSettings
from sparklog.model import Offset

PARTITIONS = 3
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with sparklog.embedded() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^\w.-]", "-", request.node.name)[:200]
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, partition_count=PARTITIONS, configs={"retention.ms": "-1"})])
    return name


def write(servers: str, topic: str, *values: bytes | None, partition: int = 0, at_ms: int = NOON_MS) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=partition, timestamp_ms=at_ms + 1000 * number)


def values(read: sparklog.TopicRead) -> list[object]:
    return list(read.to_arrow()["value"].to_pylist())


def test_a_read_has_the_columns_of_the_source_by_partition_and_offset(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, b"b", b"key", partition=2, timestamp_ms=NOON_MS, headers=[("h", b"1")])
        producer.send(topic, b"a", partition=1, timestamp_ms=NOON_MS)
        producer.send(topic, None, partition=2, timestamp_ms=NOON_MS)
    found = sparklog.read(topic, bootstrap_servers=servers).to_arrow()
    common = {"topic": topic, "timestamp": NOON, "timestampType": 0}
    assert found.to_pylist() == [
        {"key": None, "value": b"a", "partition": 1, "offset": 0, **common},
        {"key": b"key", "value": b"b", "partition": 2, "offset": 0, **common},
        {"key": None, "value": None, "partition": 2, "offset": 1, **common},
    ]
    chosen = sparklog.read(topic, columns=["headers", "value"], partitions=[2], bootstrap_servers=servers)
    assert chosen.to_arrow().to_pylist() == [
        {"headers": [{"key": "h", "value": b"1"}], "value": b"b"},
        {"headers": None, "value": None},
    ]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", "abcde"),
        (1, 3, "bc"),
        ("-2", "latest", "de"),
        (-2, "latest", "de"),
        (NOON + datetime.timedelta(seconds=2), "latest", "cde"),
        ("2026-01-02T12:00:01", "2026-01-02T12:00:03.500Z", "bcd"),
        ("-1h", "latest", ""),
        (3, 99, "de"),
        (99, "latest", ""),
    ],
)
def test_a_read_starts_and_ends_where_it_is_told(
    servers: str, topic: str, start: str | int, end: str | int, expected: str
) -> None:
    write(servers, topic, b"a", b"b", b"c", b"d", b"e")
    found = sparklog.read(topic, start=start, end=end, bootstrap_servers=servers)
    assert values(found) == [letter.encode() for letter in expected]


def test_a_read_ends_at_the_end_of_its_beginning(servers: str, topic: str) -> None:
    write(servers, topic, b"a")
    read = sparklog.read(topic, bootstrap_servers=servers)
    write(servers, topic, b"b")
    assert values(read) == [b"a"]
    assert read.to_polars()["value"].to_list() == [b"a"]
    assert list(read.to_pandas()["value"]) == [b"a"]
    assert [batch.num_rows for batch in read.batches()] == [1]
    assert pa.table(read).num_rows == 1


def test_records_of_open_and_aborted_transactions_are_not_read(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init()
        for value, ends in ((b"a", producer.commit), (b"b", producer.abort)):
            producer.begin()
            producer.send(topic, value, partition=0).result(20)
            ends()
        write(servers, topic, b"c")
        producer.begin()
        producer.send(topic, b"d", partition=0).result(20)
        assert values(sparklog.read(topic, bootstrap_servers=servers)) == [b"a", b"c"]
        every = sparklog.read(topic, isolation_level="read_uncommitted", bootstrap_servers=servers)
        assert values(every) == [b"a", b"b", b"c", b"d"]
        producer.abort()


def test_fields_of_json_are_columns_and_only_they_are_decoded(servers: str, topic: str) -> None:
    write(servers, topic, b'{"carrier":"AA","delay":1,"offset":7,"l":[{"x":1.5}]}', None)
    write(servers, topic, b'{"carrier":null,"delay":2.5}', partition=1)
    read = sparklog.read(topic, value_format="json", bootstrap_servers=servers)
    assert read.value_schema == (
        "struct<`carrier`:string,`delay`:double,`offset`:bigint,`l`:array<struct<`x`:double>>>"
    )
    assert read.available[-3:] == ("carrier", "delay", "l")
    chosen = read.select(["delay", "value.offset", "offset", "carrier"])
    assert chosen.to_arrow().to_pylist() == [
        {"delay": 1.0, "value.offset": 7, "offset": 0, "carrier": "AA"},
        {"delay": None, "value.offset": None, "offset": 1, "carrier": None},
        {"delay": 2.5, "value.offset": None, "offset": 0, "carrier": None},
    ]


def test_a_record_that_is_no_json_is_told_or_fails_the_read(servers: str, topic: str) -> None:
    write(servers, topic, b'{"a":1}', b"?")
    schema = {"value_format": "json", "value_schema": "a INT", "bootstrap_servers": servers}
    told = sparklog.read(topic, columns=["a", "_corrupt"], **schema).to_arrow().to_pylist()  # type: ignore[arg-type]
    assert [row["a"] for row in told] == [1, None]
    assert told[1]["_corrupt"]["value"] == b"?"
    for fails in (
        sparklog.read(topic, mode="failfast", **schema),  # type: ignore[arg-type]
        sparklog.read(topic, value_format="json", bootstrap_servers=servers),
    ):
        with pytest.raises(sparklog.UndecodableRecord, match=f"the value of offset 1 in {topic}-0"):
            fails.to_arrow()


def test_records_that_are_gone_fail_the_read_or_are_skipped(servers: str, topic: str) -> None:
    write(servers, topic, b"a", b"b", b"c")
    planned = [
        sparklog.read(topic, on_data_loss=when, bootstrap_servers=servers)  # type: ignore[arg-type]
        for when in ("fail", "skip", "warn")
    ]
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 2})
    gone = f"{topic}-0: offsets 0 to 1 are gone, the log starts at 2.*set on_data_loss"
    with pytest.raises(DataLoss, match=gone):
        planned[0].to_arrow()
    assert values(planned[1]) == [b"c"]
    with pytest.warns(UserWarning, match="lost records are skipped"):
        assert values(planned[2]) == [b"c"]
    with pytest.raises(DataLoss, match=gone):
        sparklog.read(topic, start=0, partitions=[0], bootstrap_servers=servers)
    assert values(sparklog.read(topic, bootstrap_servers=servers)) == [b"c"]


def test_a_topic_deleted_after_the_planning_is_a_loss(servers: str, topic: str) -> None:
    write(servers, topic, b"a")
    read = sparklog.read(topic, bootstrap_servers=servers)
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_topics([topic])
    with pytest.raises(DataLoss, match="offsets 0 to 0"):
        read.to_arrow()


def test_a_read_that_ends_early_releases_its_threads_and_connections(servers: str, topic: str) -> None:
    for partition in range(PARTITIONS):
        write(servers, topic, *[bytes(100)] * 5000, partition=partition)
    before = set(threading.enumerate())
    reader = sparklog.read(topic, bootstrap_servers=servers).batches()
    assert reader.read_next_batch().num_rows > 0
    del reader
    assert {thread for thread in threading.enumerate() if "_work" in thread.name} <= before
    with sparklog.read(topic, bootstrap_servers=servers) as read:
        reader = read.batches()
        reader.read_next_batch()
    assert {thread for thread in threading.enumerate() if "_work" in thread.name} <= before
    with pytest.raises((ClientClosed, pa.ArrowException), match="closed before its end"):
        reader.read_all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"start": "yesterday"}, "start: 'yesterday' is none of"),
        ({"start": datetime.datetime(2026, 1, 1)}, "start=.* has no time zone"),
        ({"start": 5, "end": 3}, "start lies beyond end"),
        ({"columns": ["nothing"]}, "there is no column 'nothing': choose among key, value"),
        ({"columns": []}, "at least one"),
        ({"value_format": "xml"}, "value_format='xml' must be one of binary, string"),
        ({"value_format": "avro"}, "needs 'value_schema'"),
        ({"value_schema": "a INT"}, "'value_schema' needs 'value_format'"),
        ({"value_format": "json"}, "value_schema cannot be inferred"),
        ({"value_format": "json", "value_schema": "a INTT"}, "'value_schema': 'INTT' is not a type"),
        ({"on_data_loss": "?"}, "on_data_loss='\\?' must be"),
        ({"group_id": "g"}, "group_id is not a setting of a read"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_name(
    servers: str, topic: str, given: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        sparklog.read(topic, bootstrap_servers=servers, **given)  # type: ignore[arg-type]


def test_unknown_topics_and_partitions_are_told(servers: str, topic: str) -> None:
    with pytest.raises(SettingsError, match="name at least one topic"):
        sparklog.read([], bootstrap_servers=servers)
    with pytest.raises(UnknownTopic, match="no-such-topic"):
        sparklog.read("no-such-topic", bootstrap_servers=servers)
    with pytest.raises(UnknownTopic, match=f"{topic}-7"):
        sparklog.read(topic, partitions=[0, 7], bootstrap_servers=servers)


def test_batches_that_are_not_taken_are_few() -> None:
    made = threading.Semaphore(0)
    rows = pa.record_batch({"n": [1]})

    def endless(*_: object) -> Iterator[pa.RecordBatch]:
        while True:
            made.release()
            yield rows

    pieces = [OffsetRange(TopicPartition("t", number), Offset(0), Offset(9)) for number in range(5)]
    with ParallelRead(ClientSettings(), pieces, endless, threads_max=2) as read:
        room = 2 * (BATCHES_MAX + 1)  # each thread holds one more
        for _ in range(room):
            assert made.acquire(timeout=20)
        assert not made.acquire(blocking=False)
        assert next(read).rows is rows
        assert made.acquire(timeout=20)


def test_a_sum_by_json_of_several_partitions_is_exact(servers: str, topic: str) -> None:
    for partition in range(PARTITIONS):
        numbers = range(partition, 3000, PARTITIONS)
        write(servers, topic, *[json.dumps({"n": n}).encode() for n in numbers], partition=partition)
    read = sparklog.read(topic, value_format="json", columns=["n"], bootstrap_servers=servers)
    assert sum(read.to_arrow()["n"].to_pylist()) == sum(range(3000))
