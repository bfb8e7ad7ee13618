"""Schema files: read once, in the process that plans the read, so that tasks do not need them."""

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final

from sparklog.arrow.formats.names import Format
from sparklog.errors import SettingsError

FILE_BYTES_MAX: Final = 16 << 20
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def schema_text(option: str, format_: Format, given: str | None) -> str | None:
    """The schema itself, if `given` is the name of its file; SettingsError for an unreadable file."""
    if given is None or format_ not in (Format.AVRO, Format.PROTOBUF):
        return given
    if format_ is Format.AVRO:
        if given[:1] in ("{", "[", '"') or given in _PRIMITIVES:
            return given
        try:
            return _read(option, given).decode()
        except UnicodeDecodeError as error:
            raise SettingsError(f"option {option!r}: file {given!r} is not text in UTF-8") from error
    return given if _is_base64(given) else b64encode(_read(option, given)).decode()


def _is_base64(text: str) -> bool:
    """Whether the text is a descriptor set itself: it begins with the tag of its first file, 0x0a."""
    try:
        return b64decode(text, validate=True)[:1] == b"\n"
    except ValueError:
        return False


def _read(option: str, name: str) -> bytes:
    path = Path(name)
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"option {option!r}: {name[:200]!r} is neither a schema nor a file that can be read ({error})"
        ) from error
    if len(content) > FILE_BYTES_MAX:
        raise SettingsError(
            f"option {option!r}: file {name!r} holds more than the {FILE_BYTES_MAX} bytes allowed"
        )
    return content
