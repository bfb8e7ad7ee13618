"""Spark types as the Arrow types that Spark compares with, and predicates on types for decoders."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_SIMPLE: Final[dict[type[DataType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
}


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type, including the names and nullability of its fields; ValueError for a type that no
    decoder has.
    """
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), nullable=kind.containsNull))
    if isinstance(kind, MapType):
        key = pa.field("key", arrow_type(kind.keyType), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(kind.valueType), nullable=kind.valueContainsNull))
    if isinstance(kind, StructType):
        return pa.struct(
            [
                pa.field(field.name, arrow_type(field.dataType), nullable=field.nullable)
                for field in kind.fields
            ]
        )
    simple = _SIMPLE.get(type(kind))
    if simple is None:
        raise ValueError(
            f"type {kind.simpleString()} is not the type of any decoder; use string and cast in the query"
        )
    return simple


def nullable(kind: DataType) -> DataType:
    """The type with all parts nullable: a reader cannot guarantee what a producer wrote."""
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType), True)
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, nullable(field.dataType), True) for field in kind.fields])
    return kind


def is_choice(wanted: DataType, known: DataType) -> bool:
    """Whether `wanted` is `known`, with fields of structs left out at any depth."""
    if isinstance(wanted, StructType) and isinstance(known, StructType):
        by_name = {field.name: field for field in known.fields}
        is_known = all(
            field.name in by_name and is_choice(field.dataType, by_name[field.name].dataType)
            for field in wanted.fields
        )
        return is_known and len(wanted.fields) > 0 and len(set(wanted.names)) == len(wanted.names)
    if isinstance(wanted, ArrayType) and isinstance(known, ArrayType):
        return is_choice(wanted.elementType, known.elementType)
    if isinstance(wanted, MapType) and isinstance(known, MapType):
        return wanted.keyType == known.keyType and is_choice(wanted.valueType, known.valueType)
    return wanted == known


def check_names(kind: DataType) -> None:
    """Refuses a struct without columns, or with one name twice, at any depth."""
    if isinstance(kind, ArrayType):
        check_names(kind.elementType)
    elif isinstance(kind, MapType):
        check_names(kind.keyType)
        check_names(kind.valueType)
    elif isinstance(kind, StructType):
        if not kind.fields:
            raise ValueError("a struct without fields cannot be decoded to")
        if len(set(kind.names)) != len(kind.names):
            raise ValueError(f"a field is named twice among {', '.join(kind.names)}")
        for field in kind.fields:
            check_names(field.dataType)
