"""The schema language: a message class whose annotations carry Kafka's versions, and its flat program for
one version.

    class FetchPartition(Message):
        partition: Int32 = 0
        current_leader_epoch: Annotated[Int32, since(9)] = -1
        log_start_offset: Annotated[Int64, since(5)] = -1
        aborted_transactions: Annotated[list[AbortedTransaction] | None, nullable()] = None
        cluster_id: Annotated[NullableStr, since(12), tagged(0)] = None

Every field has the protocol's default, which is its value in versions without the field. A tagged field is
not encoded while it equals its default. A tagged struct is `X | None = None`: None is "not sent", which means
all of its defaults.

`program(cls, version)` turns a class into the list of operations that a codec kernel interprets, once per
class and version. Class invariants: the fields stand in wire order, and structs nest at most `DEPTH_MAX`
deep, so decoding never recurses deeper.
"""

import types
from collections.abc import Callable
from types import ModuleType
from typing import Annotated, ClassVar, Union, get_args, get_origin, get_type_hints

import msgspec

from sparklog.effects import Chunk
from sparklog.kernels import codec

NEVER = 1 << 15
"""A version that no message reaches."""

DEPTH_MAX = 8


class Versions(msgspec.Struct, frozen=True):
    """The versions `since` to `until` (both included) of a message, flexible (compact lengths and tags)
    from `flexible` on.
    """

    since: int
    until: int
    flexible: int = NEVER


class Message(msgspec.Struct, gc=False):
    """The base of every struct on the wire and of every durable record value; only the outermost struct
    sets `versions`.
    """

    versions: ClassVar[Versions]


class WireType(msgspec.Struct, frozen=True):
    """The encoding of a value: the kernel's operation, and the operation that replaces it in flexible
    versions.
    """

    plain: int
    compact: int


class Since(msgspec.Struct, frozen=True):
    version: int


class Until(msgspec.Struct, frozen=True):
    version: int


class Nullable(msgspec.Struct, frozen=True):
    version: int


class Tagged(msgspec.Struct, frozen=True):
    tag: int


class Essential(msgspec.Struct, frozen=True):
    """See `essential`."""


class NeverCompact(msgspec.Struct, frozen=True):
    """See `never_compact`."""


def since(version: int) -> Since:
    """The field exists from this version on."""
    return Since(version)


def until(version: int) -> Until:
    """The field exists up to this version, inclusive."""
    return Until(version)


def nullable(version: int = 0) -> Nullable:
    """The field may be null on the wire from this version on."""
    return Nullable(version)


def tagged(tag: int) -> Tagged:
    """The field is optional and encoded in the tag section."""
    return Tagged(tag)


essential = Essential()
"""It is an error to encode a value other than the default in a version without this field: the request
would change its meaning.

Other fields are omitted silently, and so are all fields of a reply.
"""

never_compact = NeverCompact()
"""The field keeps its non-compact form in flexible versions; only the client id of request headers does."""

BOOL = WireType(codec.BOOL, codec.BOOL)
INT8 = WireType(codec.INT8, codec.INT8)
INT16 = WireType(codec.INT16, codec.INT16)
UINT16 = WireType(codec.UINT16, codec.UINT16)
INT32 = WireType(codec.INT32, codec.INT32)
UINT32 = WireType(codec.UINT32, codec.UINT32)
INT64 = WireType(codec.INT64, codec.INT64)
FLOAT64 = WireType(codec.FLOAT64, codec.FLOAT64)
UUID = WireType(codec.UUID, codec.UUID)
STRING = WireType(codec.STRING, codec.COMPACT_STRING)
BYTES = WireType(codec.BYTES, codec.COMPACT_BYTES)
RECORDS = WireType(codec.RECORDS, codec.COMPACT_RECORDS)

Bool = Annotated[bool, BOOL]
Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
Uint16 = Annotated[int, UINT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
Float64 = Annotated[float, FLOAT64]
Uuid = Annotated[bytes, UUID]
Str = Annotated[str, STRING]
NullableStr = Annotated[str | None, STRING, nullable()]
Bytes = Annotated[bytes, BYTES]
NullableBytes = Annotated[bytes | None, BYTES, nullable()]
Records = Annotated[Chunk | list[Chunk] | None, RECORDS, nullable()]
"""Record batches: decoded as a view of the received bytes; encoded from any object with a length, or a list
of such, without a copy.
"""

ZERO_UUID = bytes(16)
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


class Field(msgspec.Struct, frozen=True):
    """One field of a message class, from its annotation."""

    name: str
    wire_type: WireType | None
    struct: type[Message] | None
    is_array: bool
    since: int
    until: int
    nullable_since: int
    tag: int
    is_essential: bool
    is_never_compact: bool
    default: object
    factory: Callable[[], object] | None


_fields: dict[type[Message], tuple[Field, ...]] = {}
_programs: dict[type[Message], dict[int, codec.Program]] = {}


def fields(cls: type[Message]) -> tuple[Field, ...]:
    """The fields of a message class in wire order."""
    if cls not in _fields:
        hints = get_type_hints(cls, include_extras=True)
        _fields[cls] = tuple(
            _field(cls, declared, hints[declared.name]) for declared in msgspec.structs.fields(cls)
        )
    return _fields[cls]


def program(cls: type[Message], version: int) -> codec.Program:
    """The flat program of an outermost message class; ValueError for a version that the class does not
    have.
    """
    try:
        return _programs[cls][version]
    except KeyError:
        versions = cls.versions
        if not versions.since <= version <= versions.until:
            raise ValueError(f"{cls.__name__} has no version {version}") from None
        flattened = flatten(cls, version, is_flexible=version >= versions.flexible, kernel=codec)
        return _programs.setdefault(cls, {}).setdefault(version, flattened)


def flatten(
    cls: type[Message], version: int, *, is_flexible: bool, kernel: ModuleType, depth: int = 1
) -> "codec.Program":
    """A new flat program of any struct for the given kernel; `program` caches those of the kernel in use."""
    assert depth <= DEPTH_MAX, f"{cls.__name__} nests too deep"
    operations = []
    for field in fields(cls):
        element = None
        if field.struct is not None and field.since <= version <= field.until:
            element = flatten(field.struct, version, is_flexible=is_flexible, kernel=kernel, depth=depth + 1)
        elif field.is_array and field.since <= version <= field.until:
            element = kernel.Program(
                None, ((_value_code(field, is_flexible), "", None, None, None, False, -1),), False
            )
        tag = field.tag if is_flexible else -1
        is_nullable = version >= field.nullable_since
        operations.append(
            (
                _code(field, version, is_flexible),
                field.name,
                element,
                field.default,
                field.factory,
                is_nullable,
                tag,
            )
        )
    flattened: codec.Program = kernel.Program(cls, tuple(operations), is_flexible)
    return flattened


def _code(field: Field, version: int, is_flexible: bool) -> int:
    if not field.since <= version <= field.until:
        return codec.ABSENT_ESSENTIAL if field.is_essential else codec.ABSENT
    assert field.tag < 0 or is_flexible, f"{field.name} is tagged in a version without tags"
    if field.is_array:
        return codec.COMPACT_ARRAY if is_flexible else codec.ARRAY
    if field.struct is not None:
        return codec.NULLABLE_STRUCT if version >= field.nullable_since else codec.STRUCT
    return _value_code(field, is_flexible)


def _value_code(field: Field, is_flexible: bool) -> int:
    assert field.wire_type is not None
    return field.wire_type.compact if is_flexible and not field.is_never_compact else field.wire_type.plain


def _field(cls: type[Message], declared: msgspec.structs.FieldInfo, hint: object) -> Field:
    base, marks = _unwrap(hint)
    is_array = get_origin(base) is list
    if is_array:
        base, element_marks = _unwrap(get_args(base)[0])
        marks = (*marks, *(mark for mark in element_marks if isinstance(mark, WireType)))
    wire_type = next((mark for mark in marks if isinstance(mark, WireType)), None)
    struct = base if isinstance(base, type) and issubclass(base, Message) else None
    where = f"{cls.__name__}.{declared.name}"
    assert (wire_type is None) != (struct is None), f"{where} has no type of the schema language"
    assert not declared.required, f"{where} has no default"
    factory = None if declared.default_factory is msgspec.NODEFAULT else declared.default_factory
    return Field(
        name=declared.name,
        wire_type=wire_type,
        struct=struct,
        is_array=is_array,
        since=max((mark.version for mark in marks if isinstance(mark, Since)), default=0),
        until=min((mark.version for mark in marks if isinstance(mark, Until)), default=NEVER),
        # The last mark wins: a mark on the field narrows the one inside an alias such as NullableStr.
        nullable_since=[NEVER, *(mark.version for mark in marks if isinstance(mark, Nullable))][-1],
        tag=next((mark.tag for mark in marks if isinstance(mark, Tagged)), -1),
        is_essential=any(isinstance(mark, Essential) for mark in marks),
        is_never_compact=any(isinstance(mark, NeverCompact) for mark in marks),
        default=None if factory else declared.default,
        factory=factory,
    )


def _unwrap(hint: object) -> tuple[object, tuple[object, ...]]:
    """The type below `Annotated` and `| None`, with all marks, inner ones first."""
    if get_origin(hint) is Annotated:
        inner, marks = get_args(hint)[0], get_args(hint)[1:]
        if any(isinstance(mark, WireType) for mark in marks):
            return inner, marks
        base, inner_marks = _unwrap(inner)
        return base, (*inner_marks, *marks)
    if get_origin(hint) in (Union, types.UnionType):
        present = [option for option in get_args(hint) if option is not type(None)]
        if len(present) == 1:
            return _unwrap(present[0])
    return hint, ()
