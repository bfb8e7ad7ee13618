"""A record as one line of JSON: the output of `consume --json` and the input of `produce --from-json`."""

from typing import Annotated

from msgspec import Meta, Raw, Struct
from msgspec.json import decode

INT32_MAX = (1 << 31) - 1


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
