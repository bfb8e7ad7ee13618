"""Times, durations and positions in a log as people write them, for the command line and `sparklog.read`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from sparklog.client.offsets import EARLIEST, LATEST
from sparklog.durations import duration_ms

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.settings import IsolationLevel
    from sparklog.model import TopicPartition

INT64_MAX: Final = (1 << 63) - 1
LANDMARKS: Final = {
    "beginning": "earliest",
    "earliest": "earliest",
    "oldest": "earliest",
    "end": "latest",
    "latest": "latest",
    "newest": "latest",
}


class Position(NamedTuple):
    """A position: a special offset, an offset, the last `number` records, or the first record at or after a
    time in ms.
    """

    kind: Literal["earliest", "latest", "offset", "last", "time"]
    number: int = 0


def time_ms(text: str) -> int:
    """Unix time in ms of `2026-01-31T12:00:00.000` (UTC by default), `2026-01-31`, or of a number of ms;
    raises ValueError.
    """
    if text.isdecimal() and len(text) > len("20260131"):
        return min(int(text), INT64_MAX)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; write 2026-01-31T12:00:00 (UTC), 2026-01-31T12:00:00+02:00 or ms of Unix "
            f"time"
        ) from None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def position(text: str, now_ms: int) -> Position:
    """`beginning`, `end`, `1234`, `-5` (the last five), `-10m` (ten minutes ago), `s@<ms>` as in kcat, or a
    time; raises ValueError.
    """
    if text in LANDMARKS:
        return Position("earliest" if LANDMARKS[text] == "earliest" else "latest")
    if text.isdecimal():
        return Position("offset", _offset(text))
    if text.startswith("-"):
        back = text[1:]
        if back.isdecimal():
            return Position("last", _offset(back))
        return Position("time", max(0, now_ms - duration_ms(back)))
    if text.startswith("s@") and text[2:].isdecimal():
        return Position("time", _offset(text[2:]))
    try:
        return Position("time", time_ms(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is none of: beginning, end, an offset, -N (the last N), -10m (a duration back), "
            f"2026-01-31T12:00:00 (a time)"
        ) from None


def offsets_at(
    cluster: "Admin",
    partitions: "list[TopicPartition]",
    at: Position,
    isolation_level: "IsolationLevel" = "read_uncommitted",
) -> "dict[TopicPartition, int]":
    """The offsets of a position, each within its log; the end if every record is older."""

    def asked(position: int) -> "dict[TopicPartition, int]":
        listed = cluster.list_offsets(dict.fromkeys(partitions, position), isolation_level=isolation_level)
        return {partition: listed_offset.offset for partition, listed_offset in listed.items()}

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


def _offset(digits: str) -> int:
    """The number, at most INT64_MAX; Python refuses to read thousands of digits."""
    return INT64_MAX if len(digits) > 19 else min(int(digits), INT64_MAX)
