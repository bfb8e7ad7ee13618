"""The type of JSON values, from a sample of them.

Integers are bigint, other numbers double, objects structs of all fields that the sample has; where values
differ otherwise, the type is string, which accepts every value.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa

from sparklog.arrow.formats.types import array_of

FIELDS_MAX: Final = 1000
DEPTH_MAX: Final = 32
_INT64: Final = 1 << 63
_DECODER: Final = msgspec.json.Decoder()


def inferred_type(values: Iterable[bytes | None]) -> pa.DataType | None:
    """The type that the values share; None if none of them is JSON. ValueError if it has too many fields."""
    kind = pa.null()
    for content in values:
        if content is None:
            continue
        try:
            kind = _merged(kind, _type_of(_DECODER.decode(content), 0))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # it is refused when it is read
    return None if kind == pa.null() else _without_null(kind)


def _type_of(value: Any, depth: int) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -_INT64 <= value < _INT64 else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str) or depth == DEPTH_MAX:
        return pa.string()
    if isinstance(value, list):
        element = pa.null()
        for one in value:
            element = _merged(element, _type_of(one, depth + 1))
        return array_of(element)
    # A field without a name is left out: DDL has none.
    return pa.struct([(name, _type_of(content, depth + 1)) for name, content in value.items() if name])


def _merged(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or other == pa.null():
        return one
    if one == pa.null():
        return other
    kinds = {one, other}
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _merged(fields.get(field.name, pa.null()), field.type)
        if len(fields) > FIELDS_MAX:
            raise ValueError(f"an object has more than {FIELDS_MAX} fields")
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return array_of(_merged(one.value_type, other.value_type))
    return pa.string()


def _without_null(kind: pa.DataType) -> pa.DataType:
    """The type with string in the place of what the sample does not tell: only nulls, or an object without
    fields.
    """
    if pa.types.is_list(kind):
        return array_of(_without_null(kind.value_type))
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([(field.name, _without_null(field.type)) for field in kind])
    return pa.string() if kind == pa.null() or pa.types.is_struct(kind) else kind
