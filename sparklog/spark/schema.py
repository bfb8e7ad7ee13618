"""The columns of a read: those of Spark's Kafka connector, with keys and values as typed columns if options
set a format.

A schema supplied by the user is a projection: a subset of the columns, by name, each with its own type, or
a struct with fields left out. Columns that are left out are not built, which is the only column pruning
that Spark's Python data sources have.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from sparklog.arrow.decoding import CORRUPT, CORRUPT_TYPE
from sparklog.arrow.formats.choice import PARTS, check_part, check_wanted, column_type
from sparklog.arrow.formats.files import schema_text
from sparklog.arrow.formats.names import Mode, PartFormat, is_decoding
from sparklog.column_types import COLUMN_TYPES
from sparklog.errors import SettingsError
from sparklog.spark.options import Options
from sparklog.spark.types import arrow_type, spark_type

_COLUMNS: Final[Mapping[str, DataType]] = {
    **{name: spark_type(kind) for name, kind in COLUMN_TYPES.items()},
    CORRUPT: spark_type(CORRUPT_TYPE),
}
_MAY_BE_NULL = frozenset({"key", "value", "headers", CORRUPT})


def source_schema(options: Options) -> StructType:
    """The columns of a read, all nullable as in Spark's Kafka connector; `headers` and `_corrupt` only if
    options enable them.
    """
    parts = parts_of(options)
    fields: list[StructField] = []
    for name in _names(options):
        kind = _part_type(parts[name]) if name in PARTS else _COLUMNS[name]
        if kind is None:
            raise SettingsError(
                f"option '{name}Format' is json: set '{name}Schema', or the schema of the read"
            )
        fields.append(StructField(name, kind))
    return StructType(fields)


def check_projection(schema: StructType, options: Options) -> StructType:
    """Refuses a schema that is not a projection of the columns; otherwise returns it."""
    names, parts = _names(options), parts_of(options)
    if not schema.fields:
        raise SettingsError("the schema of a sparklog read must hold at least one column")
    for column in schema.fields:
        if column.name not in names:
            raise SettingsError(
                f"a sparklog read has no column {column.name!r}: a schema may only choose among "
                f"{', '.join(names)}{_hint(column.name)}"
            )
        if column.name in PARTS:
            _check_part(parts[column.name], column.dataType)
        elif column.dataType != _COLUMNS[column.name]:
            kind, asked = _COLUMNS[column.name].simpleString(), column.dataType.simpleString()
            raise SettingsError(
                f"column {column.name!r} of a sparklog read is {kind}, not {asked}: cast it in the query"
            )
        if not column.nullable and column.name in _MAY_BE_NULL:
            raise SettingsError(
                f"column {column.name!r} of a sparklog read may be null, so the schema cannot say NOT NULL"
            )
    if len(set(schema.names)) != len(schema.names):
        raise SettingsError(f"a column is named twice in the schema: {', '.join(schema.names)}")
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares the first record batch of a task with, field by field."""
    return pa.schema(
        [
            pa.field(column.name, arrow_type(column.dataType), nullable=column.nullable)
            for column in schema.fields
        ]
    )


def _part_type(part: PartFormat) -> DataType | None:
    kind = column_type(part)
    return None if kind is None else spark_type(kind)


def _check_part(part: PartFormat, wanted: DataType) -> None:
    try:
        kind = arrow_type(wanted)
    except ValueError as error:
        raise SettingsError(f"column {part.part!r} of a sparklog read: {error}") from error
    check_wanted(part, kind)


def _names(options: Options) -> list[str]:
    left_out = {"headers": not options.include_headers, CORRUPT: not has_corrupt_column(options)}
    return [name for name in _COLUMNS if not left_out.get(name)]


def _hint(name: str) -> str:
    if name == "headers":
        return "; set the option includeHeaders to true"
    return "; it comes with valueFormat or keyFormat, unless mode is failfast" if name == CORRUPT else ""


def parts_of(options: Options) -> Mapping[str, PartFormat]:
    """The formats of keys and values, by the name of their column; SettingsError if options are missing or
    contradict each other.
    """
    prefix = options.schema_id_prefix
    key = PartFormat("key", options.key_format, options.key_schema, options.key_message, prefix, True)
    value = PartFormat(
        "value", options.value_format, options.value_schema, options.value_message, prefix, True
    )
    for part in (key, value):
        check_part(part)
    if options.mode is not None and not is_decoding(key, value):
        raise SettingsError("option 'mode' is for records that are decoded: set valueFormat or keyFormat")
    return {"key": key, "value": value}


def has_corrupt_column(options: Options) -> bool:
    """Whether the read has the column `_corrupt`."""
    return is_decoding(*parts_of(options).values()) and options.mode is not Mode.FAILFAST


def with_schemas(options: Options) -> Options:
    """The options with the contents of schema files in place of their names; SettingsError for an
    unreadable file.
    """
    key = schema_text("keySchema", options.key_format, options.key_schema)
    value = schema_text("valueSchema", options.value_format, options.value_schema)
    if (key, value) == (options.key_schema, options.value_schema):
        return options
    return replace(options, key_schema=key, value_schema=value)
