"""Columns of records and Arrow arrays over the same buffers, in both directions, without a copy or an
object per record.

The columns topic and partition, which are the same in every row, are built once for the largest number of
rows seen and then sliced.
"""

from collections.abc import Iterator, Sequence
from struct import pack

import pyarrow as pa
from pyspark.sql.types import StructType

from sparklog.errors import SparklogError
from sparklog.model import Offset, TopicPartition
from sparklog.record.batch import Buffer
from sparklog.record.columns import (
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    BinaryColumn,
    Columns,
    FixedColumn,
    HeadersColumn,
    read_columns,
)
from sparklog.spark.decoding import AS_THEY_ARE, Decoding
from sparklog.spark.schema import CORRUPT, arrow_schema

_FLAGS = {
    "key": KEY,
    "value": VALUE,
    "offset": OFFSET,
    "timestamp": TIMESTAMP,
    "timestampType": TIMESTAMP_TYPE,
    "headers": HEADERS,
}


_TIMES_BEYOND = (-(2**63), 2**63 - 1)
"""The values in a column for a time that does not fit 64 bits of microseconds."""


class TimestampOutOfRange(SparklogError):
    """The timestamp of a record is beyond Spark's range; names the record."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(
            f"the record at offset {offset} of {partition} has a timestamp that Spark cannot hold in "
            f"microseconds:"
            " leave the column out with .schema(…), or start after this record"
        )


class ArrowColumns:
    """Turns batches of one partition into Arrow. Only the columns of `schema` are built."""

    def __init__(
        self,
        schema: StructType,
        partition: TopicPartition,
        *,
        decoding: Decoding = AS_THEY_ARE,
        check_crcs: bool = True,
    ) -> None:
        self._schema = arrow_schema(schema)
        self._wanted = 0
        for name in (*self._schema.names, *decoding.needs):
            self._wanted |= _FLAGS.get(name, 0)
        self._decoding = decoding
        self._partition = partition
        self._check_crcs = check_crcs
        self._constant_rows = 0
        self._topics = self._partitions = pa.nulls(0)

    def record_batches(
        self, batches: memoryview, start: Offset, limit: Offset
    ) -> Iterator[tuple[pa.RecordBatch, Offset]]:
        """The records of `[start, limit)` in `batches`, in order; each piece with the offset after it."""
        for columns in read_columns([batches], start, limit, self._wanted, verify_crc=self._check_crcs):
            if columns.timestamps is not None and columns.count and not _are_times(columns):
                raise TimestampOutOfRange(self._partition, self._first_beyond(batches, start, limit))
            decoded = self._decoded(columns) if self._decoding.needs and columns.count else {}
            arrays = [
                decoded[field.name] if field.name in decoded else self._array(field, columns)
                for field in self._schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema), Offset(columns.next_offset)

    def _first_beyond(self, batches: memoryview, start: Offset, limit: Offset) -> int:
        """The offset of the first record whose timestamp is out of range."""
        import pyarrow.compute as pc

        for columns in read_columns([batches], start, limit, OFFSET | TIMESTAMP, verify_crc=False):
            if columns.count and not _are_times(columns):
                times = _fixed(pa.int64(), columns.count, columns.timestamps)
                row = pc.index(pc.is_in(times, pa.array(_TIMES_BEYOND)), True).as_py()
                offset: int = _fixed(pa.int64(), columns.count, columns.offsets)[row].as_py()
                return offset
        raise AssertionError("one of these records has it")

    def _decoded(self, columns: Columns) -> dict[str, pa.Array]:
        kind, count = pa.binary(), columns.count
        raw = {"key": columns.key, "value": columns.value}
        given = {name: _binary(kind, count, column) for name, column in raw.items() if column is not None}
        offsets = None if columns.offsets is None else _fixed(pa.int64(), count, columns.offsets)
        return self._decoding.decode(given, self._partition, offsets)

    def _array(self, field: pa.Field, columns: Columns) -> pa.Array:
        match field.name:
            case "key" | "value" if columns.count == 0:
                return pa.nulls(0, field.type)
            case "key":
                return _binary(field.type, columns.count, columns.key)
            case "value":
                return _binary(field.type, columns.count, columns.value)
            case "offset":
                return _fixed(field.type, columns.count, columns.offsets)
            case "timestamp":
                return _fixed(field.type, columns.count, columns.timestamps)
            case "timestampType":
                return _fixed(field.type, columns.count, columns.timestamp_types)
            case "headers":
                return _headers(field.type, columns.count, columns.headers)
        if field.name == CORRUPT:
            return pa.nulls(columns.count, field.type)
        self._make_constants(columns.count)
        return (self._topics if field.name == "topic" else self._partitions)[: columns.count]

    def _make_constants(self, rows: int) -> None:
        if rows <= self._constant_rows:
            return
        self._constant_rows = rows = max(rows, 2 * self._constant_rows)
        topic = self._partition.topic.encode()
        self._topics = _repeated(pa.string(), [None, pack("=2i", 0, len(topic)), topic], rows)
        self._partitions = _repeated(pa.int32(), [None, pack("=i", self._partition.partition)], rows)


def _repeated(kind: pa.DataType, value: Sequence[Buffer | None], rows: int) -> pa.Array:
    """`rows` copies of a value, given as the buffers of an array of one; `pa.scalar` would import pandas,
    half a second in each worker.
    """
    return pa.repeat(
        pa.Array.from_buffers(kind, 1, [_held(buffer) for buffer in value], null_count=0)[0], rows
    )


def _are_times(columns: Columns) -> bool:
    # not at the top: the import takes 40 ms, and a driver that only plans does not need it
    import pyarrow.compute as pc

    extremes = pc.min_max(_fixed(pa.int64(), columns.count, columns.timestamps)).as_py()
    return bool(_TIMES_BEYOND[0] < extremes["min"] and extremes["max"] < _TIMES_BEYOND[1])


def _binary(kind: pa.DataType, count: int, column: BinaryColumn | None) -> pa.Array:
    assert column is not None, "a requested column"
    nulls = 0 if column.validity is None else -1
    return pa.Array.from_buffers(
        kind, count, [_held(column.validity), _held(column.offsets), _held(column.data)], null_count=nulls
    )


def _fixed(kind: pa.DataType, count: int, values: Buffer | None) -> pa.Array:
    assert values is not None, "a requested column"
    return pa.Array.from_buffers(kind, count, [None, _held(values)], null_count=0)


def _headers(kind: pa.DataType, count: int, column: HeadersColumn | None) -> pa.Array:
    assert column is not None, "a requested column"
    header_count = memoryview(column.keys.offsets).nbytes // 4 - 1
    struct = kind.value_type
    pairs = [
        _binary(struct.field(0).type, header_count, column.keys),
        _binary(struct.field(1).type, header_count, column.values),
    ]
    headers = pa.StructArray.from_arrays(pairs, fields=list(struct))
    return pa.Array.from_buffers(
        kind, count, [_held(column.validity), _held(column.offsets)], children=[headers]
    )


def _held(buffer: Buffer | None) -> pa.Buffer | None:
    return None if buffer is None else pa.py_buffer(buffer)


def binary_column(values: pa.Array) -> BinaryColumn:
    """A string or binary array as a column; large types are brought to 32-bit offsets."""
    if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type):
        values = values.cast(pa.binary())
    validity, offsets, data = values.buffers()
    return BinaryColumn(validity, _or_empty(offsets, 4), _or_empty(data, 0), values.offset)


def fixed_column(values: pa.Array) -> FixedColumn:
    """An array of integers as a column."""
    validity, content = values.buffers()
    return FixedColumn(validity, _or_empty(content, 0), values.offset)


def headers_column(lists: pa.Array) -> HeadersColumn:
    """An array of lists of (key, value) as a column."""
    pairs = lists.values
    validity, offsets = lists.buffers()[:2]
    # The offset of a struct does not apply to its children.
    keys, values = (pairs.field(index) for index in range(2))
    return HeadersColumn(
        validity, _or_empty(offsets, 4), binary_column(keys), binary_column(values), lists.offset
    )


def _or_empty(buffer: pa.Buffer | None, size: int) -> Buffer:
    """The buffer, or zeros if Arrow has none for an array without rows."""
    return memoryview(buffer) if buffer is not None else bytes(size)
