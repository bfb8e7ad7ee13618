"""Converts ISO 8601 dates and times to days and microseconds since 1970, by column and one by one.

pyarrow defines the meaning of a text in both ways. One by one, this module parses the usual forms to the
same numbers, and leaves other forms to pyarrow, which takes forty times as long.
"""

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.arrow.formats.types import TIMESTAMP_NTZ

_USUAL = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,9}))?"
    r"(Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?"
)
_FINER_THAN_MICROS: Final = r"(\.\d{6})\d+"
_DAYS_BEFORE_MONTH: Final = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)
_DAYS_BEFORE_1970: Final = 719162


def timestamps(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as microseconds; UTC if without a zone. pa.ArrowInvalid unless all are times, and all or none
    of them have a zone.
    """
    if kind == TIMESTAMP_NTZ:
        return _cast(texts, kind)
    try:
        return _cast(texts, kind)
    except pa.ArrowInvalid:
        return _cast(texts, TIMESTAMP_NTZ).cast(kind)


def micros(text: str, kind: pa.DataType) -> int:
    """One text, with the result of `timestamps`."""
    usual = _USUAL.fullmatch(text)
    if usual is not None:
        found = _usual_micros(usual, takes_zone=kind != TIMESTAMP_NTZ)
        if found is not None:
            return found
    return int(timestamps(pa.array([text], pa.string()), kind).cast(pa.int64())[0].as_py())


def days(text: str) -> int:
    """A date as days since 1970."""
    return int(pa.array([text], pa.string()).cast(pa.date32()).cast(pa.int32())[0].as_py())


def _cast(texts: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        # Java writes nanoseconds, which are truncated as in Spark.
        return pc.replace_substring_regex(texts, pattern=_FINER_THAN_MICROS, replacement=r"\1").cast(target)


def _usual_micros(usual: re.Match[str], *, takes_zone: bool) -> int | None:
    year, month, day, hour, minute, second = map(int, usual.groups()[:6])
    fraction, zone = usual.groups()[6:]
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year < 1 or not 1 <= month <= 12 or (zone is not None and not takes_zone):
        return None
    before_month = _DAYS_BEFORE_MONTH[month - 1] + (is_leap and month > 2)
    if not 1 <= day <= _DAYS_BEFORE_MONTH[month] - _DAYS_BEFORE_MONTH[month - 1] + (is_leap and month == 2):
        return None
    years = year - 1
    day_number = (
        365 * years + years // 4 - years // 100 + years // 400 + before_month + day - 1 - _DAYS_BEFORE_1970
    )
    minutes = hour * 60 + minute
    if zone is not None and zone != "Z":
        ahead = int(zone[1:3]) * 60 + int(zone[4:6])
        minutes += ahead if zone[0] == "-" else -ahead
    return ((day_number * 1440 + minutes) * 60 + second) * 1_000_000 + (
        int(fraction[:6].ljust(6, "0")) if fraction else 0
    )
