"""Typed columns and the map of headers through Spark."""

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from sparklog import Producer
from sparklog.spark import header_map
from tests.spark.conftest import MakeTopic
from tests.spark.frames import read

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, name STRING, at TIMESTAMP, tags ARRAY<STRING>, place STRUCT<city: STRING>, counts MAP<STRING, INT>"  # noqa: E501
WRITTEN = {
    "id": 1,
    "name": "é",
    "at": "2026-01-02T03:04:05.678Z",
    "tags": ["a", None],
    "place": {"city": "Paris"},
    "counts": {"x": 1},
}


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    import sparklog

    sparklog.register(spark)


@pytest.fixture
def topic(servers: str, make_topic: MakeTopic) -> str:
    made = make_topic()
    with Producer(bootstrap_servers=servers) as producer:
        for value in (json.dumps(WRITTEN).encode(), b'{"id":2}', b"{", None):
            producer.send(
                made, key=b"k", value=value, headers=[("h", b"1"), ("i", b"2"), ("h", b"3")] if value else []
            )
    return made


def test_json_is_what_from_json_makes_of_it(spark: SparkSession, servers: str, topic: str) -> None:
    ours = read(spark, servers, topic, valueFormat="json", valueSchema=SCHEMA, keyFormat="string").orderBy(
        "offset"
    )
    theirs = (
        read(spark, servers, topic)
        .orderBy("offset")
        .select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("value"))
    )
    assert ours.schema["value"].dataType == theirs.schema["value"].dataType
    rows = ours.collect()
    expected = [row.value for row in theirs.collect()]
    # from_json makes a struct of nulls of what is no JSON, which cannot be told from one that holds nothing.
    assert [row.value for row in rows] == [expected[0], expected[1], None, expected[3]]
    assert [row.key for row in rows] == ["k"] * 4
    assert [row._corrupt and bytes(row._corrupt.value) for row in rows] == [None, None, b"{", None]


def test_a_schema_of_the_read_chooses_what_is_decoded(spark: SparkSession, servers: str, topic: str) -> None:
    frame = read(
        spark,
        servers,
        topic,
        schema="value STRUCT<place: STRUCT<city: STRING>>, offset LONG",
        valueFormat="json",
    )
    assert [
        (row.offset, row.city)
        for row in frame.select("offset", "value.place.city").orderBy("offset").collect()
    ] == [
        *((0, "Paris"), (1, None), (2, None), (3, None)),
    ]


def test_failfast_fails_the_query_and_names_the_record(spark: SparkSession, servers: str, topic: str) -> None:
    with pytest.raises(
        PySparkException, match=f"the value of offset 2 in {topic}-0 cannot be decoded: not JSON"
    ):
        read(spark, servers, topic, valueFormat="json", valueSchema=SCHEMA, mode="failfast").collect()


def test_headers_become_a_map_in_which_the_last_of_one_name_counts(
    spark: SparkSession, servers: str, topic: str
) -> None:
    frame = (
        read(spark, servers, topic, includeHeaders="true")
        .orderBy("offset")
        .select(header_map().alias("m"), header_map("headers")["h"])
    )
    first, *_, last = frame.collect()
    assert {name: bytes(value) for name, value in first.m.items()} == {"h": b"3", "i": b"2"}
    assert bytes(first[1]) == b"3"
    assert last.m is None


def test_a_map_of_headers_is_named_as_its_column_is_and_may_stand_in_a_condition(
    spark: SparkSession, servers: str, topic: str
) -> None:
    frame = read(spark, servers, topic, includeHeaders="true")
    assert frame.select("offset", header_map()).columns == ["offset", "headers"]
    assert frame.where(header_map()["i"] == b"2").count() == frame.where("value IS NOT NULL").count()
