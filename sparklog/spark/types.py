"""Spark types and the Arrow types that Spark compares with, in both directions."""

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
_OF_ARROW: Final = {arrow: spark for spark, arrow in _SIMPLE.items()}


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


def spark_type(kind: pa.DataType) -> DataType:
    """The Spark type of an Arrow type that `arrow_type` or a decoder makes."""
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_map(kind):
        return MapType(spark_type(kind.key_type), spark_type(kind.item_type), kind.item_field.nullable)
    if pa.types.is_struct(kind):
        return StructType([StructField(field.name, spark_type(field.type), field.nullable) for field in kind])
    return _OF_ARROW[kind]()
