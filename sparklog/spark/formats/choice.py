"""Spark types (on the driver) and decoders (on the executors) that the options select for keys and values."""

from collections.abc import Mapping

from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from sparklog.errors import SettingsError
from sparklog.spark.formats.ddl import parse_schema
from sparklog.spark.formats.decoded import Decoder
from sparklog.spark.formats.names import Format, Mode, PartFormat, SchemaIdPrefix
from sparklog.spark.formats.types import arrow_type, check_names, is_choice, nullable
from sparklog.spark.options import Options

PARTS = ("key", "value")


def parts_of(options: Options) -> Mapping[str, PartFormat]:
    """The formats of keys and values, by the name of their column; SettingsError if options are missing or
    contradict each other.
    """
    key = PartFormat(
        "key", options.key_format, options.key_schema, options.key_message, options.schema_id_prefix
    )
    value = PartFormat(
        "value", options.value_format, options.value_schema, options.value_message, options.schema_id_prefix
    )
    for part in (key, value):
        _check(part)
    if options.mode is not None and not is_decoding(key, value):
        raise SettingsError("option 'mode' is for records that are decoded: set valueFormat or keyFormat")
    return {"key": key, "value": value}


def is_decoding(*parts: PartFormat) -> bool:
    """Whether any part is decoded."""
    return any(part.format is not Format.BINARY for part in parts)


def has_corrupt_column(options: Options) -> bool:
    """Whether the read has the column `_corrupt`."""
    return is_decoding(*parts_of(options).values()) and options.mode is not Mode.FAILFAST


def spark_type(part: PartFormat) -> DataType | None:
    """The type of the column; None if only the schema of the read has it. SettingsError for an invalid
    schema.
    """
    match part.format:
        case Format.BINARY:
            return BinaryType()
        case Format.STRING:
            return StringType()
    if part.schema is None:
        return None
    try:
        if part.format is Format.JSON:
            kind = nullable(parse_schema(part.schema))
            check_names(kind)
            decoder_of(part, kind)
        elif part.format is Format.AVRO:
            from sparklog.spark.formats.avro import avro_type

            kind = avro_type(part.schema)
        else:
            from sparklog.spark.formats.protobuf import message_descriptor, protobuf_type

            kind = protobuf_type(message_descriptor(part.schema, str(part.message)))
        arrow_type(kind)
    except ValueError as error:
        raise SettingsError(f"option '{part.part}Schema': {error}") from error
    return kind


def decoder_of(part: PartFormat, wanted: DataType) -> Decoder | None:
    """The decoder of the part into its type in the schema of the read; None if the part is not decoded."""
    match part.format:
        case Format.BINARY:
            return None
        case Format.STRING:
            from sparklog.spark.formats.text import TextDecoder

            return TextDecoder()
        case Format.JSON:
            from sparklog.spark.formats.json_text import JsonDecoder

            return JsonDecoder(wanted, may_be_prefixed=part.prefix is not SchemaIdPrefix.NEVER)
        case Format.AVRO:
            from sparklog.spark.formats.avro import AvroDecoder

            return AvroDecoder(str(part.schema), wanted, part.prefix)
        case Format.PROTOBUF:
            from sparklog.spark.formats.protobuf import ProtobufDecoder, message_descriptor

            return ProtobufDecoder(
                message_descriptor(str(part.schema), str(part.message)), wanted, part.prefix
            )


def check_wanted(part: PartFormat, wanted: DataType) -> None:
    """Refuses a requested type that is not a projection of the records' schema; SettingsError names the
    column.
    """
    where = f"column {part.part!r} of a sparklog read"
    try:
        check_names(wanted)
        if part.format is not Format.BINARY:
            arrow_type(wanted)
        if part.format is Format.JSON:
            decoder_of(part, wanted)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error
    if part.format is Format.PROTOBUF and isinstance(wanted, StructType):
        known: DataType | None = _wanted_message(part, wanted)
    else:
        known = spark_type(part)
    if nullable(wanted) != wanted:
        raise SettingsError(f"{where} may hold nulls anywhere, so its schema cannot say NOT NULL")
    if part.format is Format.JSON and known is None:
        return
    if known is None or not is_choice(wanted, nullable(known)):
        kind = "unknown" if known is None else known.simpleString()
        remedy = "choose among its fields" if isinstance(known, StructType) else "cast it in the query"
        raise SettingsError(f"{where} is {kind}, not {wanted.simpleString()}: {remedy}")


def _wanted_message(part: PartFormat, wanted: StructType) -> DataType:
    """The message's type, as far as it is requested: a recursive message has no complete type."""
    from sparklog.spark.formats.protobuf import message_descriptor, protobuf_type

    try:
        return protobuf_type(message_descriptor(str(part.schema), str(part.message)), wanted)
    except ValueError as error:
        raise SettingsError(f"option '{part.part}Schema': {error}") from error


def _check(part: PartFormat) -> None:
    name = part.part
    if part.format in (Format.AVRO, Format.PROTOBUF) and part.schema is None:
        what = "an Avro schema or its file" if part.format is Format.AVRO else "a file with a descriptor set"
        raise SettingsError(
            f"option '{name}Format' is {part.format.value}, which needs '{name}Schema': {what}"
        )
    if part.format in (Format.BINARY, Format.STRING) and part.schema is not None:
        raise SettingsError(
            f"option '{name}Schema' needs '{name}Format' to be json, avro or protobuf, not "
            f"{part.format.value}"
        )
    if part.format is Format.PROTOBUF and part.message is None:
        raise SettingsError(
            f"option '{name}Format' is protobuf, which needs '{name}Message': the name of the message"
        )
    if part.format is not Format.PROTOBUF and part.message is not None:
        raise SettingsError(
            f"option '{name}Message' needs '{name}Format' to be protobuf, not {part.format.value}"
        )
