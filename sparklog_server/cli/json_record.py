"""A record as one line of JSON: what `consume --json` prints and `produce --from-json` reads."""

from typing import Annotated

from msgspec import Meta, Struct

INT32_MAX = (1 << 31) - 1


class JsonRecord(Struct):
    """Keys, values and header values are text; null stands for none. Fields that say where a record stood are passed over."""

    value: str | None
    key: str | None = None
    headers: list[tuple[str, str | None]] = []
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    timestamp_ms: int | None = None
