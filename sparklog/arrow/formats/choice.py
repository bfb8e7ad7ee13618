"""Types and decoders of keys and values, by their formats."""

from typing import Final

import pyarrow as pa

from sparklog.arrow.formats.ddl import parse_schema
from sparklog.arrow.formats.decoded import Decoded, Decoder
from sparklog.arrow.formats.names import Format, PartFormat, SchemaIdPrefix
from sparklog.arrow.formats.types import check_names, is_choice, name_of, nullable
from sparklog.errors import SettingsError

PARTS: Final = ("key", "value")


def column_type(part: PartFormat) -> pa.DataType | None:
    """The type of the column; None if only the schema of the read has it. SettingsError for an invalid
    schema.
    """
    match part.format:
        case Format.BINARY:
            return pa.binary()
        case Format.STRING:
            return pa.string()
    if part.schema is None:
        return None
    try:
        if part.format is Format.JSON:
            kind = nullable(parse_schema(part.schema))
            check_names(kind)
            decoder_of(part, kind)
        elif part.format is Format.AVRO:
            from sparklog.arrow.formats.avro import avro_type

            kind = avro_type(part.schema)
        else:
            from sparklog.arrow.formats.protobuf import message_descriptor, protobuf_type

            kind = protobuf_type(message_descriptor(part.schema, str(part.message)))
    except ValueError as error:
        raise SettingsError(f"option {part.option('schema')!r}: {error}") from error
    return kind


def decoder_of(part: PartFormat, wanted: pa.DataType) -> Decoder | None:
    """The decoder of the part into its type in the schema of the read; None if the part is not decoded."""
    match part.format:
        case Format.BINARY:
            return None
        case Format.STRING:
            return TextDecoder()
        case Format.JSON:
            from sparklog.arrow.formats.json_text import JsonDecoder

            return JsonDecoder(wanted, may_be_prefixed=part.prefix is not SchemaIdPrefix.NEVER)
        case Format.AVRO:
            from sparklog.arrow.formats.avro import AvroDecoder

            return AvroDecoder(str(part.schema), wanted, part.prefix)
        case Format.PROTOBUF:
            from sparklog.arrow.formats.protobuf import ProtobufDecoder, message_descriptor

            return ProtobufDecoder(
                message_descriptor(str(part.schema), str(part.message)), wanted, part.prefix
            )


def check_wanted(part: PartFormat, wanted: pa.DataType) -> None:
    """Refuses a requested type that is not a projection of the records' schema; SettingsError names the
    column.
    """
    where = f"column {part.part!r} of a sparklog read"
    try:
        check_names(wanted)
        if part.format is Format.JSON:
            decoder_of(part, wanted)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error
    if part.format is Format.PROTOBUF and pa.types.is_struct(wanted):
        known: pa.DataType | None = _wanted_message(part, wanted)
    else:
        known = column_type(part)
    if nullable(wanted) != wanted:
        raise SettingsError(f"{where} may hold nulls anywhere, so its schema cannot say NOT NULL")
    if part.format is Format.JSON and known is None:
        return
    if known is None or not is_choice(wanted, nullable(known)):
        kind = "unknown" if known is None else name_of(known)
        is_struct = known is not None and pa.types.is_struct(known)
        remedy = "choose among its fields" if is_struct else "cast it in the query"
        raise SettingsError(f"{where} is {kind}, not {name_of(wanted)}: {remedy}")


def _wanted_message(part: PartFormat, wanted: pa.StructType) -> pa.DataType:
    """The message's type, as far as it is requested: a recursive message has no complete type."""
    from sparklog.arrow.formats.protobuf import message_descriptor, protobuf_type

    try:
        return protobuf_type(message_descriptor(str(part.schema), str(part.message)), wanted)
    except ValueError as error:
        raise SettingsError(f"option {part.option('schema')!r}: {error}") from error


def check_part(part: PartFormat) -> None:
    """Refuses a format without its schema, and a schema without its format."""
    format_, schema, message = (part.option(word) for word in ("format", "schema", "message"))
    if part.format in (Format.AVRO, Format.PROTOBUF) and part.schema is None:
        what = "an Avro schema or its file" if part.format is Format.AVRO else "a file with a descriptor set"
        raise SettingsError(f"option {format_!r} is {part.format.value}, which needs {schema!r}: {what}")
    if part.format in (Format.BINARY, Format.STRING) and part.schema is not None:
        raise SettingsError(
            f"option {schema!r} needs {format_!r} to be json, avro or protobuf, not {part.format.value}"
        )
    if part.format is Format.PROTOBUF and part.message is None:
        raise SettingsError(
            f"option {format_!r} is protobuf, which needs {message!r}: the name of the message"
        )
    if part.format is not Format.PROTOBUF and part.message is not None:
        raise SettingsError(f"option {message!r} needs {format_!r} to be protobuf, not {part.format.value}")


class TextDecoder:
    """Byte strings as strings over the same buffers, if all of them are UTF-8."""

    def decode(self, values: pa.Array) -> Decoded:
        try:
            return Decoded(values.cast(pa.string()), {})
        except pa.ArrowInvalid:
            return _row_by_row(values)


def _row_by_row(values: pa.Array) -> Decoded:
    texts: list[str | None] = []
    refused: dict[int, str] = {}
    for row, content in enumerate(values.to_pylist()):
        try:
            texts.append(None if content is None else content.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            refused[row] = f"not UTF-8 at byte {error.start}"
    return Decoded(pa.array(texts, pa.string()), refused)
