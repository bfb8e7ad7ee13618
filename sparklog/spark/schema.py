"""The columns that a read gives: those of Spark's Kafka connector, as Spark types and as the exact Arrow types Spark asks for.

A schema the user supplies is a projection: a subset of the columns, by name, each of its own type. Columns left out are not built at all,
which is the one way to prune columns that Spark's Python data sources have.
"""

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.errors import SettingsError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

_COLUMNS: dict[str, tuple[DataType, pa.DataType]] = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "timestampType": (IntegerType(), pa.int32()),
    "headers": (
        ArrayType(_HEADER),
        pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    ),
}
_MAY_BE_NULL = frozenset({"key", "value", "headers"})


def source_schema(*, include_headers: bool) -> StructType:
    """The columns of a read, all of them nullable as in Spark's Kafka connector; `headers` only when asked for."""
    return StructType([StructField(name, kind) for name, (kind, _) in _COLUMNS.items() if include_headers or name != "headers"])


def check_projection(schema: StructType, *, include_headers: bool) -> StructType:
    """Refuses a schema that is not a choice of the columns; returns it otherwise."""
    known = source_schema(include_headers=include_headers)
    if not schema.fields:
        raise SettingsError("the schema of a sparklog read must hold at least one column")
    for column in schema.fields:
        if column.name not in known.names:
            hint = "; set the option includeHeaders to true" if column.name == "headers" else ""
            raise SettingsError(
                f"a sparklog read has no column {column.name!r}: a schema may only choose among {', '.join(known.names)}{hint}"
            )
        if column.dataType != known[column.name].dataType:
            kind = known[column.name].dataType.simpleString()
            raise SettingsError(
                f"column {column.name!r} of a sparklog read is {kind}, not {column.dataType.simpleString()}: cast it in the query"
            )
        if not column.nullable and column.name in _MAY_BE_NULL:
            raise SettingsError(f"column {column.name!r} of a sparklog read may be null, so the schema cannot say NOT NULL")
    if len(set(schema.names)) != len(schema.names):
        raise SettingsError(f"a column is named twice in the schema: {', '.join(schema.names)}")
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares the first record batch of a task with, field by field."""
    return pa.schema([pa.field(column.name, _COLUMNS[column.name][1], nullable=column.nullable) for column in schema.fields])
