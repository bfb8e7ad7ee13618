"""Values and records as lines of JSON: the output of `consume --json`, the input of `produce --from-json`."""

from base64 import b64encode
from json import dumps
from typing import Annotated, Final

from msgspec import Meta, Raw, Struct
from msgspec.json import decode

from sparklog import escapes

INT32_MAX: Final = (1 << 31) - 1
RECORD_FIELDS: Final = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")


def json_text(value: object) -> str:
    """One line of JSON; bytes that are not UTF-8 are an object, `{"base64": "…"}`."""
    return escapes.json_text(dumps(value, ensure_ascii=False, default=json_content)) + "\n"


def json_content(value: object) -> str | dict[str, str]:
    """Bytes as JSON has them."""
    assert isinstance(value, bytes), value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


class Binary(Struct):
    """Bytes that are not UTF-8, `{"base64": "…"}` in JSON."""

    base64: bytes


Content = str | Binary | None
"""A key, a value or the value of a header: text where the bytes are UTF-8."""


class JsonRecord(Struct):
    """A record to write; null is a missing key or value. `topic` and `offset`, the place where a record was
    read, are ignored.

    With `value_format`, the value is what was decoded from that format, so that `{"base64": …}` and null are
    values of JSON like others.
    """

    value: Raw
    value_format: str | None = None
    key: Content = None
    headers: list[tuple[str, Content]] = []
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    timestamp_ms: int | None = None


def content_of(told: Content) -> bytes | None:
    """The bytes for a JSON value."""
    return told.base64 if isinstance(told, Binary) else None if told is None else told.encode()


def value_of(told: JsonRecord) -> bytes | None:
    """The bytes of the value. Raises ValueError, such as msgspec's, for what has no such bytes."""
    if told.value_format is None:
        return content_of(decode(told.value, type=Content))
    if told.value_format != "json":
        raise ValueError(
            f"its value is decoded from {told.value_format}: `consume` without --value-format keeps its bytes"
        )
    return bytes(told.value)
