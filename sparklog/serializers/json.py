"""JSON by msgspec: of plain types, dataclasses, TypedDicts and structs."""

import json
from typing import Final, Generic, TypeVar

import msgspec

from sparklog.errors import DecodeError
from sparklog.record.schema_id import SIZE, is_prefixed, prefix_of
from sparklog.serializers.registry import SchemaRegistry

T = TypeVar("T")

_REASON_CHARACTERS_MAX: Final = 300


class JsonSerializer(Generic[T]):
    """Values as JSON; with a registry, after the id of their JSON Schema."""

    def __init__(
        self, kind: type[T], registry: SchemaRegistry | None = None, *, subject: str | None = None
    ) -> None:
        """With `registry`, the JSON Schema of `kind` is registered under `subject`, such as `orders-value`.
        Raises RegistryError.
        """
        self._encode = msgspec.json.Encoder().encode
        self._prefix = b""
        if registry is not None:
            schema = json.dumps(msgspec.json.schema(kind), sort_keys=True)
            self._prefix = prefix_of(registry.register(subject, schema, "JSON"))

    def __call__(self, value: T | None) -> bytes | None:
        """The record's bytes; None for None."""
        return None if value is None else self._prefix + self._encode(value)


class JsonDeserializer(Generic[T]):
    """JSON as values of a type, with or without the prefix of a registry: no JSON begins with a zero byte."""

    def __init__(self, kind: type[T]) -> None:
        self._decode = msgspec.json.Decoder(kind).decode

    def __call__(self, content: bytes | None) -> T | None:
        """The value; None for None. Raises DecodeError with the fault of the content."""
        if content is None:
            return None
        try:
            return self._decode(content[SIZE:] if is_prefixed(content) else content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DecodeError(f"not JSON of this type: {str(error)[:_REASON_CHARACTERS_MAX]}") from error
