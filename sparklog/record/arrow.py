"""Columns of records and Arrow arrays over the same buffers, in both directions, without a copy or an object
per record. The only file of this package that needs pyarrow.
"""

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Final

import pyarrow as pa

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
)

COLUMN_FLAGS: Final[Mapping[str, int]] = {
    "key": KEY,
    "value": VALUE,
    "offset": OFFSET,
    "timestamp": TIMESTAMP,
    "timestampType": TIMESTAMP_TYPE,
    "headers": HEADERS,
}
"""The flags of `read_columns` for the columns that are in the records."""


def column_array(field: pa.Field, columns: Columns) -> pa.Array:
    """A column of `COLUMN_FLAGS`, in the type of `field`."""
    match field.name:
        case "key" | "value" if columns.count == 0:
            return pa.nulls(0, field.type)
        case "key":
            return binary_array(field.type, columns.count, columns.key)
        case "value":
            return binary_array(field.type, columns.count, columns.value)
        case "offset":
            return fixed_array(field.type, columns.count, columns.offsets)
        case "timestamp":
            return fixed_array(field.type, columns.count, columns.timestamps)
        case "timestampType":
            return fixed_array(field.type, columns.count, columns.timestamp_types)
    return headers_array(field.type, columns.count, columns.headers)


def binary_array(kind: pa.DataType, count: int, column: BinaryColumn | None) -> pa.Array:
    """Byte strings, or text, as an array."""
    assert column is not None, "a requested column"
    nulls = 0 if column.validity is None else -1
    return pa.Array.from_buffers(
        kind,
        count,
        [_arrow_buffer(column.validity), _arrow_buffer(column.offsets), _arrow_buffer(column.data)],
        null_count=nulls,
    )


def fixed_array(kind: pa.DataType, count: int, values: Buffer | None) -> pa.Array:
    """Integers as an array without nulls."""
    assert values is not None, "a requested column"
    return pa.Array.from_buffers(kind, count, [None, _arrow_buffer(values)], null_count=0)


def headers_array(kind: pa.DataType, count: int, column: HeadersColumn | None) -> pa.Array:
    """Lists of (key, value) as an array."""
    assert column is not None, "a requested column"
    header_count = memoryview(column.keys.offsets).nbytes // 4 - 1
    struct = kind.value_type
    pairs = [
        binary_array(struct.field(0).type, header_count, column.keys),
        binary_array(struct.field(1).type, header_count, column.values),
    ]
    headers = pa.StructArray.from_arrays(pairs, fields=list(struct))
    return pa.Array.from_buffers(
        kind, count, [_arrow_buffer(column.validity), _arrow_buffer(column.offsets)], children=[headers]
    )


def repeated(kind: pa.DataType, value: Sequence[Buffer | None], rows: int) -> pa.Array:
    """`rows` copies of a value, given as the buffers of an array of one; `pa.scalar` would import pandas,
    half a second in each worker.
    """
    return pa.repeat(
        pa.Array.from_buffers(kind, 1, [_arrow_buffer(buffer) for buffer in value], null_count=0)[0], rows
    )


def repeated_text(text: str, rows: int) -> pa.Array:
    """`rows` copies of a text."""
    encoded = text.encode()
    return repeated(pa.string(), [None, pack("=2i", 0, len(encoded)), encoded], rows)


def repeated_int32(number: int, rows: int) -> pa.Array:
    """`rows` copies of a number."""
    return repeated(pa.int32(), [None, pack("=i", number)], rows)


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


def _arrow_buffer(buffer: Buffer | None) -> pa.Buffer | None:
    return None if buffer is None else pa.py_buffer(buffer)


def _or_empty(buffer: pa.Buffer | None, size: int) -> Buffer:
    """The buffer, or zeros if Arrow has none for an array without rows."""
    return memoryview(buffer) if buffer is not None else bytes(size)
