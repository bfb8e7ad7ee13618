"""Rows on their way to topics and partitions. No Spark session here."""

import pyarrow as pa
import pytest

from sparklog.spark.rows import RowRefused, check_partitions, check_timestamps, rows_by_topic


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def split(rows: pa.RecordBatch, topic: str | None = None) -> list[tuple[str, list[str]]]:
    return [
        (part.topic, part.rows.column("value").to_pylist())
        for part in rows_by_topic(rows, topic, rows_before=0)
    ]


VALUES = pa.array(["1", "2", "3", "4"])


def test_rows_keep_their_order_within_each_topic() -> None:
    assert split(batch(value=VALUES, topic=pa.array(["b", "a", "b", "a"]))) == [
        ("b", ["1", "3"]),
        ("a", ["2", "4"]),
    ]


def test_the_option_is_stronger_than_the_column() -> None:
    assert split(batch(value=VALUES, topic=pa.array(["b", None, "b", "a"])), "c") == [
        ("c", ["1", "2", "3", "4"])
    ]


def test_a_null_topic_is_told_with_its_row_in_the_task() -> None:
    with pytest.raises(RowRefused, match="'topic' is null in row 102"):
        list(rows_by_topic(batch(value=VALUES, topic=pa.array(["a", "a", None, "a"])), None, rows_before=100))


def test_a_partition_outside_the_topic_is_told_with_its_row_in_the_task() -> None:
    partitions = pa.array([0, 5, None, 2], pa.int32())
    rows = batch(value=VALUES, topic=pa.array(["a", "a", "b", "b"]), partition=partitions)
    a, b = rows_by_topic(rows, None, rows_before=10)
    with pytest.raises(
        RowRefused, match=r"'partition' is 5 in row 11 of its task, but topic 'a' has partitions 0 to 4"
    ):
        check_partitions(a, 5, rows_before=10)
    with pytest.raises(RowRefused, match=r"'partition' is 2 in row 13"):
        check_partitions(b, 2, rows_before=10)
    check_partitions(b, 3, rows_before=10)


def test_without_partitions_there_is_nothing_to_refuse() -> None:
    rows = batch(value=VALUES, partition=pa.array([None] * 4, pa.int32()))
    (only,) = rows_by_topic(rows, "t", rows_before=0)
    check_partitions(only, 1, rows_before=0)


def test_a_time_before_1970_is_told_with_its_row_in_the_task() -> None:
    times = pa.array([0, None, -1_500_000, 5], pa.timestamp("us", tz="UTC"))
    (only,) = rows_by_topic(batch(value=VALUES, timestamp=times), "t", rows_before=20)
    with pytest.raises(RowRefused, match=r"'timestamp' is -1\.500 s after 1970 in row 22 of its task"):
        check_timestamps(only, rows_before=20)
    nothing = pa.array([None] * 4, pa.timestamp("us", tz="UTC"))
    (only,) = rows_by_topic(batch(value=VALUES, timestamp=nothing), "t", rows_before=20)
    check_timestamps(only, rows_before=20)
