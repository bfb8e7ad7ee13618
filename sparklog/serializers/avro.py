"""Avro by fastavro: plain, or with the schema id of a registry."""

import io
import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from sparklog.errors import DecodeError, SettingsError
from sparklog.record.schema_id import SIZE, is_prefixed, prefix_of, schema_id_of
from sparklog.serializers.registry import RegistryError, SchemaRegistry, keep

Schema = str | Mapping[str, Any]

KEPT_MAX: Final = 100
_REASON_CHARACTERS_MAX: Final = 300
_REFUSALS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)
"""The exceptions that fastavro raises for bytes that are no value of the schema."""


class AvroSerializer:
    """Values, such as dicts, as Avro of one schema; with a registry, after the id of the schema."""

    def __init__(
        self,
        schema: Schema,
        registry: SchemaRegistry | None = None,
        *,
        subject: str | None = None,
        when_unknown: Literal["register", "fail"] = "register",
    ) -> None:
        """With `registry`, the id of the schema under `subject`, such as `orders-value`, is asked for once,
        and the schema is registered if it is not there, or with `when_unknown="fail"` RegistryError is
        raised. Raises SettingsError for an invalid schema.
        """
        library = _fastavro()
        text = _text(schema)
        self._schema = parsed(text)
        self._write = library.schemaless_writer
        self._prefix = b""
        if registry is not None:
            ask = registry.register if when_unknown == "register" else registry.look_up
            self._prefix = prefix_of(ask(subject, text, "AVRO"))

    def __call__(self, value: object) -> bytes | None:
        """The record's bytes; None for None. Raises ValueError or TypeError for a value of another schema."""
        if value is None:
            return None
        stream = io.BytesIO()
        stream.write(self._prefix)
        self._write(stream, self._schema, value)
        return stream.getvalue()


class AvroDeserializer:
    """Avro as Python's values: by the schema that the registry has for the id of each record, or by one
    schema without a registry.
    """

    def __init__(self, schema: Schema | None = None, registry: SchemaRegistry | None = None) -> None:
        """With a registry, `schema` is the one that readers want, to which Avro's rules resolve the writers'
        schemas; the first record of an id waits for the registry.
        """
        if schema is None and registry is None:
            raise SettingsError("Avro needs a schema or a registry")
        library = _fastavro()
        self._read = library.schemaless_reader
        self._wanted = None if schema is None else parsed(_text(schema))
        self._registry = registry
        self._writers: dict[int, Any] = {}

    def __call__(self, content: bytes | None) -> Any:
        """The value; None for None. Raises DecodeError with the fault of the content, and RegistryError."""
        if content is None:
            return None
        stream = io.BytesIO(content)
        writer = self._wanted
        if self._registry is not None:
            if not is_prefixed(content):
                raise DecodeError(
                    "no schema id precedes the content, as clients of a schema registry write it"
                )
            writer = self._writer(self._registry, schema_id_of(content))
            stream.seek(SIZE)
        try:
            value = self._read(stream, writer, self._wanted)
        except _REFUSALS as error:
            reason = str(error)[:_REASON_CHARACTERS_MAX] or type(error).__name__
            raise DecodeError(f"not Avro of the schema: {reason}") from error
        if stream.tell() != len(content):
            raise DecodeError(
                f"not Avro of the schema: {len(content) - stream.tell()} bytes follow the value"
            )
        return value

    def _writer(self, registry: SchemaRegistry, schema_id: int) -> Any:
        found = self._writers.get(schema_id)
        if found is None:
            found = parsed(whole_schema(registry, schema_id))
            keep(self._writers, schema_id, found, KEPT_MAX)
        return found


def whole_schema(registry: SchemaRegistry, schema_id: int) -> str:
    """The Avro schema with this id; RegistryError for another type, or if it refers to other schemas."""
    registered = registry.by_id(schema_id)
    if registered.schema_type != "AVRO" or registered.references:
        what = (
            f"is {registered.schema_type}" if registered.schema_type != "AVRO" else "refers to other schemas"
        )
        raise RegistryError(f"the schema with id {schema_id} {what}; only a whole Avro schema is read")
    return registered.schema


def parsed(text: str) -> Any:
    """A schema as fastavro takes it; raises SettingsError."""
    library = _fastavro()
    try:
        schema = json.loads(text) if text.lstrip()[:1] in ('"', "{", "[") else text.strip()
        made = library.parse_schema(schema)
        takes_bytes(made, {})
    except (library.schema.SchemaParseException, library.schema.UnknownType, *_REFUSALS) as error:
        raise SettingsError(f"not an Avro schema: {str(error)[:_REASON_CHARACTERS_MAX]}") from error
    return made


def takes_bytes(schema: Any, named: dict[str, bool]) -> bool:
    """Whether every value of a parsed schema takes bytes; ValueError for an array of values that take none,
    of which a few bytes may have endlessly many. `named` has the answers for names so far.
    """
    if isinstance(schema, str):
        return named.get(schema, schema != "null")
    if isinstance(schema, list):
        for branch in schema:
            takes_bytes(branch, named)
        return True  # the index of the branch
    kind = schema["type"]
    if kind in ("record", "error"):
        named[schema["name"]] = True  # a record within itself is in a union, array or map
        fields = [takes_bytes(field["type"], named) for field in schema["fields"]]
        named[schema["name"]] = any(fields)
        return named[schema["name"]]
    if kind == "array" and not takes_bytes(schema["items"], named):
        raise ValueError("an array of items that take no bytes is not read")
    if kind == "map":
        takes_bytes(schema["values"], named)
    if kind == "fixed":
        named[schema["name"]] = schema["size"] > 0
        return named[schema["name"]]
    return True if kind in ("array", "map", "enum") else takes_bytes(kind, named)


def _text(schema: Schema) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise SettingsError(f"Avro needs fastavro: pip install 'sparklog[formats]' ({error})") from error
    return fastavro
