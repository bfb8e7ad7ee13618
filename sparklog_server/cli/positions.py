"""Parsers for times, durations and start positions."""

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

if TYPE_CHECKING:
    from sparklog.client.admin import Admin
    from sparklog.model import TopicPartition

INT64_MAX = (1 << 63) - 1
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT = re.compile(r"(\d{1,12})(ms|[smhdw])")
_ISO = re.compile(
    r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
LANDMARKS = {
    "beginning": "earliest",
    "earliest": "earliest",
    "oldest": "earliest",
    "end": "latest",
    "latest": "latest",
    "newest": "latest",
}


class Position(NamedTuple):
    """A start position: a special offset, an offset, the last `number` records, or the first record at or
    after a time in ms.
    """

    kind: Literal["earliest", "latest", "offset", "last", "time"]
    number: int = 0


def duration_ms(text: str, hint: str) -> int:
    """Milliseconds of `10m`, `1h30m`, `90s`, `500ms`, `2d`, `1w`, or of ISO 8601's `PT10M` and `P1DT12H`."""
    iso = _ISO.fullmatch(text)
    if iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return int(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)
    parts = _SHORT.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise click.BadParameter(f"{text!r} is no duration; write 10m, 1h30m, 2d or PT10M", param_hint=hint)
    return sum(int(number) * UNITS_MS[unit] for number, unit in parts)


def time_ms(text: str, hint: str) -> int:
    """Unix time in ms of `2026-01-31T12:00:00.000` (UTC by default), `2026-01-31`, or of a number of ms."""
    if text.isdecimal() and len(text) > len("20260131"):
        return min(int(text), INT64_MAX)
    from datetime import UTC, datetime

    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time; write 2026-01-31T12:00:00 (UTC), 2026-01-31T12:00:00+02:00 or ms of Unix "
            f"time",
            param_hint=hint,
        ) from None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _offset(digits: str) -> int:
    """The number, at most INT64_MAX; Python refuses to read thousands of digits."""
    return INT64_MAX if len(digits) > 19 else min(int(digits), INT64_MAX)


def position(text: str, hint: str, now_ms: int) -> Position:
    """`beginning`, `end`, `1234`, `-5` (the last five), `-10m` (ten minutes ago), `s@<ms>` as in kcat, or a
    time.
    """
    if text in LANDMARKS:
        return Position("earliest" if LANDMARKS[text] == "earliest" else "latest")
    if text.isdecimal():
        return Position("offset", _offset(text))
    if text.startswith("-"):
        back = text[1:]
        return (
            Position("last", _offset(back))
            if back.isdecimal()
            else Position("time", max(0, now_ms - duration_ms(back, hint)))
        )
    if text.startswith("s@") and text[2:].isdecimal():
        return Position("time", _offset(text[2:]))
    try:
        return Position("time", time_ms(text, hint))
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r} is none of: beginning, end, an offset, -N (the last N), -10m (a duration back), "
            f"2026-01-31T12:00:00 (a time)",
            param_hint=hint,
        ) from None


def offsets_at(
    cluster: "Admin", partitions: "list[TopicPartition]", at: Position
) -> "dict[TopicPartition, int]":
    """The offsets of a position, each within its log; the end if every record is older."""
    from sparklog.client.admin import EARLIEST, LATEST

    def asked(position: int) -> "dict[TopicPartition, int]":
        return {
            partition: told.offset
            for partition, told in cluster.list_offsets(dict.fromkeys(partitions, position)).items()
        }

    if at.kind == "earliest":
        return asked(EARLIEST)
    ends = asked(LATEST)
    if at.kind == "latest":
        return ends
    if at.kind == "time":
        return {
            partition: offset if offset >= 0 else ends[partition]
            for partition, offset in asked(at.number).items()
        }
    begins = asked(EARLIEST)
    wanted = {
        partition: at.number if at.kind == "offset" else ends[partition] - at.number
        for partition in partitions
    }
    return {
        partition: min(max(offset, begins[partition]), ends[partition])
        for partition, offset in wanted.items()
    }
