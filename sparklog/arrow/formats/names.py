"""The formats of keys and values, and the words of the options that select them."""

from dataclasses import dataclass
from enum import Enum


class Format(Enum):
    """The format of a key or value."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Mode(Enum):
    """The handling of a record that cannot be decoded: null with an entry in `_corrupt`, or failure of the
    query.
    """

    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


class SchemaIdPrefix(Enum):
    """Whether the five bytes that clients of schema registries write (0, then the schema id) precede the
    content.

    `auto` decides for each value: only plain Avro may begin like the prefix, and it counts as prefixed if
    the rest decodes to its end.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class PartFormat:
    """The decoding of every key, or every value; `schema` is the text itself, in base64 for Protobuf."""

    part: str
    format: Format = Format.BINARY
    schema: str | None = None
    message: str | None = None
    prefix: SchemaIdPrefix = SchemaIdPrefix.AUTO
    is_spark: bool = False
    """Whether the options have Spark's names, as `valueFormat`."""

    def option(self, word: str) -> str:
        """The name of the option `word` of this part."""
        return f"{self.part}{word.capitalize()}" if self.is_spark else f"{self.part}_{word}"


def is_decoding(*parts: PartFormat) -> bool:
    """Whether any part is decoded."""
    return any(part.format is not Format.BINARY for part in parts)
