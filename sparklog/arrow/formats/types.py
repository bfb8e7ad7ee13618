"""The types of columns: Arrow types with the names that Spark's SQL has for them, and predicates on them."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
}
"""The simple types that decoders have."""


def array_of(element: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """`array<element>`, with the names of fields that Spark has."""
    return pa.list_(pa.field("element", element, nullable=nullable))


def map_of(key: pa.DataType, value: pa.DataType, *, nullable: bool = True) -> pa.DataType:
    """`map<key,value>`, with the names of fields that Spark has."""
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value, nullable=nullable))


def name_of(kind: pa.DataType, name: Callable[[str], str] = str) -> str:
    """The type in DDL, such as `array<bigint>`; `name` quotes the name of a field."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{name_of(kind.value_type, name)}>"
    if pa.types.is_map(kind):
        return f"map<{name_of(kind.key_type, name)},{name_of(kind.item_type, name)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{name(field.name)}:{name_of(field.type, name)}' for field in kind)}>"
    return NAMES.get(kind) or str(kind)


def ddl_of(kind: pa.DataType) -> str:
    """The type as `parse_schema` reads it, with any characters in the names."""
    return name_of(kind, lambda name: f"`{name.replace('`', '``')}`")


def names_of(struct: pa.StructType) -> list[str]:
    """The names of the fields of a struct."""
    return [field.name for field in struct]


def nullable(kind: pa.DataType) -> pa.DataType:
    """The type with all parts nullable: a reader cannot guarantee what a producer wrote."""
    if pa.types.is_list(kind):
        return array_of(nullable(kind.value_type))
    if pa.types.is_map(kind):
        return map_of(nullable(kind.key_type), nullable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, nullable(field.type)) for field in kind])
    return kind


def is_choice(wanted: pa.DataType, known: pa.DataType) -> bool:
    """Whether `wanted` is `known`, with fields of structs left out at any depth."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(known):
        by_name = {field.name: field.type for field in known}
        is_known = all(
            field.name in by_name and is_choice(field.type, by_name[field.name]) for field in wanted
        )
        names = names_of(wanted)
        return is_known and len(names) > 0 and len(set(names)) == len(names)
    if pa.types.is_list(wanted) and pa.types.is_list(known):
        return is_choice(wanted.value_type, known.value_type)
    if pa.types.is_map(wanted) and pa.types.is_map(known):
        return bool(wanted.key_type == known.key_type) and is_choice(wanted.item_type, known.item_type)
    return bool(wanted == known)


def check_names(kind: pa.DataType) -> None:
    """Refuses a struct without columns, or with one name twice, at any depth."""
    if pa.types.is_list(kind):
        check_names(kind.value_type)
    elif pa.types.is_map(kind):
        check_names(kind.key_type)
        check_names(kind.item_type)
    elif pa.types.is_struct(kind):
        names = names_of(kind)
        if not names:
            raise ValueError("a struct without fields cannot be decoded to")
        if len(set(names)) != len(names):
            raise ValueError(f"a field is named twice among {', '.join(names)}")
        for field in kind:
            check_names(field.type)
