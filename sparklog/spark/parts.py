"""The formats of keys and values that the options of a read select."""

from collections.abc import Mapping
from dataclasses import replace

from sparklog.arrow.formats.choice import check_part
from sparklog.arrow.formats.files import schema_text
from sparklog.arrow.formats.names import Mode, PartFormat, is_decoding
from sparklog.errors import SettingsError
from sparklog.spark.options import Options


def parts_of(options: Options) -> Mapping[str, PartFormat]:
    """The formats of keys and values, by the name of their column; SettingsError if options are missing or
    contradict each other.
    """
    prefix = options.schema_id_prefix
    key = PartFormat("key", options.key_format, options.key_schema, options.key_message, prefix, True)
    value = PartFormat(
        "value", options.value_format, options.value_schema, options.value_message, prefix, True
    )
    for part in (key, value):
        check_part(part)
    if options.mode is not None and not is_decoding(key, value):
        raise SettingsError("option 'mode' is for records that are decoded: set valueFormat or keyFormat")
    return {"key": key, "value": value}


def has_corrupt_column(options: Options) -> bool:
    """Whether the read has the column `_corrupt`."""
    return is_decoding(*parts_of(options).values()) and options.mode is not Mode.FAILFAST


def with_schemas(options: Options) -> Options:
    """The options with the contents of schema files in place of their names; SettingsError for an
    unreadable file.
    """
    key = schema_text("keySchema", options.key_format, options.key_schema)
    value = schema_text("valueSchema", options.value_format, options.value_schema)
    if (key, value) == (options.key_schema, options.value_schema):
        return options
    return replace(options, key_schema=key, value_schema=value)
