"""The schemas of values, `--schema TOPIC=FILE`: Avro from an `.avsc` file, Protobuf from a descriptor set.

A value may begin with the prefix of a schema registry: a zero byte and a schema id of four bytes, for
Protobuf also the path of the message within its file. The schema is always that of the option.
"""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sparklog.errors import SettingsError
from sparklog.record.schema_id import SIZE, is_prefixed, message_indexes
from sparklog.serializers.avro import parsed

Decode = Callable[[bytes], tuple[str, str]]
"""Bytes to the name of the form and JSON; raises ValueError."""

BYTES_MAX: Final = 1 << 20


def schemas(assignments: Sequence[str]) -> dict[str, Decode]:
    """The decoders by topic; raises SettingsError."""
    found: dict[str, Decode] = {}
    for assignment in assignments:
        topic, equals, place = assignment.partition("=")
        file, _, message = place.partition(":")
        if not equals or not topic or not file:
            raise SettingsError(
                f"--schema {assignment}: write TOPIC=FILE.avsc, or TOPIC=FILE.desc:MESSAGE of a "
                f"descriptor set"
            )
        try:
            content = Path(file).read_bytes()
        except OSError as error:
            raise SettingsError(f"--schema {assignment}: {error.strerror}") from None
        try:
            found[topic] = decoder(content, message)
        except ImportError:
            raise SettingsError("--schema needs Avro and Protobuf: pip install 'sparklog[formats]'") from None
        except SettingsError as error:
            raise SettingsError(f"--schema {assignment}: {error}") from None
    return found


def decoder(content: bytes, message: str) -> Decode:
    """The decoder of a message of a descriptor set, or, without a message, of an Avro schema. Raises
    SettingsError, or ImportError without the libraries.
    """
    return _protobuf(content, message) if message else _avro(content)


# -- Avro ----------------------------------------------------------------------------------------------------


def _avro(content: bytes) -> Decode:
    import fastavro

    schema = parsed(content.decode(errors="replace"))

    def read(part: bytes) -> str:
        stream = io.BytesIO(part)
        value = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() < len(part):
            raise ValueError(f"{len(part) - stream.tell()} bytes are left over")
        return json.dumps(value, indent=2, ensure_ascii=False, default=_avro_text)

    def decode(content: bytes) -> tuple[str, str]:
        _check_size(content)
        parts = [content[SIZE:], content] if is_prefixed(content) else [content]
        for part in parts:
            try:
                return "avro", read(part)
            # The reader has no error of its own: of bytes that do not fit come those of struct, codecs,
            # lists …
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
        raise ValueError(reason)

    return decode


def _avro_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


# -- Protobuf ------------------------------------------------------------------------------------------------


def _protobuf(content: bytes, message: str) -> Decode:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(content).file:
            pool.Add(file)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except (DecodeError, TypeError, KeyError) as error:
        raise SettingsError(
            f"not a descriptor set with {message} (protoc --include_imports --descriptor_set_out): {error}"
        ) from None

    def decode(content: bytes) -> tuple[str, str]:
        _check_size(content)
        try:
            decoded = kind.FromString(_without_prefix(content))
            return "protobuf", json_format.MessageToJson(
                decoded, preserving_proto_field_name=True, ensure_ascii=False
            )
        # KeyError: a file that calls itself one of Google's, with other fields.
        except (DecodeError, json_format.Error, RecursionError, TypeError, KeyError) as error:
            raise ValueError(str(error)) from None

    return decode


def _without_prefix(content: bytes) -> bytes:
    """A field never has the number 0, so a message never begins with a zero byte."""
    return content[message_indexes(content)[1] :] if is_prefixed(content) else content


def _check_size(content: bytes) -> None:
    if len(content) > BYTES_MAX:
        raise ValueError(f"{len(content)} bytes are not decoded, only up to {BYTES_MAX}")
