"""Validates rows to be written: their columns, and the topic and partition of each.

The columns are those that Spark's Kafka connector writes, `value` and optionally `key`, `headers`, `topic`
and `partition`, and in addition `timestamp`, so that a copy keeps its timestamps. Other columns are
ignored, as in the connector, so a frame read from a topic can be written unchanged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from sparklog.client.failures import BatchRefused
from sparklog.errors import ErrorCode, SettingsError, SparklogError
from sparklog.spark.options import Options

_HEADERS = "array<struct<key:string,value:binary>>"
_EXPECTED = {
    "key": "string or binary",
    "value": "string or binary",
    "headers": _HEADERS,
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
}
_ARROW = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
}


class RowRefused(SparklogError):
    """A row that cannot become a record; names it, counted from 0 within its task, and the reason."""


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Rows for one topic; `numbers` are their positions in their batch, None if these are all rows of it in
    order.
    """

    topic: str
    rows: pa.RecordBatch
    numbers: pa.Array | None

    def number_of(self, row: int, rows_before: int) -> int:
        """The position in its task of row `row` of `rows`."""
        return rows_before + (row if self.numbers is None else int(self.numbers[row].as_py()))


def check_frame(schema: StructType, options: Options) -> None:
    """Refuses a frame that cannot be written, before any task runs: names the column and the remedy."""
    for column in schema.fields:
        if column.name in _EXPECTED and not _is_expected(column.name, column.dataType):
            kind = column.dataType.simpleString()
            raise SettingsError(
                f"column {column.name!r} is {kind}, and must be {_EXPECTED[column.name]}: cast it"
            )
    if "value" not in schema.names:
        raise SettingsError(
            "column 'value' is missing: a record needs one, as in df.selectExpr('to_json(struct(*)) AS "
            "value')"
        )
    if options.topic is None and "topic" not in schema.names:
        raise SettingsError("no topic to write to: set the option 'topic' or add a column 'topic'")


def _is_expected(name: str, kind: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(kind, StringType | BinaryType)
    if name == "topic":
        return isinstance(kind, StringType)
    if name == "partition":
        return isinstance(kind, IntegerType)
    if name == "timestamp":
        return isinstance(kind, TimestampType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [f.name for f in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )


def rows_by_topic(batch: pa.RecordBatch, topic: str | None, *, rows_before: int) -> Iterator[TopicRows]:
    """The rows of `batch` for each topic, in order within a topic; `topic`, if given, applies to all of
    them.
    """
    if topic is not None:
        yield TopicRows(topic, batch, None)
        return
    column = batch.column("topic")
    if column.null_count:
        number = rows_before + pc.index(pc.is_null(column), True).as_py()
        raise RowRefused(
            f"column 'topic' is null in row {number} of its task, and there is no option 'topic'"
        )
    names: Sequence[str] = pc.unique(column).to_pylist()
    for name in names:
        if len(names) == 1:
            yield TopicRows(name, batch, None)
        else:
            numbers = pc.indices_nonzero(pc.equal(column, name))
            yield TopicRows(name, batch.take(numbers), numbers)


def check_partitions(rows: TopicRows, partition_count: int, *, rows_before: int) -> None:
    """Refuses a partition that the topic does not have; with null, the key determines the partition."""
    if "partition" not in rows.rows.schema.names:
        return
    column = rows.rows.column("partition")
    bounds = pc.min_max(column)
    if not bounds["min"].is_valid or (bounds["min"].as_py() >= 0 and bounds["max"].as_py() < partition_count):
        return
    outside = pc.or_(pc.less(column, 0), pc.greater_equal(column, partition_count))
    at = pc.index(outside, True).as_py()
    number = rows.number_of(at, rows_before)
    raise RowRefused(
        f"column 'partition' is {column[at].as_py()} in row {number} of its task,"
        f" but topic {rows.topic!r} has partitions 0 to {partition_count - 1}"
    )


class WrittenRows:
    """The rows of a task that a broker may refuse although the sink accepts them, by topic: those with the
    earliest and the latest timestamp, and the first one without a key.
    """

    def __init__(self) -> None:
        self._earliest: dict[str, tuple[int, int]] = {}  # timestamp in microseconds, row
        self._latest: dict[str, tuple[int, int]] = {}
        self._keyless: dict[str, int] = {}

    def add(self, rows: TopicRows, *, rows_before: int) -> None:
        """Rows that are about to be sent."""
        topic, names = rows.topic, rows.rows.schema.names
        if topic not in self._keyless and ("key" not in names or rows.rows.column("key").null_count):
            at = pc.index(pc.is_null(rows.rows.column("key")), True).as_py() if "key" in names else 0
            self._keyless[topic] = rows.number_of(at, rows_before)
        if "timestamp" not in names:
            return
        column = rows.rows.column("timestamp").cast(pa.int64())
        bounds = pc.min_max(column)
        if not bounds["min"].is_valid:
            return
        least, most = bounds["min"].as_py(), bounds["max"].as_py()
        if topic not in self._earliest or least < self._earliest[topic][0]:
            self._earliest[topic] = least, rows.number_of(pc.index(column, least).as_py(), rows_before)
        if topic not in self._latest or most > self._latest[topic][0]:
            self._latest[topic] = most, rows.number_of(pc.index(column, most).as_py(), rows_before)

    def refused(self, error: BatchRefused, *, now_ms: int) -> SparklogError:
        """The error of a row because of which a broker refused a batch; `error` itself if no row is known."""
        topic, record = error.topic_partition.topic, error.record
        if record is None:
            return error
        if error.code is ErrorCode.INVALID_TIMESTAMP:
            # A topic accepts the present: what is later than a refused record of the future is refused too.
            known = (self._latest if record.timestamp > now_ms else self._earliest).get(topic)
            if known is not None:
                moment = pa.scalar(known[0], pa.timestamp("us", tz="UTC")).as_py().isoformat()
                return RowRefused(
                    f"column 'timestamp' is {moment} in row {known[1]} of its task, and topic {topic!r} does "
                    f"not accept that: {error}"
                )
        if error.code is ErrorCode.INVALID_RECORD and record.key is None and topic in self._keyless:
            return RowRefused(
                f"row {self._keyless[topic]} of its task has no key, and topic {topic!r} does not accept "
                f"that: {error}"
            )
        return error


def check_timestamps(rows: TopicRows, *, rows_before: int) -> None:
    """Refuses a timestamp before 1970, which a record cannot carry; null means the time of writing."""
    if "timestamp" not in rows.rows.schema.names:
        return
    column = rows.rows.column("timestamp").cast(pa.int64())
    least = pc.min(column)
    if least.is_valid and least.as_py() < 0:
        number = rows.number_of(pc.index(column, least).as_py(), rows_before)
        raise RowRefused(
            f"column 'timestamp' is {least.as_py() / 1e6:.3f} s after 1970 in row {number} of its task, and "
            f"a record's cannot be negative"
        )


def written_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that become part of a record, or determine its topic and partition."""
    return batch.select([name for name in batch.schema.names if name in _EXPECTED])


def frame_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a frame that `check_frame` accepted, for a Spark that passes rows."""
    kinds = {"string": pa.string(), "binary": pa.binary()}
    return pa.schema(
        [
            pa.field(c.name, _ARROW.get(c.name) or kinds[c.dataType.simpleString()])
            for c in schema.fields
            if c.name in _EXPECTED
        ]
    )
