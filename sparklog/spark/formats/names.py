"""The words of the options `valueFormat`, `keyFormat`, `mode` and `schemaIdPrefix`."""

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
    """Handling of a record that cannot be decoded: a null and an entry in `_corrupt`, or failure of the
    query.
    """

    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


class SchemaIdPrefix(Enum):
    """Whether the five bytes that schema registries' clients write (0, then the schema's id) stand before
    the content.

    `auto` looks at each: only Avro's own bytes may begin like the prefix; they are taken for prefixed if
    the rest decodes to its end.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class PartFormat:
    """How the key, or the value, of every record is decoded; `schema` is the text itself, Protobuf's in
    base64.
    """

    part: str
    format: Format
    schema: str | None
    message: str | None
    prefix: SchemaIdPrefix
