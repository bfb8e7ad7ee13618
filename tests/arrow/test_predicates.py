"""Filters become ranges: no record that passes is left out, and what a filter excludes plainly is."""

import datetime
import operator
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparklog
from sparklog import Admin, NewTopic, Producer, TopicPartition
from sparklog.arrow.plan import Plan
from sparklog.arrow.predicates import Predicate
from sparklog.arrow.ranges import OffsetRange
from sparklog.model import Offset
from tests.properties import examples

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("x", pa.int64()),
    ]
)
PIECES = [OffsetRange(TopicPartition("t", number), Offset(0), Offset(20)) for number in range(3)]
RECORDS = pa.table(
    {
        "topic": ["t"] * 60,
        "partition": [number // 20 for number in range(60)],
        "offset": [number % 20 for number in range(60)],
        # out of order, as producers may write them
        "timestamp": pa.array([(number * 7919) % 60 * 1_000_000 for number in range(60)], TIME),
        "x": [None if number % 7 == 0 else number for number in range(60)],
    },
    schema=SCHEMA,
)
offset, partition, x = pc.field("offset"), pc.field("partition"), pc.field("x")


def micros(number: int) -> pa.Scalar:
    return pa.scalar(number, TIME)


def bounds(passes: pc.Expression) -> list[tuple[int, int, int]]:
    pieces = Predicate(passes, SCHEMA).bounded(PIECES)
    return [(piece.partition.partition, piece.start, piece.limit) for piece in pieces]


@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        ((offset >= 5) & (partition == 1), [(1, 5, 20)]),
        ((offset > 5) & (offset <= 7), [(0, 6, 8), (1, 6, 8), (2, 6, 8)]),
        (offset.isin([3, 9]) & partition.isin([0]), [(0, 3, 10)]),
        ((partition == 0) | (offset < 2), [(0, 0, 20), (1, 0, 2), (2, 0, 2)]),
        (x > 5, [(0, 0, 20), (1, 0, 20), (2, 0, 20)]),
        (offset > 100, []),
        (pc.field("topic") == "u", []),
        (offset * 2 > 30, [(0, 0, 20), (1, 0, 20), (2, 0, 20)]),  # Arrow cannot decide: all is read
    ],
)
def test_conditions_on_partition_and_offset_are_ranges(
    passes: pc.Expression, expected: list[tuple[int, int, int]]
) -> None:
    assert bounds(passes) == expected


def test_only_the_earliest_time_bounds_a_log() -> None:
    time = pc.field("timestamp")
    assert Predicate(time >= micros(5_000_000), SCHEMA).timestamp_ms() == 5000
    assert Predicate((time > micros(5_000_000)) & (x > 1), SCHEMA).timestamp_ms() == 5000
    assert Predicate((time > micros(5_000_000)) | (x > 1), SCHEMA).timestamp_ms() == 0
    assert Predicate(time < micros(5_000_000), SCHEMA).timestamp_ms() == 0
    assert Predicate(x > 1, SCHEMA).timestamp_ms() == 0


compared = st.sampled_from([operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
leaves = st.one_of(
    st.builds(lambda op, n: op(offset, n), compared, st.integers(-2, 22)),
    st.builds(lambda op, n: op(partition, n), compared, st.integers(-1, 3)),
    st.builds(lambda op, n: op(x, n), compared, st.integers(0, 60)),
    st.builds(lambda op, n: op(pc.field("timestamp"), micros(n * 500_000)), compared, st.integers(0, 130)),
    st.builds(lambda numbers: offset.isin(numbers), st.lists(st.integers(0, 20), min_size=1, max_size=4)),
    st.just(x.is_null()),
)
filters = st.recursive(
    leaves,
    lambda inner: st.builds(operator.and_, inner, inner) | st.builds(operator.or_, inner, inner),
    max_leaves=6,
)


@given(filters)
@examples(40)
def test_no_record_that_passes_is_outside_the_ranges(passes: pc.Expression) -> None:
    predicate = Predicate(passes, SCHEMA)
    ranges = {piece.partition.partition: piece for piece in predicate.bounded(PIECES)}
    earliest_us = predicate.timestamp_ms() * 1000
    for row in RECORDS.filter(passes).to_pylist():
        piece = ranges[row["partition"]]
        assert piece.start <= row["offset"] < piece.limit
        assert int(row["timestamp"].timestamp() * 1_000_000) >= earliest_us


# -- through DuckDB ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flights() -> Iterator[sparklog.TopicRead]:
    """Records whose timestamps go up by a second, and one that is late by a day."""
    with sparklog.embedded() as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("flights", partition_count=2, configs={"retention.ms": "-1"})])
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(100):
                at_ms = 1_767_225_600_000 + number * 1000 - (86_400_000 if number == 98 else 0)
                value = b'{"carrier":"%s","delay":%d}' % ((b"AA", b"UA")[number % 3 == 0], number)
                producer.send("flights", value, partition=number % 2, timestamp_ms=at_ms)
        read = sparklog.read("flights", value_format="json", bootstrap_servers=servers)
        yield read.select(read.available)


@pytest.mark.parametrize(
    ("where", "count", "read_max"),
    [
        ("timestamp >= '2026-01-01 00:01:30Z'", 9, 10),
        ("timestamp < '2026-01-01 00:00:10Z'", 11, 100),
        ("timestamp > '2026-01-01 00:01:30Z' AND carrier = 'AA'", 5, 10),
        ('partition = 1 AND "offset" BETWEEN 10 AND 19', 10, 10),
        ("delay >= 90", 10, 100),
        ("timestamp >= '2026-01-01 00:01:30Z' OR delay = 3", 10, 100),
        ("timestamp > now()", 0, 0),
    ],
)
def test_a_query_reads_what_its_conditions_leave(
    flights: sparklog.TopicRead, monkeypatch: pytest.MonkeyPatch, where: str, count: int, read_max: int
) -> None:
    begun: list[int] = []
    begin = Plan.begin

    def counted(self: Plan, projection: Any) -> Any:
        begun.append(sum(map(len, self.ranges)))
        return begin(self, projection)

    monkeypatch.setattr(Plan, "begin", counted)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("flights", flights.dataset())
        found = connection.execute(f"SELECT count(*) FROM flights WHERE {where}").fetchall()
    assert (found, begun[0] <= read_max) == ([(count,)], True)


def test_polars_scans_a_topic_too(flights: sparklog.TopicRead) -> None:
    import polars

    scanned = polars.scan_pyarrow_dataset(flights.dataset())
    late = polars.col("timestamp") < datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert scanned.filter(late).select("delay").collect()["delay"].to_list() == [98]
    table = flights.dataset().to_table(["carrier"], filter=offset < 1)
    found = sorted(table.to_pylist(), key=lambda row: row["carrier"])  # partitions come in any order
    assert found == [{"carrier": "AA"}, {"carrier": "UA"}]
