"""Records as Arrow and back, over shared buffers. No Spark session here."""

import datetime
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.arrow.columns import ArrowColumns, TimestampOutOfRange
from sparklog.errors import SettingsError
from sparklog.model import Offset, TopicPartition
from sparklog.record.arrow import binary_column, headers_column
from sparklog.record.batch import build_batch
from sparklog.spark.options import Options
from sparklog.spark.schema import arrow_schema, check_projection, source_schema

WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC)
WHEN_MS = int(WHEN.timestamp() * 1000)
PLAIN = Options()
WITH_HEADERS = Options(include_headers=True)


def batch(*values: bytes | None, base_offset: int = 0) -> bytes:
    return bytes(build_batch([(None, value, (), WHEN_MS) for value in values], base_offset=base_offset))


def read(content: bytes, start: int = 0, limit: int = 100, schema: StructType | None = None) -> pa.Table:
    columns = ArrowColumns(arrow_schema(schema or source_schema(WITH_HEADERS)), TopicPartition("flights", 3))
    pieces = [piece for piece, _ in columns.record_batches(memoryview(content), Offset(start), Offset(limit))]
    for piece in pieces:
        piece.validate(full=True)
    return pa.Table.from_batches(pieces)


@pytest.mark.parametrize("options", [PLAIN, WITH_HEADERS], ids=["plain", "headers"])
def test_the_arrow_schema_is_the_one_that_spark_compares_with(options: Options) -> None:
    schema = source_schema(options)
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))
    projection = StructType([schema["offset"], schema["topic"]])
    projection["offset"].nullable = False
    assert arrow_schema(check_projection(projection, options)).equals(
        to_arrow_schema(projection, timezone="UTC")
    )


def test_a_record_has_every_column() -> None:
    record = (b"key", b"value", (("h", b"1"), ("h", None)), WHEN_MS)
    (row,) = read(bytes(build_batch([record], base_offset=7))).to_pylist()
    assert row == {
        "key": b"key",
        "value": b"value",
        "topic": "flights",
        "partition": 3,
        "offset": 7,
        "timestamp": WHEN,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }


def test_reading_loads_no_pandas() -> None:
    # pyarrow does so by itself wherever it is given Python's own lists or scalars: half a second and 40 MB in
    # every worker.
    content = bytes(build_batch([(b"key", b"value", (("h", b"1"),), WHEN_MS)]))
    code = (
        "import sys; from sparklog.model import TopicPartition; from sparklog.arrow.columns import "
        "ArrowColumns;"
        " from sparklog.spark.options import Options; from sparklog.spark.schema import arrow_schema;"
        " from sparklog.spark.schema import source_schema;"
        " schema = arrow_schema(source_schema(Options(include_headers=True)));"
        " columns = ArrowColumns(schema, TopicPartition('flights', 3));"
        f" read = list(columns.record_batches(memoryview({content!r}), 0, 1)); print(read[0][0].num_rows, "
        f"'pandas' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "1 False\n"
    )


def test_null_and_empty_stay_apart() -> None:
    assert read(batch(None, b"", b"x"))["value"].to_pylist() == [None, b"", b"x"]


def test_records_outside_the_range_are_left_out() -> None:
    content = batch(b"4", b"5", b"6", base_offset=4) + batch(b"7", b"8", base_offset=7)
    assert read(content, 5, 8)["offset"].to_pylist() == [5, 6, 7]


@pytest.mark.parametrize("timestamp_ms", [2**60, -(2**60)])
def test_a_time_beyond_microseconds_is_refused_with_its_record_unless_the_column_is_left_out(
    timestamp_ms: int,
) -> None:
    content = batch(b"a") + bytes(
        build_batch([(None, b"b", (), WHEN_MS), (None, b"c", (), timestamp_ms)], base_offset=1)
    )
    assert read(content, 0, 2)["timestamp"].to_pylist() == [WHEN, WHEN]
    for names in (["timestamp"], ["offset", "timestamp"]):
        with pytest.raises(TimestampOutOfRange, match="offset 2 of flights-3"):
            read(content, schema=StructType([source_schema(PLAIN)[name] for name in names]))
    assert read(content, schema=StructType([source_schema(PLAIN)["value"]]))["value"].to_pylist() == [
        b"a",
        b"b",
        b"c",
    ]


def test_topic_and_partition_fill_batches_of_any_size() -> None:
    columns = ArrowColumns(arrow_schema(source_schema(PLAIN)), TopicPartition("t", 1))
    for size in (3, 40_000, 1, 90_000):
        content = memoryview(batch(*[b""] * size))
        ((piece, after),) = columns.record_batches(content, Offset(0), Offset(100_000))
        piece.validate(full=True)
        assert (after, piece["topic"].unique().to_pylist(), piece["partition"].unique().to_pylist()) == (
            size,
            ["t"],
            [1],
        )


def test_columns_left_out_of_the_schema_are_not_there() -> None:
    schema = StructType([source_schema(PLAIN)[name] for name in ("partition", "value")])
    assert read(batch(b"a"), schema=schema).to_pylist() == [{"partition": 3, "value": b"a"}]


def test_a_schema_names_each_column_once_and_at_least_one() -> None:
    known = source_schema(PLAIN)
    with pytest.raises(SettingsError, match="named twice"):
        check_projection(StructType([known["value"], known["value"]]), PLAIN)
    with pytest.raises(SettingsError, match="at least one column"):
        check_projection(StructType([]), PLAIN)
    projection = StructType([source_schema(PLAIN)["key"]])
    projection["key"].nullable = False
    with pytest.raises(SettingsError, match="cannot say NOT NULL"):
        check_projection(projection, PLAIN)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_a_slice_of_any_text_or_bytes_is_a_column(kind: pa.DataType) -> None:
    column = binary_column(pa.array(["a", "bcd", None, "e"], pa.string()).cast(kind)[1:])
    offsets = memoryview(column.offsets).cast("B").cast("i")
    assert bytes(memoryview(column.data)[offsets[column.start] : offsets[column.start + 1]]) == b"bcd"


def test_headers_without_any_row_are_a_column() -> None:
    kind = arrow_schema(source_schema(WITH_HEADERS)).field("headers").type
    column = headers_column(pa.array([], kind))
    assert (column.start, len(memoryview(column.keys.data))) == (0, 0)
