"""Batch reads through Spark: the rows of Kafka's connector, the ranges asked for, and what a user is told
who asks wrongly.
"""

import datetime
import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparklog import Producer
from tests.spark.conftest import MakeTopic
from tests.spark.frames import read, texts, write

pytestmark = pytest.mark.spark

SENT = "2026-01-02T03:04:05.678+00:00"
SENT_MS = 1767323045678


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    import sparklog

    sparklog.register(spark)


def test_a_read_has_the_columns_of_sparks_kafka_connector(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, key=b"k", value=b"v", headers=[("h", b"1"), ("h", None)], timestamp_ms=SENT_MS)
        producer.send(topic, key=None, value=None, timestamp_ms=SENT_MS)
    frame = read(spark, servers, topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    sent = datetime.datetime.fromisoformat(SENT).astimezone().replace(tzinfo=None)
    first, second = [tuple(row) for row in frame.orderBy("offset").collect()]
    assert first == (
        bytearray(b"k"),
        bytearray(b"v"),
        topic,
        0,
        0,
        sent,
        0,
        [("h", bytearray(b"1")), ("h", None)],
    )
    assert second[:7] == (None, None, topic, 0, 1, sent, 0)
    assert not second[7]
    assert "headers" not in read(spark, servers, topic).columns


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_read_the_same(
    spark: SparkSession, servers: str, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    values = [f"value {number}" for number in range(300)]
    with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
        for value in values:
            producer.send(topic, value=value.encode())
    rows = (
        read(spark, servers, topic).selectExpr("CAST(value AS STRING)", "offset").orderBy("offset").collect()
    )
    assert [tuple(row) for row in rows] == [(value, offset) for offset, value in enumerate(values)]


def test_a_read_takes_the_range_asked_for_and_no_more(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    frame = spark.range(20).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 2 AS INT) AS partition")
    write(frame.coalesce(1), servers, topic)
    start, end = json.dumps({topic: {"0": 3, "1": -2}}), json.dumps({topic: {"0": 5, "1": -1}})
    rows = (
        read(spark, servers, topic, startingOffsets=start, endingOffsets=end)
        .select("partition", "offset")
        .collect()
    )
    assert sorted(map(tuple, rows)) == [(0, 3), (0, 4), *((1, offset) for offset in range(10))]


def test_tasks_are_split_without_losing_or_doubling_a_record(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    write(
        spark.range(1000).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 2 AS INT) AS partition"),
        servers,
        topic,
    )
    frame = read(spark, servers, topic, minPartitions=6)
    assert frame.rdd.getNumPartitions() == 6
    assert sorted(int(bytes(row.value)) for row in frame.collect()) == list(range(1000))


def test_topics_are_chosen_by_list_pattern_or_partition(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    topics = [make_topic(2, prefix=prefix) for prefix in ("pick-a", "pick-b", "other")]
    for topic in topics:
        write(
            spark.createDataFrame([("v", 0), ("v", 1)], "value STRING, partition INT").coalesce(1),
            servers,
            topic,
        )

    def chosen(**options: str) -> list[tuple[str, int]]:
        return sorted(
            tuple(row) for row in read(spark, servers, **options).select("topic", "partition").collect()
        )

    a, b, _ = topics
    assert chosen(subscribe=f"{a},{b}") == [(a, 0), (a, 1), (b, 0), (b, 1)]
    assert chosen(subscribePattern=f"pick-.*-{a.rpartition('-')[2]}") == [(a, 0), (a, 1)]
    assert chosen(assign=json.dumps({b: [1]})) == [(b, 1)]


def test_an_empty_topic_is_an_empty_table(spark: SparkSession, servers: str, make_topic: MakeTopic) -> None:
    assert read(spark, servers, make_topic()).count() == 0


def test_a_schema_chooses_columns_in_the_order_given(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    write(texts(spark, ["a"]), servers, topic)
    frame = read(spark, servers, topic, schema="offset LONG, value BINARY")
    assert [tuple(row) for row in frame.collect()] == [(0, bytearray(b"a"))]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("value STRING", "column 'value' of a sparklog read is binary, not string: cast it in the query"),
        ("values BINARY", "a sparklog read has no column 'values'"),
        ("headers ARRAY<STRUCT<key: STRING, value: BINARY>>", "set the option includeHeaders to true"),
    ],
)
def test_any_other_schema_is_refused(
    spark: SparkSession, servers: str, make_topic: MakeTopic, schema: str, said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, servers, make_topic(), schema=schema).collect()
    assert said in str(caught.value)


def test_a_misspelt_option_is_told_through_spark(spark: SparkSession, servers: str) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, servers, "t", startingOfsets="earliest")
    assert "did you mean 'startingOffsets'?" in str(caught.value)


def test_a_topic_that_is_not_there_is_named(spark: SparkSession, servers: str) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, servers, "no-such-topic").collect()
    assert "no-such-topic" in str(caught.value)
