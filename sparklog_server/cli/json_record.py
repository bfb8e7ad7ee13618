"""A record as one line of JSON: the output of `consume --json` and the input of `produce --from-json`."""

from typing import Annotated

from msgspec import Meta, Struct

INT32_MAX = (1 << 31) - 1


class Binary(Struct):
    """Bytes that are not UTF-8, `{"base64": "…"}` in JSON."""

    base64: bytes


Content = str | Binary | None
"""A key, a value or the value of a header: text where the bytes are UTF-8."""


class JsonRecord(Struct):
    """A record to write; null is a missing key or value. `topic` and `offset`, the place where a record was
    read, are ignored.
    """

    value: Content
    key: Content = None
    headers: list[tuple[str, Content]] = []
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    timestamp_ms: int | None = None


def content_of(told: Content) -> bytes | None:
    """The bytes for a JSON value."""
    return told.base64 if isinstance(told, Binary) else None if told is None else told.encode()
