"""`consume --value-format`: values as JSON, decoded from JSON, Avro or Protobuf.

A value may begin with the prefix of a schema registry: a zero byte and a schema id of four bytes. Its schema
is that of a file, or the one that the registry has for the id. A value that cannot be decoded is printed as
it is, with a line on stderr.
"""

import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sparklog.errors import SettingsError
from sparklog.record.schema_id import SIZE, is_prefixed, message_indexes, schema_id_of
from sparklog_server.cli.printing import report

if TYPE_CHECKING:
    from sparklog.client.consumer.consumer import ConsumerRecord
    from sparklog.serializers.registry import SchemaRegistry

Decode = Callable[[bytes], object]
"""Bytes to what JSON can have; raises ValueError."""

FORMATS: Final = ("json", "avro", "protobuf")
REGISTRY: Final = "SPARKLOG_SCHEMA_REGISTRY"
USERNAME: Final = "SPARKLOG_SCHEMA_REGISTRY_USERNAME"
PASSWORD: Final = "SPARKLOG_SCHEMA_REGISTRY_PASSWORD"  # noqa: S105 - the name of a variable
KEPT_MAX: Final = 100
TOLD_MAX: Final = 20
_WIDTH_MAX: Final = 200


class Values:
    """The decoded values of records, and how many could not be decoded."""

    def __init__(self, format_: str, decode: Decode) -> None:
        self.format = format_
        self._decode = decode
        self.refused = 0

    def of(self, record: "ConsumerRecord") -> tuple[object, str | None]:
        """The value, and None; or the bytes as they are, and the reason."""
        if record.value is None:
            return None, None
        try:
            return self._decode(record.value), None
        except ValueError as error:
            self.refused += 1
            reason = " ".join(str(error).split())[:_WIDTH_MAX]
            if self.refused <= TOLD_MAX:
                report(f"sparklog: {record.topic_partition} at offset {record.offset}: {reason}")
            return record.value, reason

    def text(self, record: "ConsumerRecord") -> bytes | None:
        """The value as one line of JSON, or its bytes as they are."""
        value, reason = self.of(record)
        if value is None and record.value is None:
            return None
        return record.value if reason is not None else json.dumps(value, ensure_ascii=False).encode()


def values_of(
    format_: str | None, schema: str | None, message: str | None, registry: str | None = None
) -> Values | None:
    """The decoder that the options select; None for bytes as they are. UsageError for options that do not fit
    together, SettingsError for a schema that cannot be read.
    """
    if format_ is None:
        if schema is not None or message is not None or registry is not None:
            raise click.UsageError(
                "--schema, --message and --schema-registry need --value-format avro or protobuf"
            )
        return None
    if format_ == "json":
        if schema is not None or registry is not None:
            raise click.UsageError("--value-format json needs no --schema and no --schema-registry")
    else:
        registry = registry or (os.environ.get(REGISTRY) if schema is None else None)
        if (schema is None) == (registry is None):
            raise click.UsageError(f"--value-format {format_} needs --schema FILE or --schema-registry URL")
    if (message is not None) != (format_ == "protobuf" and schema is not None):
        needs = "needs --message NAME" if message is None else "has no --message"
        raise click.UsageError(f"--value-format {format_} {needs}")
    if format_ != "json":
        _require_library(format_)
    if registry is not None:
        return Values(format_, _by_registry(registry, format_))
    return Values(format_, _json if schema is None else _by_schema(Path(schema), message))


def _require_library(format_: str) -> None:
    try:
        import_module("fastavro" if format_ == "avro" else "google.protobuf.message")
    except ImportError:
        raise SettingsError(
            "--value-format needs Avro and Protobuf: pip install 'sparklog[formats]'"
        ) from None


def _by_registry(url: str, format_: str) -> Decode:
    """Each value by the schema of its id. RegistryUnavailable, if no registry answers, ends the command."""
    from sparklog.serializers.registry import RegistryError, RegistryUnavailable, SchemaRegistry, keep

    registry = SchemaRegistry(
        url.split(","), username=os.environ.get(USERNAME), password=os.environ.get(PASSWORD)
    )
    decoder_of = _avro_decoder if format_ == "avro" else _protobuf_decoder
    kept: dict[bytes, Decode | str] = {}

    def decoded(value: bytes) -> object:
        if not is_prefixed(value):
            raise ValueError("no schema id precedes the value, as clients of a schema registry write it")
        start = message_indexes(value)[1] if format_ == "protobuf" else SIZE
        found = kept.get(value[:start])
        if found is None:
            try:
                found = decoder_of(registry, value)
            except RegistryUnavailable:
                raise
            except (RegistryError, SettingsError) as error:
                found = str(error)
            keep(kept, value[:start], found, KEPT_MAX)
        if isinstance(found, str):
            raise ValueError(found)
        return found(value)

    return decoded


def _avro_decoder(registry: "SchemaRegistry", value: bytes) -> Decode:
    from sparklog.serializers.avro import whole_schema

    return _decode_of(whole_schema(registry, schema_id_of(value)).encode(), "")


def _protobuf_decoder(registry: "SchemaRegistry", value: bytes) -> Decode:
    from sparklog.serializers.protobuf import file_set, message_name

    files = file_set(registry, schema_id_of(value))
    name = message_name(files.file[-1], message_indexes(value)[0])
    return _decode_of(files.SerializeToString(), name)


def _by_schema(file: Path, message: str | None) -> Decode:
    try:
        return _decode_of(file.read_bytes(), message or "")
    except OSError as error:
        raise SettingsError(f"--schema {file}: {error.strerror}") from None
    except SettingsError as error:
        raise SettingsError(f"--schema {file}: {error}") from None


def _decode_of(schema: bytes, message: str) -> Decode:
    """The decoder of an Avro schema, or of a message of a descriptor set."""
    from sparklog_server.operations.schemas import decoder

    decode = decoder(schema, message)

    def decoded(value: bytes) -> object:
        parsed: object = json.loads(decode(value)[1], parse_constant=_as_text)
        return parsed

    return decoded


def _as_text(word: str) -> str:
    """NaN and the infinities, which JSON does not have, as Protobuf writes them."""
    return word


def _json(value: bytes) -> object:
    try:
        # Any: json answers so.
        parsed: Any = json.loads(value[SIZE:] if is_prefixed(value) else value, parse_constant=_refused)
        # A number beyond those of JSON, and half of a surrogate pair, are refused here.
        json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    return parsed


def _refused(word: str) -> object:
    raise ValueError(f"{word} is no number of JSON")
