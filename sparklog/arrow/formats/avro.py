"""Avro's binary encoding as columns, and Avro's schemas as types, those of Spark's `from_avro`.

A kernel decodes flat records, see `avro_flat`; fastavro decodes all other schemas, value by value, after a
kernel has checked the bytes, see `avro_program`.

    null | T                     T, nullable
    int | long, float | double   the wider type; other unions are refused
    enum, uuid                   string
    date, timestamp-*            date, timestamp, timestamp_ntz
    fixed, bytes                 binary, or decimal
    time-*                       int (milliseconds) or bigint (microseconds)
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from sparklog.arrow.formats.avro_flat import PREFIXES, FlatRecords, together
from sparklog.arrow.formats.avro_program import program_of
from sparklog.arrow.formats.decoded import Decoded, reason_of
from sparklog.arrow.formats.names import SchemaIdPrefix
from sparklog.arrow.formats.types import TIMESTAMP, TIMESTAMP_NTZ, array_of, map_of
from sparklog.errors import SettingsError
from sparklog.kernels import avro
from sparklog.record.schema_id import is_prefixed

Schema = str | dict[str, Any] | list[Any]
Read = Callable[[Any, Any], Any]
Parsed = tuple[pa.DataType, bool, Any]
"""The type, whether it may be null, and the plain schema."""

_PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): TIMESTAMP_NTZ,
    ("long", "local-timestamp-micros"): TIMESTAMP_NTZ,
}
_REFUSALS: Final = (ArithmeticError, AttributeError, EOFError, LookupError, TypeError, ValueError)
"""The exceptions that fastavro raises for a value that the kernel has accepted (a decimal of too many digits,
a symbol outside an enum) and, with its own, for a schema."""
_DEPTH_MAX: Final = 64
_WIDER: Final[tuple[tuple[frozenset[str], str], ...]] = (
    (frozenset({"int", "long"}), "long"),
    (frozenset({"float", "double"}), "double"),
)


def fastavro() -> Any:
    """The fastavro library; SettingsError names the extra that installs it."""
    try:
        import fastavro as library
    except ImportError as error:
        raise SettingsError(
            f"format avro needs fastavro: pip install 'sparklog[formats]' on driver and executors ({error})"
        ) from error
    return library


def avro_type(text: str) -> pa.DataType:
    """The type of a schema; ValueError with the fault of an invalid one."""
    return _Types(text).kind


class AvroDecoder:
    """Decodes values of one writer's schema as `wanted`, which may leave fields out."""

    def __init__(self, text: str, wanted: pa.DataType, prefix: SchemaIdPrefix) -> None:
        library = fastavro()
        types = _Types(text)
        self._schema = library.parse_schema(types.plain)
        self._read: Read = library.schemaless_reader
        self._type = wanted
        self._read_type = _read_type(types.plain, wanted, types.named) if types.has_millis else self._type
        self._prefix = prefix
        self._program = memoryview(program_of(types.plain, types.named))
        self._flat = FlatRecords.of(types.plain, wanted, prefix)

    def decode(self, values: pa.Array) -> Decoded:
        if self._flat is None:
            return self._by_fastavro(values)
        made, rows = self._flat.decode(values)
        if not rows:
            return Decoded(made, {})
        # The check of any schema finds the fault and its position.
        again = self._by_fastavro(values.take(pa.array(rows, pa.int64())))
        return Decoded(
            together(made, rows, again.array), {rows[row]: reason for row, reason in again.refused.items()}
        )

    def _by_fastavro(self, values: pa.Array) -> Decoded:
        made: list[object] = []
        refused: dict[int, str] = {}
        for row, (content, start) in enumerate(zip(values.to_pylist(), self._starts(values), strict=True)):
            value = None
            if content is not None:
                try:
                    value = self._value(content, start)
                except _REFUSALS as error:
                    refused[row] = f"not Avro of this schema: {reason_of(error)}"
            made.append(value)
        try:
            return Decoded(pa.array(made, self._read_type).cast(self._type), refused)
        except (pa.ArrowException, ValueError, OverflowError):
            return self._one_by_one(made, refused)

    def _starts(self, values: pa.Array) -> Sequence[int]:
        """The start of the value in each row; negative if there is none, see `check_records`."""
        validity, offsets, content = values.buffers()
        if len(values) == 0 or offsets is None:
            return [0] * len(values)
        starts = avro.check_records(
            len(values),
            validity,
            offsets,
            content or b"",
            values.offset,
            self._program,
            PREFIXES[self._prefix],
        )
        return memoryview(starts).cast("i")

    def _one_by_one(self, made: list[object], refused: dict[int, str]) -> Decoded:
        """For valid values that do not fit the column: a time beyond 64 bits of microseconds, a decimal of
        too many digits.
        """
        arrays: list[pa.Array] = []
        for row, value in enumerate(made):
            try:
                arrays.append(pa.array([value], self._read_type).cast(self._type))
            except (pa.ArrowException, ValueError, OverflowError) as error:
                refused[row] = reason_of(error)
                arrays.append(pa.nulls(1, self._type))
        return Decoded(pa.concat_arrays(arrays), refused)

    def _value(self, content: bytes, start: int) -> object:
        if start < 0:
            if self._prefix is SchemaIdPrefix.ALWAYS and not is_prefixed(content):
                raise ValueError("the schema id before the content is missing")
            raise ValueError(_fault(content, -1 - start))
        stream = io.BytesIO(content)
        stream.seek(start)
        return self._read(stream, self._schema)


def _fault(content: bytes, position: int) -> str:
    if position == len(content):
        return f"the value ends after {len(content)} bytes, before the record does"
    return (
        f"byte {position} of {len(content)} is not the start of a value of the schema: "
        f"{content[position : position + 8].hex(' ')}"
    )


class _Types:
    """Parses a schema into the type of its column and into `plain`, the schema without the logical types
    that Arrow converts.
    """

    def __init__(self, text: str) -> None:
        try:
            parsed = json.loads(text) if text.lstrip()[:1] in ('"', "{", "[") else text.strip()
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not an Avro schema in JSON ({error})") from error
        self.named: dict[str, Any] = {}
        self._kinds: dict[str, pa.DataType] = {}
        self._open: list[str] = []
        self.has_millis = False
        self.kind, _, self.plain = self._of(parsed, "", 0)
        if pa.types.is_struct(self.kind) and not self.kind.num_fields:
            raise ValueError("a record without fields has no columns")
        try:
            fastavro().parse_schema(self.plain)
        except (fastavro().schema.SchemaParseException, *_REFUSALS) as error:
            raise ValueError(f"not an Avro schema ({reason_of(error)})") from error

    def _of(self, schema: Any, namespace: str, depth: int) -> Parsed:
        if depth > _DEPTH_MAX:
            raise ValueError(f"the schema is nested deeper than {_DEPTH_MAX}")
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if isinstance(schema, str):
            if schema in _PRIMITIVES and schema not in ("enum", "fixed"):
                return _PRIMITIVES[schema], False, schema
            name = (
                schema
                if "." in schema or not namespace or f"{namespace}.{schema}" not in self._kinds
                else f"{namespace}.{schema}"
            )
            if name in self._open:
                raise ValueError(f"record {name!r} is recursive, and no column is")
            if name not in self._kinds:
                raise ValueError(f"{schema!r} is not an Avro type nor a name defined before")
            return self._kinds[name], False, name
        if not isinstance(schema, dict) or "type" not in schema:
            raise ValueError(f"{str(schema)[:60]!r} is not an Avro schema")
        sort = schema["type"]
        if isinstance(sort, dict | list):
            return self._of(sort, namespace, depth + 1)
        if sort == "record" or sort == "error":
            return self._record(schema, namespace, depth)
        if sort == "array":
            element, may_be_null, plain = self._of(schema.get("items"), namespace, depth + 1)
            if _can_be_empty(plain, self.named):
                # A few bytes could claim billions of items.
                raise ValueError("an array of items that take no bytes is not decoded")
            return array_of(element, nullable=may_be_null), False, {"type": "array", "items": plain}
        if sort == "map":
            content, may_be_null, plain = self._of(schema.get("values"), namespace, depth + 1)
            kind = map_of(pa.string(), content, nullable=may_be_null)
            return kind, False, {"type": "map", "values": plain}
        if sort not in _PRIMITIVES:
            return self._of(sort, namespace, depth + 1)
        return self._primitive(schema, sort, namespace)

    def _primitive(self, schema: Mapping[str, Any], sort: str, namespace: str) -> Parsed:
        logical = schema.get("logicalType")
        plain: dict[str, Any] = {key: schema[key] for key in ("type", "size", "symbols") if key in schema}
        kind = _LOGICAL.get((sort, str(logical)), _PRIMITIVES[sort])
        if logical == "decimal" and sort in ("bytes", "fixed"):
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if (
                not isinstance(precision, int)
                or not isinstance(scale, int)
                or not 0 <= scale <= precision <= 38
                or precision < 1
            ):
                raise ValueError(f"decimal({precision},{scale}) is beyond decimal(38,38)")
            kind = pa.decimal128(precision, scale)
            plain |= {"logicalType": "decimal", "precision": precision, "scale": scale}
        elif str(logical).endswith("timestamp-millis") and sort == "long":
            # For `_read_type`; fastavro ignores this key.
            plain["unit"] = "ms"
            self.has_millis = True
        if sort in ("enum", "fixed"):
            plain["name"] = self._named(schema, namespace)
            self._kinds[plain["name"]] = kind
            self.named[plain["name"]] = plain
        return kind, False, plain

    def _record(self, schema: Mapping[str, Any], namespace: str, depth: int) -> Parsed:
        name = self._named(schema, namespace)
        fields: list[pa.Field] = []
        plain_fields: list[dict[str, Any]] = []
        self._open.append(name)
        for field in schema.get("fields", ()):
            if not isinstance(field, dict) or "name" not in field or "type" not in field:
                raise ValueError(f"{str(field)[:60]!r} is not a field of record {name!r}")
            kind, _, plain = self._of(field["type"], name.rpartition(".")[0], depth + 1)
            # Every column is nullable, because a value that cannot be decoded is null as a whole.
            fields.append(pa.field(str(field["name"]), kind))
            plain_fields.append({"name": field["name"], "type": plain})
        self._open.pop()
        self._kinds[name] = pa.struct(fields)
        self.named[name] = {"type": "record", "name": name, "fields": plain_fields}
        return self._kinds[name], False, self.named[name]

    def _union(self, branches: list[Any], namespace: str, depth: int) -> Parsed:
        read = [self._of(branch, namespace, depth + 1) for branch in branches if branch != "null"]
        plain = iter([one[2] for one in read])
        plain_union = ["null" if branch == "null" else next(plain) for branch in branches]
        if len(read) == 1:
            return read[0][0], len(branches) > 1, plain_union
        for sorts, wider in _WIDER:
            if (
                len(read) == 2
                and all(isinstance(one[2], str) for one in read)
                and {one[2] for one in read} == sorts
            ):
                return _PRIMITIVES[wider], len(branches) > 2, plain_union
        raise ValueError(f"a union of {len(read)} types, {json.dumps(branches)[:80]}, has no column")

    def _named(self, schema: Mapping[str, Any], namespace: str) -> str:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError(f"an Avro {schema['type']} without a name")
        if "." in name:
            return name
        space = schema.get("namespace", namespace)
        return f"{space}.{name}" if space else name


def _can_be_empty(plain: Any, named: Mapping[str, Any]) -> bool:
    """Whether a value may take no bytes."""
    if isinstance(plain, str):
        return plain == "null" or (plain in named and _can_be_empty(named[plain], named))
    if isinstance(plain, dict) and plain["type"] == "record":
        return all(_can_be_empty(field["type"], named) for field in plain["fields"])
    return isinstance(plain, dict) and plain["type"] == "fixed" and plain.get("size") == 0


def _read_type(plain: Any, wanted: pa.DataType, named: Mapping[str, Any]) -> pa.DataType:
    """The type of fastavro's values: `wanted`, with milliseconds where the writer has them."""
    if isinstance(plain, str):
        return _read_type(named[plain], wanted, named) if plain in named else wanted
    if isinstance(plain, list):
        branches = [branch for branch in plain if branch != "null"]
        return _read_type(branches[0], wanted, named) if len(branches) == 1 else wanted
    if plain.get("unit") == "ms":
        return pa.timestamp("ms", tz=wanted.tz)
    if pa.types.is_list(wanted):
        element = _read_type(plain["items"], wanted.value_type, named)
        return array_of(element, nullable=wanted.value_field.nullable)
    if pa.types.is_map(wanted):
        content = _read_type(plain["values"], wanted.item_type, named)
        return map_of(pa.string(), content, nullable=wanted.item_field.nullable)
    if pa.types.is_struct(wanted):
        by_name = {field["name"]: field["type"] for field in plain["fields"]}
        return pa.struct(
            [pa.field(field.name, _read_type(by_name[field.name], field.type, named)) for field in wanted]
        )
    return wanted
