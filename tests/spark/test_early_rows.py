"""Tiny micro-batches are read where they are planned, and give the same rows as tasks."""

import io
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession, datasource_internal
from pyspark.sql.datasource import InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as GivesRows
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from sparklog import Admin, Producer
from sparklog.arrow.ranges import OffsetRange
from sparklog.model import Offset, TopicPartition
from sparklog.spark import early_rows
from sparklog.spark.connections import close_idle
from sparklog.spark.early_rows import EarlyRows, can_take_early, rows_wrapper
from sparklog.spark.option_values import Use
from sparklog.spark.options import Options
from sparklog.spark.source import SparklogSource
from sparklog.spark.stream_reader import StreamReader
from sparklog.spark.uses import checked
from tests.spark.conftest import MakeTopic
from tests.spark.frames import run_to_end, stream

COLUMNS = StructType([StructField("value", BinaryType()), StructField("offset", LongType())])


def filled(servers: str, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number, value in enumerate(values):
            headers = [("h", b"1"), ("h", None)] if number % 2 else []
            producer.send(
                topic,
                value=value,
                key=None if number % 3 else b"k%d" % number,
                partition=partition,
                headers=headers,
            )


def early(servers: str, columns: StructType = COLUMNS, **options: str) -> EarlyRows:
    given = {"kafka.bootstrap.servers": servers, "subscribe": "any", **options}
    return EarlyRows(checked(Options.parse(given), Use.STREAM_READ), columns)


def task(topic: str, start: int, limit: int) -> list[list[OffsetRange]]:
    return [[OffsetRange(TopicPartition(topic, 0), Offset(start), Offset(limit))]]


@pytest.fixture(scope="module", autouse=True)
def _no_connections_left() -> Iterator[None]:
    yield
    close_idle()


def test_spark_takes_a_reader_for_one_with_rows_until_it_has_given_them(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic(2)
    filled(servers, topic, [b"a", b"b"])
    filled(servers, topic, [b"c"], partition=1)
    reader = make_reader(topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert not isinstance(reader, GivesRows)
    tasks = reader.partitions(start, end)
    assert len(tasks) == 1
    assert isinstance(reader, GivesRows)
    assert isinstance(reader, StreamReader)
    rows = [row for batch in reader.getCache(start, end) for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [b"a", b"b", b"c"]
    assert not isinstance(reader, GivesRows)
    assert [row for batch in reader.read(tasks[0]) for row in batch.to_pylist()] == rows


def test_rows_are_off_by_the_option(servers: str, make_topic: MakeTopic, make_reader: Any) -> None:
    topic = make_topic()
    filled(servers, topic, [b"a"])
    reader = make_reader(topic, earlyRows="off")
    start = reader.initialOffset()
    assert len(reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))) == 1
    assert type(reader) is reader.__class__ is StreamReader
    assert not isinstance(reader, GivesRows)


def test_rows_that_spark_does_not_ask_for_right_after_the_plan_are_off_from_then_on(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    filled(servers, topic, [b"a"])
    reader = make_reader(topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.partitions(start, end)
    assert isinstance(reader, GivesRows)
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
    assert not isinstance(reader, GivesRows)
    reader.partitions(start, end)
    assert not isinstance(reader, GivesRows)


def test_rows_are_off_where_spark_asks_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_wrapper() is GivesRows

    def partitions_func(reader: Any, start: Any, end: Any) -> Any:
        return reader.getCache(start, end), reader.partitions(start, end)

    monkeypatch.setattr(runner, "partitions_func", partitions_func)
    assert rows_wrapper() is None
    monkeypatch.delattr(runner, "partitions_func")
    assert rows_wrapper() is None


def test_a_pyspark_without_the_wrapper_is_logged_once_and_tasks_read_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(datasource_internal, "_SimpleStreamReaderWrapper")
    source = SparklogSource({"kafka.bootstrap.servers": "nowhere:9092", "subscribe": "t"})
    off = SparklogSource({**source.options, "earlyRows": "off"})
    with warnings.catch_warnings(record=True) as logged:
        warnings.simplefilter("default")
        readers = [source.streamReader(source.schema()) for _ in range(3)]
        off.streamReader(off.schema())
    assert [type(reader) for reader in readers] == [StreamReader] * 3
    assert [str(one.message) for one in logged] == [
        f"option 'earlyRows' has no effect: PySpark {pyspark.__version__} plans micro-batches in another way "
        "than 4.0 to 4.3. Tasks read all micro-batches; earlyRows=off omits this warning."
    ]


def test_spark_asks_a_reader_in_the_order_that_rows_rely_on() -> None:
    """The contract with the function of PySpark that plans micro-batches, in the version that is
    installed.
    """
    asked: list[str] = []

    class Recorder:
        def partitions(self, start: Any, end: Any) -> list[InputPartition]:
            asked.append(f"partitions {start} {end}")
            return [InputPartition(1)]

        def getCache(self, start: Any, end: Any) -> Iterator[Any]:  # noqa: N802
            asked.append(f"getCache {start} {end}")
            return iter(())

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            asked.append("is it the wrapper?")
            return GivesRows

    sent = io.BytesIO()
    for offset in (b"1", b"2"):
        sent.write(len(offset).to_bytes(4, "big") + offset)
    sent.seek(0)
    runner.partitions_func(Recorder(), None, StructType([]), 10, sent, io.BytesIO())  # type: ignore[arg-type]
    assert asked == ["partitions 1 2", "is it the wrapper?", "getCache 1 2"]


def test_a_plan_of_several_tasks_and_a_plan_of_nothing_have_no_rows(
    servers: str, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    filled(servers, topic, [b"a", b"b"])
    reader = make_reader(topic, minPartitions="2")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert len(reader.partitions(start, end)) == 2
    assert not isinstance(reader, GivesRows)
    assert reader.partitions(end, end) == []
    assert not isinstance(reader, GivesRows)


def test_what_is_many_offsets_is_left_to_a_task(servers: str) -> None:
    assert early(servers).read(task("nobody-asks-for-it", 0, early_rows.TINY_OFFSETS + 1)) is None


def test_what_is_many_bytes_is_left_to_a_task_and_so_are_some_plans_after_it(
    servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    filled(servers, topic, [b"x" * 600_000] * 2 + [b"small"])
    rows = early(servers)
    assert rows.read(task(topic, 0, 2)) is None
    answers = [rows.read(task(topic, 2, 3)) for _ in range(early_rows.REST_PLANS + 1)]
    assert answers[:-1] == [None] * early_rows.REST_PLANS
    assert answers[-1] is not None
    assert answers[-1][0].column("value").to_pylist() == [b"small"]


def test_what_cannot_be_read_is_left_to_a_task_to_tell_of_and_so_are_some_plans_after_it(
    servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    filled(servers, topic, [b"not a number", b"7"])
    typed = early(servers, of_value(IntegerType()), valueFormat="json", valueSchema="INT", mode="failfast")
    assert typed.read(task(topic, 0, 1)) is None
    answers = [typed.read(task(topic, 1, 2)) for _ in range(early_rows.REST_PLANS + 1)]
    assert answers[:-1] == [None] * early_rows.REST_PLANS
    assert answers[-1] is not None
    assert answers[-1][0].column("value").to_pylist() == [7]
    assert early(servers).read(task(f"{topic}-that-is-not-there", 0, 1)) is None


def test_records_that_do_not_come_in_time_are_left_to_a_task(
    servers: str, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    monkeypatch.setattr(early_rows, "PATIENCE_MS", 50)
    assert early(servers, **{"kafka.isolation.level": "read_committed"}).read(task(topic, 0, 1)) is None


def test_a_plan_without_records_has_no_rows_and_needs_no_task(servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=servers, transactional_id=f"writer-of-{topic}") as producer:
        producer.init()
        producer.begin()
        producer.send(topic, value=b"aborted")
        producer.flush()
        producer.abort()
    assert early(servers, **{"kafka.isolation.level": "read_committed"}).read(task(topic, 0, 2)) == []


def test_a_stream_that_lost_records_has_no_rows_with_its_plans(
    servers: str, admin: Admin, make_topic: MakeTopic, make_reader: Any
) -> None:
    topic = make_topic()
    filled(servers, topic, [b"a", b"b", b"c"])
    reader = make_reader(topic, failOnDataLoss="skip")
    start = reader.initialOffset()
    admin.delete_records({TopicPartition(topic, 0): 2})
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end["lost"] == {topic: {"0": 2}}
    assert len(reader.partitions(start, end)) == 1
    assert not isinstance(reader, GivesRows)


def of_value(kind: DataType, **more: Any) -> StructType:
    return StructType([StructField("value", kind, **more)])


def test_all_columns_as_they_are_may_come_with_the_plan(servers: str) -> None:
    source = SparklogSource({"kafka.bootstrap.servers": servers, "subscribe": "t", "includeHeaders": "true"})
    assert can_take_early(source.schema())


@pytest.mark.parametrize(
    "columns",
    [
        of_value(
            StructType(
                [StructField("a", DecimalType(10, 2)), StructField("b", of_value(ArrayType(StringType())))]
            )
        ),
        of_value(DateType(), nullable=False),
    ],
)
def test_typed_columns_may_come_with_the_plan(columns: StructType) -> None:
    assert can_take_early(columns)


@pytest.mark.parametrize(
    "columns",
    [
        of_value(of_value(ArrayType(LongType()))),
        of_value(ArrayType(ArrayType(StringType()))),
        of_value(MapType(StringType(), StringType())),
        of_value(TimestampNTZType()),
        of_value(StringType("UTF8_LCASE")),
        of_value(StringType(), metadata={"comment": "what it is"}),
    ],
)
def test_columns_that_spark_copies_otherwise_are_left_to_tasks(columns: StructType) -> None:
    assert not can_take_early(columns)


VALUES = [
    *(
        b'{"a": %d, "b": ["x", null], "c": {"d": "2026-01-0%dT00:00:00Z", "e": [{"x": 1}, {"y": "z"}, null]}}'
        % (n, n)
        for n in range(1, 8)
    ),
    b'{"f": 1.25, "g": "2026-02-03", "h": true, "i": [1.5, null, 2.75], "j": 0.5}',
    b"{}",
    None,
]
TYPES = (
    "a INT, b ARRAY<STRING>, c STRUCT<d: TIMESTAMP, e: ARRAY<STRUCT<x: INT, y: STRING>>>,"
    " f DECIMAL(5,2), g DATE, h BOOLEAN, i ARRAY<DECIMAL(5,2)>, j DOUBLE, absent STRING"
)
KINDS = [
    {"includeHeaders": "true"},
    {"valueFormat": "string", "keyFormat": "string"},
    {"valueFormat": "json", "valueSchema": TYPES},
]


@pytest.mark.spark
@pytest.mark.parametrize("options", KINDS, ids=["headers", "text", "typed"])
def test_rows_are_the_same_with_the_plan_and_from_tasks(
    spark: SparkSession, servers: str, make_topic: MakeTopic, tmp_path: Path, options: dict[str, str]
) -> None:
    import sparklog

    sparklog.register(spark)
    topic = make_topic()
    filled(servers, topic, VALUES)
    frames: dict[str, DataFrame] = {}

    def landed(name: str, **more: str) -> DataFrame:
        def take(batch: DataFrame, _: int) -> None:
            frames[name] = spark.createDataFrame(batch.collect(), batch.schema)
            assert batch.count() == len(VALUES), "a frame that is asked twice"

        source = stream(spark, servers, topic, **options, **more)
        assert can_take_early(source.schema)
        run_to_end(source, tmp_path / name, take)
        return frames[name].orderBy("offset")

    assert_df_equality(landed("with the plan"), landed("from tasks", minPartitions="2"))


@pytest.mark.spark
def test_no_worker_is_asked_for_rows_that_came_with_the_plan(
    spark: SparkSession, servers: str, admin: Admin, make_topic: MakeTopic, tmp_path: Path
) -> None:
    import sparklog

    sparklog.register(spark)
    topic = make_topic()
    filled(servers, topic, [b"a", b"b"])

    def take(batch: DataFrame, _: int) -> None:
        # Nothing is left in the log: had it not come with the plan, a task would look for it and fail.
        admin.delete_records({TopicPartition(topic, 0): 2})
        values.extend(bytes(row.value) for row in batch.select("value").collect())

    values: list[bytes] = []
    run_to_end(stream(spark, servers, topic), tmp_path, take)
    assert values == [b"a", b"b"]
