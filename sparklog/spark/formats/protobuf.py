"""Protobuf messages by Google's library, field by field into columns, and messages as Spark types.

    int32, sint32, sfixed32   int        uint32, fixed32, int64 …   bigint        uint64, fixed64   decimal(20,0)
    enum                      string     repeated T                 array<T>      map<K, V>         map<K, V>
    message                   struct     google.protobuf.Timestamp  timestamp     wrappers          their value

A field that was not set is null if its schema can tell (`optional`, `oneof`, messages), else its default,
as Protobuf has it.
"""  # noqa: E501

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.errors import SettingsError
from sparklog.spark.formats.decoded import Decoded, reason_of
from sparklog.spark.formats.names import SchemaIdPrefix
from sparklog.spark.formats.prefix import is_prefixed, message_indexes
from sparklog.spark.formats.types import arrow_type

Get = Callable[[Any], object]

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_DEPTH_MAX: Final = 64


def message_descriptor(descriptors: str, message: str) -> Any:
    """The message named (fully, or by its last part) in a FileDescriptorSet given in base64; ValueError
    unless there is one.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise SettingsError(
            f"format protobuf needs protobuf: pip install 'sparklog[formats]' on driver and executors "
            f"({error})"
        ) from error
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(b64decode(descriptors, validate=True))
    except (ValueError, DecodeError) as error:
        raise ValueError(
            f"not a descriptor set as `protoc --include_imports --descriptor_set_out` writes it "
            f"({reason_of(error)})"
        ) from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
        names = [name for file in files.file for name in _names(file.message_type, file.package)]
        chosen = [name for name in names if name == message or name.endswith(f".{message}")]
        if message in chosen:
            chosen = [message]
        if len(chosen) != 1:
            known = ", ".join((chosen or names)[:20])
            raise ValueError(f"message {message!r} is {'several of' if chosen else 'none of'} {known}")
        return pool.FindMessageTypeByName(chosen[0])
    except (TypeError, KeyError) as error:
        raise ValueError(
            f"the descriptor set is not whole; write it with --include_imports ({reason_of(error)})"
        ) from error


def protobuf_type(descriptor: Any, wanted: DataType | None = None) -> DataType:
    """The Spark type of a message, or of the fields that `wanted` names; ValueError for one that no Spark
    type has.
    """
    return _message_type(descriptor, (), wanted)


class ProtobufDecoder:
    """Messages of one type as `wanted`, which may leave fields out."""

    def __init__(self, descriptor: Any, wanted: DataType, prefix: SchemaIdPrefix) -> None:
        from google.protobuf import message, message_factory

        assert isinstance(wanted, StructType), "a message is a struct"
        self._descriptor = descriptor
        self._parse = message_factory.GetMessageClass(descriptor).FromString
        self._decode_error = message.DecodeError
        self._prefix = prefix
        self._path = _path_of(descriptor)
        self._type = arrow_type(wanted)
        self._columns = _Columns(descriptor, wanted)

    def decode(self, values: pa.Array) -> Decoded:
        messages: list[Any] = []
        refused: dict[int, str] = {}
        for row, content in enumerate(values.to_pylist()):
            message = None
            if content is not None:
                try:
                    message = self._parse(self._content(content))
                except (ValueError, self._decode_error) as error:
                    refused[row] = f"not a {self._descriptor.full_name}: {reason_of(error)}"
            messages.append(message)
        try:
            return Decoded(self._columns.array(messages), refused)
        except (pa.ArrowException, ValueError, OverflowError):
            return self._one_by_one(messages, refused)

    def _one_by_one(self, messages: list[Any], refused: dict[int, str]) -> Decoded:
        """For messages that are sound and still no such row: a time beyond 64 bits of microseconds."""
        arrays: list[pa.Array] = []
        for row, message in enumerate(messages):
            try:
                arrays.append(self._columns.array([message]))
            except (pa.ArrowException, ValueError, OverflowError) as error:
                refused[row] = reason_of(error)
                arrays.append(pa.nulls(1, self._type))
        return Decoded(pa.concat_arrays(arrays), refused)

    def _content(self, content: bytes) -> bytes:
        # No message begins with a zero byte: it would be field number 0.
        if self._prefix is SchemaIdPrefix.NEVER or not is_prefixed(content):
            if self._prefix is SchemaIdPrefix.ALWAYS:
                raise ValueError("the schema id before the content is missing")
            return content
        path, start = message_indexes(content)
        if tuple(path) != self._path:
            raise ValueError(f"the prefix names message {list(path)} of its file, not {list(self._path)}")
        return content[start:]


def _names(messages: Any, package: str) -> list[str]:
    names: list[str] = []
    for message in messages:
        name = f"{package}.{message.name}" if package else message.name
        names += [name, *_names(message.nested_type, name)]
    return names


def _path_of(descriptor: Any) -> tuple[int, ...]:
    outer = descriptor.containing_type
    if outer is None:
        return (
            next(
                index
                for index, name in enumerate(descriptor.file.message_types_by_name)
                if name == descriptor.name
            ),
        )
    return (
        *_path_of(outer),
        next(index for index, inner in enumerate(outer.nested_types) if inner.name == descriptor.name),
    )


# -- types ---------------------------------------------------------------------------------------------------


def _message_type(descriptor: Any, above: Sequence[str], wanted: DataType | None) -> StructType:
    if descriptor.full_name in above or len(above) > _DEPTH_MAX:
        raise ValueError(
            f"message {descriptor.full_name!r} holds itself: name the fields to read in a schema of the read"
        )
    fields = list(descriptor.fields)
    if isinstance(wanted, StructType):
        fields = [field for name in wanted.names for field in descriptor.fields if field.name == name]
    if not fields:
        raise ValueError(f"message {descriptor.full_name!r} has no fields, so it has no columns")
    below = above if wanted is not None else (*above, descriptor.full_name)
    chosen = [None if not isinstance(wanted, StructType) else wanted[field.name].dataType for field in fields]
    return StructType(
        [
            StructField(field.name, _field_type(field, below, part))
            for field, part in zip(fields, chosen, strict=True)
        ]
    )


def _field_type(field: Any, above: Sequence[str], wanted: DataType | None) -> DataType:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        inner = wanted.valueType if isinstance(wanted, MapType) else None
        return MapType(_single_type(key, above, None), _single_type(value, above, inner), True)
    if _is_repeated(field):
        return ArrayType(
            _single_type(field, above, wanted.elementType if isinstance(wanted, ArrayType) else None), True
        )
    return _single_type(field, above, wanted)


def _single_type(field: Any, above: Sequence[str], wanted: DataType | None) -> DataType:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return TimestampType()
        if name in _WRAPPERS:
            return _single_type(field.message_type.fields_by_name["value"], above, None)
        return _message_type(field.message_type, above, wanted)
    return {
        field.CPPTYPE_INT32: IntegerType(),
        field.CPPTYPE_UINT32: LongType(),
        field.CPPTYPE_INT64: LongType(),
        field.CPPTYPE_UINT64: DecimalType(20, 0),
        field.CPPTYPE_FLOAT: FloatType(),
        field.CPPTYPE_DOUBLE: DoubleType(),
        field.CPPTYPE_BOOL: BooleanType(),
        field.CPPTYPE_ENUM: StringType(),
        field.CPPTYPE_STRING: BinaryType() if field.type == field.TYPE_BYTES else StringType(),
    }[field.cpp_type]


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _is_map(field: Any) -> bool:
    return (
        _is_repeated(field)
        and field.message_type is not None
        and bool(field.message_type.GetOptions().map_entry)
    )


# -- values --------------------------------------------------------------------------------------------------


class _Columns:
    """The wanted fields of one message type, made into a struct array column by column."""

    def __init__(self, descriptor: Any, wanted: StructType) -> None:
        self._type = arrow_type(wanted)
        fields = [(descriptor.fields_by_name[field.name], field.dataType) for field in wanted.fields]
        self._inner = [_inner_columns(field, kind) for field, kind in fields]
        self._gets = [
            _get_message(field) if inner else _get(field, kind)
            for inner, (field, kind) in zip(self._inner, fields, strict=True)
        ]

    def array(self, messages: list[Any]) -> pa.Array:
        """A struct for each message, null for None."""
        arrays = []
        for index, (get, inner) in enumerate(zip(self._gets, self._inner, strict=True)):
            column = [None if message is None else get(message) for message in messages]
            arrays.append(inner.array(column) if inner else pa.array(column, self._type.field(index).type))
        mask = pa.array([message is None for message in messages], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(self._type), mask=mask)


def _inner_columns(field: Any, kind: DataType) -> _Columns | None:
    is_single_message = field.message_type is not None and not _is_repeated(field)
    return _Columns(field.message_type, kind) if is_single_message and isinstance(kind, StructType) else None


def _get_message(field: Any) -> Get:
    name = field.name
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _get(field: Any, kind: DataType) -> Get:
    """A function from the message to the field's value as pyarrow takes it."""
    name = field.name
    if _is_map(field):
        assert isinstance(kind, MapType)
        key = _single(field.message_type.fields_by_name["key"], kind.keyType)
        value = _single(field.message_type.fields_by_name["value"], kind.valueType)
        return lambda message: [(key(k), value(v)) for k, v in getattr(message, name).items()]
    if _is_repeated(field):
        assert isinstance(kind, ArrayType)
        element = _single(field, kind.elementType)
        return lambda message: [element(one) for one in getattr(message, name)]
    single = _single(field, kind)
    if field.has_presence:
        return lambda message: single(getattr(message, name)) if message.HasField(name) else None
    return lambda message: single(getattr(message, name))


def _single(field: Any, kind: DataType) -> Get:
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return lambda number: names.get(number) or str(number)
    if field.message_type is None:
        return _same
    if field.message_type.full_name == _TIMESTAMP:
        return lambda moment: moment.seconds * 1_000_000 + moment.nanos // 1000
    if field.message_type.full_name in _WRAPPERS:
        return lambda wrapper: wrapper.value
    assert isinstance(kind, StructType)
    gets = {
        part.name: _get(field.message_type.fields_by_name[part.name], part.dataType) for part in kind.fields
    }
    return lambda message: {name: get(message) for name, get in gets.items()}


def _same(value: object) -> object:
    return value
