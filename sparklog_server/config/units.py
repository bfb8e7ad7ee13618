"""Values with a unit, as people write them: `retention.ms=7d`, `segment.bytes=1GiB`.

Kafka's keys name their unit and take a number of it. The command line and the console convert a value with
`in_unit_of` before they send it; files of settings and brokers keep to Kafka's form.
"""

import re
from typing import Final

from sparklog.durations import duration_ms
from sparklog.errors import SettingsError

TIME_UNITS_MS: Final = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}
"""The words of a key by which its value is a time, and its unit."""
SIZE_WORDS: Final = {"bytes", "byte", "memory"}
SIZES_WITHOUT_A_WORD: Final = {
    "batch.size",
    "max.request.size",
    "log.cleaner.dedupe.buffer.size",
    "sasl.server.max.receive.size",
}
SIZE_UNITS: Final = {
    unit.lower(): factor
    for power, letter in enumerate("kMGTP", start=1)
    for unit, factor in ((f"{letter}iB", 1024**power), (f"{letter}B", 1000**power))
} | {"b": 1}
_WITH_UNIT = re.compile(r"[Pp]T?\d\S*|(?![\d.]+[eE]\d+$)\d[\d.,]*\s*[A-Za-z]\w*")
_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?\s*([A-Za-z]+)")


def in_unit_of(key: str, value: str) -> str:
    """The value as a number in the unit of its key, if it has a unit of its own: `604800000` for `7d` of
    `retention.ms`. Any other value is returned as it is. Raises SettingsError for a unit that does not fit.
    """
    words = set(re.split(r"[._]", key))
    text = value.strip()
    if not _WITH_UNIT.fullmatch(text):
        return value
    unit = next((word for word in TIME_UNITS_MS if word in words), None)
    if unit is not None:
        return _duration(key, text, unit)
    return _size(key, text) if words & SIZE_WORDS or key in SIZES_WITHOUT_A_WORD else value


def _duration(key: str, text: str, unit: str) -> str:
    try:
        ms = duration_ms(text)
    except ValueError as error:
        raise SettingsError(f"{key}: {error}, or a number of {unit}") from None
    count, rest = divmod(ms, TIME_UNITS_MS[unit])
    if rest:
        raise SettingsError(f"{key} takes whole {unit}, which {text} is not")
    return str(count)


def _size(key: str, text: str) -> str:
    parts = _SIZE.fullmatch(text)
    factor = None if parts is None else SIZE_UNITS.get(parts[3].lower())
    if parts is None or factor is None:
        raise SettingsError(f"{key}: {text!r} is no size; write 512KiB, 1GiB, 10MB or a number of bytes")
    decimals = parts[2] or ""
    count, rest = divmod(int(parts[1] + decimals) * factor, 10 ** len(decimals))
    if rest:
        raise SettingsError(f"{key} takes whole bytes, which {text} is not")
    return str(count)
