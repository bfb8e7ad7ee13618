"""Plans a bounded read: positions become ranges of offsets, by the brokers' answers."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from sparklog.arrow.ranges import DataLoss, OffsetRange, loss_text, lost
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.positions import Position, offsets_at, position
from sparklog.client.failures import UnknownTopic
from sparklog.client.settings import ClientSettings
from sparklog.errors import SettingsError
from sparklog.model import Offset, TopicPartition

LOSS_REMEDY: Final = "Read from start='earliest', or set on_data_loss to 'warn' or 'skip' for the rest."


def position_of(name: str, value: str | int | datetime, now_ms: int) -> Position:
    """The position that an argument names; raises SettingsError."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise SettingsError(f"{name}={value!r} has no time zone: add one, such as tzinfo=datetime.UTC")
        return Position("time", int(value.timestamp() * 1000))
    try:
        return position(str(value), now_ms)
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None


def planned_ranges(
    settings: ClientSettings,
    topics: Sequence[str],
    partitions: Sequence[int] | None,
    start: Position,
    end: Position,
    *,
    fails_on_loss: bool,
) -> list[OffsetRange]:
    """The ranges from `start` to `end`, which is looked up now, by topic and partition, without empty ones.
    A number lies in each log, or above its end; below its log start offset it is a loss.
    """
    if not topics:
        raise SettingsError("nothing to read: name at least one topic")
    if start.kind == end.kind in ("offset", "time") and start.number > end.number:
        raise SettingsError(f"start lies beyond end: {start.kind} {start.number} after {end.number}")
    with Admin.from_settings(settings) as admin:
        described = admin.describe_topics(list(dict.fromkeys(topics)))
        found = [
            TopicPartition(topic.name, p.partition) for topic in described.values() for p in topic.partitions
        ]
        if partitions is not None:
            missing = [
                f"{topic}-{number}"
                for topic in described
                for number in partitions
                if TopicPartition(topic, number) not in found
            ]
            if missing:
                raise UnknownTopic(f"partitions names some that do not exist: {', '.join(missing)}")
            found = [tp for tp in found if tp.partition in partitions]
        begins = offsets_at(admin, found, start, settings.isolation_level)
        ends = offsets_at(admin, found, end, settings.isolation_level)
    ids = {topic.name: topic.topic_id for topic in described.values()}
    ranges = [
        OffsetRange(tp, Offset(begins[tp]), Offset(ends[tp]), ids[tp.topic])
        for tp in sorted(found)
        if ends[tp] > begins[tp]
    ]
    if start.kind == "offset" and fails_on_loss:
        asked = [
            OffsetRange(tp, Offset(start.number), Offset(max(begins[tp], ends[tp]))) for tp in sorted(found)
        ]
        losses = lost(asked, {tp: Offset(offset) for tp, offset in begins.items()})
        if losses:
            raise DataLoss(loss_text(losses, LOSS_REMEDY))
    return ranges


def first_at(settings: ClientSettings, ranges: Iterable[OffsetRange], timestamp_ms: int) -> list[OffsetRange]:
    """The parts of ranges from the first record at or after a time; 0 means all of it."""
    pieces = list(ranges)
    if timestamp_ms <= 0 or not pieces:
        return pieces
    with Admin.from_settings(settings) as admin:
        asked = dict.fromkeys((piece.partition for piece in pieces), timestamp_ms)
        listed = admin.list_offsets(asked, isolation_level=settings.isolation_level)
    firsts = {tp: found.offset for tp, found in listed.items()}
    kept = [
        r.between(Offset(max(r.start, firsts[r.partition])), r.limit)
        for r in pieces
        if firsts[r.partition] >= 0
    ]
    return [piece for piece in kept if len(piece)]
