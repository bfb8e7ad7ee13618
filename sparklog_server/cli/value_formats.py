"""`consume --value-format`: values as JSON, decoded from JSON, Avro or Protobuf.

A value may begin with the prefix of a schema registry: a zero byte and a schema id of four bytes. One that
cannot be decoded is printed as it is, with a line on stderr.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sparklog.record.schema_id import SIZE, is_prefixed
from sparklog_server.cli.options import report

if TYPE_CHECKING:
    from sparklog.client.consumer import ConsumerRecord

Decode = Callable[[bytes], object]
"""Bytes to what JSON can have; raises ValueError."""

FORMATS: Final = ("json", "avro", "protobuf")
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


def values_of(format_: str | None, schema: str | None, message: str | None) -> Values | None:
    """The decoder that the options select; None for bytes as they are. UsageError for options that do not fit
    together, SettingsError for a schema that cannot be read.
    """
    if format_ is None:
        if schema is not None or message is not None:
            raise click.UsageError("--schema and --message need --value-format avro or protobuf")
        return None
    if (schema is not None) != (format_ != "json"):
        needs = "needs no --schema" if format_ == "json" else "needs --schema FILE"
        raise click.UsageError(f"--value-format {format_} {needs}")
    if (message is not None) != (format_ == "protobuf"):
        needs = "needs --message NAME" if format_ == "protobuf" else "has no --message"
        raise click.UsageError(f"--value-format {format_} {needs}")
    return Values(format_, _json if schema is None else _by_schema(Path(schema), message))


def _by_schema(file: Path, message: str | None) -> Decode:
    from sparklog.errors import SettingsError
    from sparklog_server.console.schemas import decoder

    try:
        content = file.read_bytes()
        decode = decoder(content, message or "")
    except OSError as error:
        raise SettingsError(f"--schema {file}: {error.strerror}") from None
    except ImportError:
        raise SettingsError(
            "--value-format needs Avro and Protobuf: pip install 'sparklog[formats]'"
        ) from None
    except SettingsError as error:
        raise SettingsError(f"--schema {file}: {error}") from None

    def decoded(value: bytes) -> object:
        told: object = json.loads(decode(value)[1], parse_constant=_as_text)
        return told

    return decoded


def _as_text(word: str) -> str:
    """NaN and the infinities, which JSON does not have, as Protobuf writes them."""
    return word


def _json(value: bytes) -> object:
    try:
        # Any: json answers so.
        told: Any = json.loads(value[SIZE:] if is_prefixed(value) else value, parse_constant=_refused)
        # A number beyond those of JSON, and half of a surrogate pair, are refused here.
        json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    return told


def _refused(word: str) -> object:
    raise ValueError(f"{word} is no number of JSON")
