"""Durations as people write them: one grammar for settings, options of the command line and of Spark."""

import re
from typing import Final

UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PART = re.compile(r"([0-9]{1,12})\s*(ms|min|[smhdw])")
_ISO = re.compile(
    r"P(?:([0-9]{1,6})D)?"
    r"(?:T(?:([0-9]{1,6})H)?(?:([0-9]{1,8})M)?(?:([0-9]{1,9})(?:[.,]([0-9]{1,9}))?S)?)?",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int:
    """Milliseconds of `10m`, `1h30m`, `90s`, `500ms`, `2d`, `1w`, or of ISO 8601's `PT10M` and `P1DT12H`;
    raises ValueError.
    """
    iso = iso_duration_ms(text)
    if iso is not None:
        return iso
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise ValueError(f"{text!r} is no duration; write 10m, 1h30m, 2d or PT10M")
    return sum(int(part[1]) * UNITS_MS[part[2]] for part in parts)


def iso_duration_ms(text: str) -> int | None:
    """Milliseconds of a duration of ISO 8601 in days and less, in upper or lower case, with a comma or a
    point before the fraction of a second, as Java reads it; None for another text.
    """
    iso = _ISO.fullmatch(text)
    if iso is None or not any(iso.groups()):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in iso.groups()[:4])
    fraction_ms = int(((iso[5] or "") + "000")[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + fraction_ms
