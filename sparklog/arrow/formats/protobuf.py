"""Decodes Protobuf messages with Google's library, field by field into columns; messages as types.

    int32, sint32, sfixed32     int              message                      struct
    uint32, fixed32, int64 …    bigint           google.protobuf.Timestamp    timestamp
    uint64, fixed64             decimal(20,0)    wrappers                     the type of their value
    enum                        string           map<K, V>                    map<K, V>
    repeated T                  array<T>

A field that is not set is null if its schema can distinguish that (`optional`, `oneof`, messages), otherwise
its default, as in Protobuf.
"""

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from sparklog.arrow.formats.decoded import Decoded, reason_of
from sparklog.arrow.formats.names import SchemaIdPrefix
from sparklog.arrow.formats.types import TIMESTAMP, array_of, map_of
from sparklog.errors import SettingsError
from sparklog.record.schema_id import is_prefixed, message_indexes

Get = Callable[[Any], object]

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_DEPTH_MAX: Final = 64


def message_descriptor(descriptors: str, message: str) -> Any:
    """The message with this name (full, or its last part) in a base64 FileDescriptorSet; ValueError unless
    there is exactly one.
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


def protobuf_type(descriptor: Any, wanted: pa.DataType | None = None) -> pa.DataType:
    """The type of a message, or of the fields in `wanted`; ValueError if no column can have it."""
    return _message_type(descriptor, (), wanted)


class ProtobufDecoder:
    """Decodes messages of one type as `wanted`, which may leave fields out."""

    def __init__(self, descriptor: Any, wanted: pa.DataType, prefix: SchemaIdPrefix) -> None:
        from google.protobuf import message, message_factory

        assert pa.types.is_struct(wanted), "a message is a struct"
        self._descriptor = descriptor
        self._parse = message_factory.GetMessageClass(descriptor).FromString
        self._decode_error = message.DecodeError
        self._prefix = prefix
        self._path = _path_of(descriptor)
        self._type = wanted
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
        """For valid messages that do not fit the columns: a time beyond 64 bits of microseconds."""
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


def _message_type(descriptor: Any, above: Sequence[str], wanted: pa.DataType | None) -> pa.StructType:
    if descriptor.full_name in above or len(above) > _DEPTH_MAX:
        raise ValueError(
            f"message {descriptor.full_name!r} is recursive: name its fields in the schema of the read"
        )
    fields = list(descriptor.fields)
    kinds: dict[str, pa.DataType] = {}
    if wanted is not None and pa.types.is_struct(wanted):
        kinds = {field.name: field.type for field in wanted}
        fields = [field for name in kinds for field in descriptor.fields if field.name == name]
    if not fields:
        raise ValueError(f"message {descriptor.full_name!r} has no fields, so it has no columns")
    below = above if wanted is not None else (*above, descriptor.full_name)
    return pa.struct(
        [pa.field(field.name, _field_type(field, below, kinds.get(field.name))) for field in fields]
    )


def _field_type(field: Any, above: Sequence[str], wanted: pa.DataType | None) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        inner = wanted.item_type if wanted is not None and pa.types.is_map(wanted) else None
        return map_of(_single_type(key, above, None), _single_type(value, above, inner))
    if _is_repeated(field):
        inner = wanted.value_type if wanted is not None and pa.types.is_list(wanted) else None
        return array_of(_single_type(field, above, inner))
    return _single_type(field, above, wanted)


def _single_type(field: Any, above: Sequence[str], wanted: pa.DataType | None) -> pa.DataType:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return TIMESTAMP
        if name in _WRAPPERS:
            return _single_type(field.message_type.fields_by_name["value"], above, None)
        return _message_type(field.message_type, above, wanted)
    return {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
        field.CPPTYPE_STRING: pa.binary() if field.type == field.TYPE_BYTES else pa.string(),
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
    """Builds a struct array from the wanted fields of one message type, column by column."""

    def __init__(self, descriptor: Any, wanted: pa.StructType) -> None:
        self._type = wanted
        fields = [(descriptor.fields_by_name[field.name], field.type) for field in wanted]
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


def _inner_columns(field: Any, kind: pa.DataType) -> _Columns | None:
    is_single_message = field.message_type is not None and not _is_repeated(field)
    return _Columns(field.message_type, kind) if is_single_message and pa.types.is_struct(kind) else None


def _get_message(field: Any) -> Get:
    name = field.name
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _get(field: Any, kind: pa.DataType) -> Get:
    """A function from the message to the field's value for pyarrow."""
    name = field.name
    if _is_map(field):
        key = _single(field.message_type.fields_by_name["key"], kind.key_type)
        value = _single(field.message_type.fields_by_name["value"], kind.item_type)
        return lambda message: [(key(k), value(v)) for k, v in getattr(message, name).items()]
    if _is_repeated(field):
        element = _single(field, kind.value_type)
        return lambda message: [element(one) for one in getattr(message, name)]
    single = _single(field, kind)
    if field.has_presence:
        return lambda message: single(getattr(message, name)) if message.HasField(name) else None
    return lambda message: single(getattr(message, name))


def _single(field: Any, kind: pa.DataType) -> Get:
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return lambda number: names.get(number) or str(number)
    if field.message_type is None:
        return _same
    if field.message_type.full_name == _TIMESTAMP:
        return lambda moment: moment.seconds * 1_000_000 + moment.nanos // 1000
    if field.message_type.full_name in _WRAPPERS:
        return lambda wrapper: wrapper.value
    gets = {part.name: _get(field.message_type.fields_by_name[part.name], part.type) for part in kind}
    return lambda message: {name: get(message) for name, get in gets.items()}


def _same(value: object) -> object:
    return value
