"""Batch writes through Spark: where each record goes, and which row is named when one cannot go anywhere."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparklog.client.producer.intake import partition_for
from tests.spark.conftest import MakeTopic
from tests.spark.frames import read, texts, write

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    import sparklog

    sparklog.register(spark)


def test_what_is_written_is_read_back(spark: SparkSession, servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    schema = "key BINARY, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    rows = [
        (b"k", "one", [("h", b"x")]),
        (None, "two", None),
        (b"", "", []),
        (b"k", None, [("h", None), ("h", b"")]),
    ]
    write(spark.createDataFrame(rows, schema), servers, topic, includeHeaders="true")
    frame = read(spark, servers, topic, includeHeaders="true").selectExpr(
        "key", "CAST(value AS STRING)", "headers"
    )
    back = {
        (None if r.key is None else bytes(r.key), r.value): [(h.key, h.value) for h in r.headers or ()]
        for r in frame.collect()
    }
    assert back == {
        (b"k", "one"): [("h", bytearray(b"x"))],
        (None, "two"): [],
        (b"", ""): [],
        (b"k", None): [("h", None), ("h", bytearray())],
    }


def test_a_key_goes_to_the_partition_that_every_kafka_client_would_choose(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(5)
    write(spark.range(500).selectExpr("CAST(id AS STRING) AS key", "'v' AS value"), servers, topic)
    rows = read(spark, servers, topic).select("key", "partition").collect()
    assert len(rows) == 500
    assert all(row.partition == partition_for(bytes(row.key), 5) for row in rows)


def test_the_partition_column_is_stronger_than_the_key_and_null_leaves_it_to_the_key(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(4)
    rows = [("k", "told", 3), ("k", "by key", None)]
    write(spark.createDataFrame(rows, "key STRING, value STRING, partition INT"), servers, topic)
    back = {bytes(row.value): row.partition for row in read(spark, servers, topic).collect()}
    assert back == {b"told": 3, b"by key": partition_for(b"k", 4)}


def test_each_row_can_name_its_topic_and_the_option_is_stronger(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    a, b, c = make_topic(), make_topic(), make_topic()
    frame = spark.createDataFrame([("1", a), ("2", b), ("3", a)], "value STRING, topic STRING").coalesce(1)
    write(frame, servers)
    assert [bytes(r.value) for r in read(spark, servers, a).orderBy("offset").collect()] == [b"1", b"3"]
    assert [bytes(r.value) for r in read(spark, servers, b).collect()] == [b"2"]
    write(frame, servers, c)
    assert read(spark, servers, c).count() == 3


def test_an_empty_frame_writes_nothing(spark: SparkSession, servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    write(texts(spark, ["x"]).where("false"), servers, topic)
    assert read(spark, servers, topic).count() == 0


def test_what_was_read_can_be_written_as_it_is(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    source, target = make_topic(2), make_topic(2)
    write(
        spark.range(50).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"),
        servers,
        source,
    )
    write(read(spark, servers, source, includeHeaders="true"), servers, target)
    columns = ["key", "value", "partition", "timestamp"]
    assert sorted(map(tuple, read(spark, servers, target).select(columns).collect())) == sorted(
        map(tuple, read(spark, servers, source).select(columns).collect())
    )


def refusal(frame, servers: str, topic: str | None, **options: str) -> str:
    with pytest.raises(PySparkException) as caught:
        write(frame, servers, topic, **options)
    return str(caught.value)


def test_a_null_topic_names_its_row(spark: SparkSession, servers: str, make_topic: MakeTopic) -> None:
    rows = [("1", make_topic()), ("2", None)]
    frame = spark.createDataFrame(rows, "value STRING, topic STRING").coalesce(1)
    assert "column 'topic' is null in row 1" in refusal(frame, servers, None)


def test_a_partition_that_the_topic_does_not_have_names_its_row(
    spark: SparkSession, servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    frame = spark.createDataFrame([("1", 0), ("2", 2)], "value STRING, partition INT").coalesce(1)
    assert (
        f"column 'partition' is 2 in row 1 of its task, but topic {topic!r} has partitions 0 to 1"
        in refusal(frame, servers, topic)
    )


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("'a' AS key", "column 'value' is missing"),
        ("1 AS value", "column 'value' is int, and must be string or binary"),
        ("'a' AS value, 1 AS key", "column 'key' is int, and must be string or binary"),
        ("'a' AS value, 'x' AS partition", "column 'partition' is string, and must be int"),
        (
            "'a' AS value, 'x' AS headers",
            "column 'headers' is string, and must be array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_a_frame_of_another_shape_names_the_column(
    spark: SparkSession, servers: str, columns: str, said: str
) -> None:
    assert said in refusal(spark.range(1).selectExpr(*columns.split(", ")), servers, "t")


def test_without_a_topic_the_remedies_are_told(spark: SparkSession, servers: str) -> None:
    assert "set the option 'topic' or add a column 'topic'" in refusal(texts(spark, ["x"]), servers, None)


def test_overwriting_a_topic_is_refused_with_the_way_to_append(spark: SparkSession, servers: str) -> None:
    writer = (
        texts(spark, ["x"])
        .write.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "t")
    )
    with pytest.raises(PySparkException) as caught:
        writer.mode("overwrite").save()
    assert 'write with .mode("append")' in str(caught.value)
