"""Where a read starts or ends, in the forms that options accept: a landmark, offsets by partition, a time.

    earliest   latest   latest-1000          a landmark, or a number of offsets before the end
    {"t":{"0":23,"1":-1},"u":"earliest"}     offsets by partition or by topic; -2 is earliest, -1 latest
    -10m   2026-01-02T03:04:05Z              the first record at or after a time, UTC if without a zone
    1767323045000                            the same in milliseconds, for options with "Timestamp" in the
    name

`timestamps_of` returns the times to look up, and the caller asks the brokers; `resolve` turns the answers
into offsets. This module does no I/O and reads no clock.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from sparklog import durations
from sparklog.errors import SettingsError
from sparklog.model import Offset, TopicPartition
from sparklog.spark.offsets import PartitionOffsets

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
NO_OFFSET = -1
"""The broker's answer if no record is at or after a time."""
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_BEFORE_LATEST = re.compile(r"latest\s*-\s*([0-9]{1,19})")
_ISO_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"\s*(?:([Zz])|([+-])([0-9]{2}):?([0-9]{2}))?"
)
_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


class Place(Enum):
    """A named position in every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Landmark:
    """A landmark, or `back` offsets before it if the log reaches that far."""

    place: Place
    back: int = 0


@dataclass(frozen=True, slots=True)
class ByOffset:
    """An offset for each partition, or for a whole topic; -2 is earliest, -1 latest."""

    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)

    def names(self, offset: int) -> bool:
        """Whether the offset is among them."""
        return offset in self.partitions.values() or offset in self.topics.values()


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """A time in milliseconds for each partition, or for a whole topic."""

    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time in milliseconds; with `or_latest`, the end if there is none."""

    timestamp_ms: int
    or_latest: bool = False


@dataclass(frozen=True, slots=True)
class Ago:
    """The first record at or after a duration ago, in milliseconds; latest if there is none."""

    ms: int


Position = Landmark | ByOffset | ByTimestamp | AtTime | Ago

EARLIEST = Landmark(Place.EARLIEST)
LATEST = Landmark(Place.LATEST)


# -- from text -----------------------------------------------------------------------------------------------


def position(value: str) -> Position:
    """Parses startingOffsets and endingOffsets; raises ValueError."""
    text = value.strip()
    word = text.lower()
    if word in ("earliest", "latest"):
        return Landmark(Place(word))
    before = _BEFORE_LATEST.fullmatch(word)
    if before is not None:
        return Landmark(Place.LATEST, _bounded(int(before[1]), "an offset"))
    if word.startswith("-"):
        try:
            ago_ms = durations.duration_ms(word[1:].strip())
        except ValueError:
            pass  # refused below with the other forms
        else:
            return Ago(_bounded(ago_ms, "a time"))
    if _ISO_TIME.fullmatch(text):
        return AtTime(_iso_time_ms(text), or_latest=True)
    example = (
        'earliest, latest, latest-1000, -10m, 2026-01-02T03:04:05Z or JSON such as {"topic":{"0":23,"1":-1}}'
    )
    if not text.startswith("{"):
        raise ValueError(f"must be {example}")
    return ByOffset(*_by_partition(text, example, _offset))


def moment(value: str) -> AtTime:
    """Parses startingTimestamp and endingTimestamp; raises ValueError."""
    return AtTime(
        _timestamp(int(value), "every partition")
        if re.fullmatch(r"\s*-?[0-9]{1,19}\s*", value)
        else _refuse_moment()
    )


def moments(value: str) -> ByTimestamp:
    """Parses startingOffsetsByTimestamp and endingOffsetsByTimestamp; raises ValueError."""
    return ByTimestamp(*_by_partition(value, 'JSON such as {"topic":{"0":1767323045000}}', _timestamp))


def assignment(value: str) -> tuple[TopicPartition, ...]:
    """Parses assign; raises ValueError."""
    example = '{"topic":[0,1]}'
    partitions: set[TopicPartition] = set()
    for topic, numbers in json_object(value, f"JSON such as {example}").items():
        if not isinstance(numbers, list):
            raise ValueError(f"must be JSON such as {example}")
        partitions.update(TopicPartition(topic, _partition_number(number, topic)) for number in numbers)
    if not partitions:
        raise ValueError(f"must name at least one partition, as in {example}")
    return tuple(sorted(partitions))


def duration_ms(value: str) -> int:
    """A duration such as `15m` or `500ms`; a plain number is in milliseconds. Raises ValueError."""
    text = value.strip().lower()
    try:
        ms = int(text) if re.fullmatch(r"[0-9]{1,12}", text) else durations.duration_ms(text)
    except ValueError:
        raise ValueError("must be a length of time such as 500ms, 30s, 15m, 2h, 1d or PT15M") from None
    return _bounded(ms, "a time")


def json_object(value: str, example: str) -> Mapping[str, object]:
    """`value` as a JSON object; raises ValueError that shows the example."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be {example} ({error})") from None
    if not isinstance(parsed, dict):
        raise ValueError(f"must be {example}")
    return parsed


def _by_partition(
    value: str, example: str, parse: Callable[[object, str], int]
) -> tuple[Mapping[TopicPartition, int], Mapping[str, int]]:
    partitions: dict[TopicPartition, int] = {}
    topics: dict[str, int] = {}
    for topic, given in json_object(value, example).items():
        if isinstance(given, dict):
            for number, one in given.items():
                partitions[TopicPartition(topic, _partition_number(number, topic))] = parse(
                    one, f"{topic}-{number}"
                )
        elif isinstance(given, list):
            raise ValueError(f"must be {example}")
        else:
            topics[topic] = parse(given, topic)
    return partitions, topics


def _offset(value: object, where: str) -> int:
    if isinstance(value, str) and value.lower() in ("earliest", "latest"):
        return EARLIEST_OFFSET if value.lower() == "earliest" else LATEST_OFFSET
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST_OFFSET <= value <= INT64_MAX:
        raise ValueError(f"{value!r} is no offset of {where}; -2 means earliest, -1 latest")
    return value


def _timestamp(value: object, where: str) -> int:
    # Brokers accept -2 and -1 as earliest and latest in place of a time, and so does Spark's Kafka
    # connector.
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST_OFFSET <= value <= INT64_MAX:
        raise ValueError(
            f"{value!r} is no timestamp for {where}: it is in milliseconds since 1970, from 0 to {INT64_MAX}"
        )
    return value


def _refuse_moment() -> int:
    raise ValueError("must be a whole number: milliseconds since 1970")


def _bounded(value: int, what: str) -> int:
    if value > INT64_MAX:
        raise ValueError(f"{value} is too large for {what}")
    return value


def _partition_number(value: object, topic: str) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,10}", str(value)) or int(str(value)) > INT32_MAX:
        raise ValueError(f"{value!r} is not a partition number of topic {topic!r}")
    return int(str(value))


def _iso_time_ms(text: str) -> int:
    found = _ISO_TIME.fullmatch(text)
    assert found is not None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    fraction_ms = int(((found[7] or "") + "000")[:3])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days_in_month = (31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not (
        1 <= month <= 12
        and 1 <= day <= days_in_month[month - 1]
        and hour < 24
        and minute < 60
        and second < 60
    ):
        raise ValueError("is no such day or time of day")
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 - 719_162
    days += _DAYS_BEFORE_MONTH[month - 1] + (leap and month > 2) + day - 1
    ahead_min = (int(found[10]) * 60 + int(found[11])) * (1 if found[9] == "+" else -1) if found[9] else 0
    ms = (((days * 24 + hour) * 60 + minute - ahead_min) * 60 + second) * 1000 + fraction_ms
    if ms < 0:
        raise ValueError("lies before 1970, where records have no timestamps")
    return ms


def backwards(start: Position | None, end: Position | None) -> list[str]:
    """The partitions or topics in which a read would end before it starts: one phrase for each."""
    if not isinstance(start, ByOffset) or not isinstance(end, ByOffset):
        return []
    places = [
        (str(tp), first, end.partitions.get(tp, end.topics.get(tp.topic, LATEST_OFFSET)))
        for tp, first in start.partitions.items()
    ]
    places += [(topic, first, end.topics.get(topic, LATEST_OFFSET)) for topic, first in start.topics.items()]
    return [f"{place} from {first} to {last}" for place, first, last in sorted(places) if first > last >= 0]


# -- to offsets ----------------------------------------------------------------------------------------------


def timestamps_of(
    where: Position, partitions: PartitionOffsets, *, option: str, now_ms: int
) -> dict[TopicPartition, int]:
    """The times to look up, by partition; empty if the position has none."""
    match where:
        case AtTime(timestamp_ms):
            return dict.fromkeys(partitions, timestamp_ms)
        case Ago(ms):
            return dict.fromkeys(partitions, max(0, now_ms - ms))
        case ByTimestamp():
            return _for_each(where, partitions, option)
        case _:
            return {}


def resolve(
    where: Position,
    *,
    option: str,
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
    at_time: Mapping[TopicPartition, int] | None = None,
    must_match: bool = False,
) -> dict[TopicPartition, Offset]:
    """The offset of every partition of `latest`; JSON must name exactly those partitions.

    `at_time` has the answers to `timestamps_of`. With `must_match`, a time after the last record is an
    error, unless the position says otherwise.
    """
    match where:
        case Landmark(Place.EARLIEST):
            return dict(earliest)
        case Landmark(Place.LATEST, back):
            return {tp: Offset(max(earliest[tp], end - back)) for tp, end in latest.items()}
        case ByOffset():
            named = {EARLIEST_OFFSET: earliest, LATEST_OFFSET: latest}
            given = _for_each(where, latest, option)
            return {tp: named[offset][tp] if offset < 0 else Offset(offset) for tp, offset in given.items()}
        case _:
            or_latest = isinstance(where, Ago) or (isinstance(where, AtTime) and where.or_latest)
            assert at_time is not None
            missing = [str(tp) for tp in sorted(latest) if at_time[tp] == NO_OFFSET]
            if missing and must_match and not or_latest:
                raise SettingsError(
                    f"option {option!r}: no record of {', '.join(missing)} is at or after that time;"
                    " set startingOffsetsByTimestampStrategy to latest to start with the next record there"
                )
            return {tp: latest[tp] if at_time[tp] == NO_OFFSET else Offset(at_time[tp]) for tp in latest}


def _for_each(
    where: ByOffset | ByTimestamp, partitions: PartitionOffsets, option: str
) -> dict[TopicPartition, int]:
    """The value of each partition, its own or that of its topic."""
    known_topics = {tp.topic for tp in partitions}
    given = {tp: where.topics[tp.topic] for tp in partitions if tp.topic in where.topics} | dict(
        where.partitions
    )
    missing = [str(tp) for tp in sorted(partitions.keys() - given.keys())]
    unknown = [str(tp) for tp in sorted(given.keys() - partitions.keys())] + sorted(
        where.topics.keys() - known_topics
    )
    if missing or unknown:
        kinds = "-2 for earliest and -1 for latest; " if isinstance(where, ByOffset) else ""
        raise SettingsError(
            f"option {option!r} must name every partition that is read, {kinds}missing: "
            f"{', '.join(missing) or 'none'};"
            f" not among those read: {', '.join(unknown) or 'none'}"
        )
    return {tp: given[tp] for tp in sorted(given)}
