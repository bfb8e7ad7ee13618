"""Reading a part of a topic: forward from a position, or back from one, within bounds on time, records and
bytes.

A page shows a span of each partition, `[first, limit)`. Older records lie before `first`, newer ones from
`limit` on, so that pages follow each other over all partitions without a gap.
"""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from sparklog.client.admin.admin import EARLIEST, LATEST, Admin
from sparklog.client.admin.positions import Position, offsets_at
from sparklog.client.consumer.consumer import Consumer, ConsumerRecord
from sparklog.client.settings import ClientSettings, IsolationLevel
from sparklog.model import TopicPartition
from sparklog_server.console.filters import Filter

SCANNED_MAX: Final = 50_000
"""Records that a page with a filter looks at."""
TIME_S_MAX: Final = 4.0
BYTES_MAX: Final = 8 << 20
"""Keys, values and headers of the records on a page; a larger single record is shown all the same."""
_FETCH_BYTES: Final = 4 << 20
_POLL_MS: Final = 200

Offsets = Mapping[TopicPartition, int]


class Wanted(NamedTuple):
    """What to read: forward from `start` or `after`, or back from `before`; the newest records without any of
    them. A partition that such a mapping lacks is read from its begin, or back from its end. Forward reading
    ends at `until`.
    """

    partitions: Sequence[TopicPartition]
    start: Position | None
    limit: int
    selection: Filter | None = None
    isolation: IsolationLevel = "read_uncommitted"
    after: Offsets | None = None
    before: Offsets | None = None
    until: Offsets | None = None


class Found(NamedTuple):
    """The records in the order of a page: oldest first if it was read forward, else newest first. `scanned`
    were looked at; `first` and `limit` are the span of each partition that the page shows, `begins` and
    `ends` those of the logs. `is_whole` unless a bound ended the reading.
    """

    records: list[ConsumerRecord]
    scanned: int
    first: dict[TopicPartition, int]
    limit: dict[TopicPartition, int]
    begins: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    is_whole: bool

    @property
    def has_older(self) -> bool:
        """Whether there are records before the page."""
        return any(self.first[at] > self.begins[at] for at in self.first)

    @property
    def has_newer(self) -> bool:
        """Whether there are records after the page."""
        return any(self.limit[at] < self.ends[at] for at in self.limit)


def read(admin: Admin, settings: ClientSettings, wanted: Wanted) -> Found:
    """Read as much as the bounds allow, up to the ends of the logs as they are now."""
    begins = _offsets(admin, wanted, EARLIEST)
    ends = _offsets(admin, wanted, LATEST)
    is_back = wanted.start is None and wanted.after is None
    starts, limits = _span(admin, wanted, begins, ends)
    reached = dict(starts)
    reading = {at for at in starts if starts[at] < limits[at]}
    kept: dict[TopicPartition, list[ConsumerRecord]] = {at: [] for at in starts}
    trimmed: set[TopicPartition] = set()
    scanned, size = 0, 0
    with Consumer.from_settings(_reader(settings, wanted.isolation)) as consumer:
        consumer.assign(sorted(reading))
        for at in sorted(reading):
            consumer.seek(at, starts[at])
        until_s = monotonic() + TIME_S_MAX
        while reading and monotonic() < until_s and scanned < SCANNED_MAX:
            if size >= BYTES_MAX and not is_back:
                break
            for record in consumer.poll(_POLL_MS):
                at = record.topic_partition
                if at not in reading or record.offset >= limits[at]:
                    continue
                scanned += 1
                reached[at] = record.offset + 1
                if wanted.selection is not None and not wanted.selection.selects(record):
                    continue
                kept[at].append(record)
                size += _size(record)
                if is_back:
                    while len(kept[at]) > wanted.limit or (size > BYTES_MAX and len(kept[at]) > 1):
                        size -= _size(kept[at].pop(0))
                        trimmed.add(at)
                elif len(kept[at]) >= wanted.limit:
                    reading.discard(at)
                    consumer.pause([at])
            for at in sorted(reading):
                if consumer.position(at) >= limits[at]:
                    reached[at] = limits[at]
                    reading.discard(at)
                    consumer.pause([at])
    records = _merged(kept, wanted.limit, is_back=is_back)
    first, limit = dict(starts), reached
    for at, own in kept.items():  # what was not taken is left
        if is_back:
            taken = [one.offset for one in records if one.topic_partition == at]
            if own or at in trimmed:
                first[at] = min(taken, default=limits[at])
        elif own:
            limit[at] = own[0].offset
    return Found(records, scanned, first, limit, begins, ends, is_whole=not reading)


def _merged(
    kept: dict[TopicPartition, list[ConsumerRecord]], limit: int, *, is_back: bool
) -> list[ConsumerRecord]:
    """Take records out of the lists of the partitions, by time and within each partition by offset."""
    end = -1 if is_back else 0
    choose = max if is_back else min
    found: list[ConsumerRecord] = []
    while len(found) < limit and (heads := [own[end] for own in kept.values() if own]):
        head = choose(heads, key=lambda one: (one.timestamp_ms, one.offset, one.partition))
        found.append(kept[head.topic_partition].pop(end))
    return found


def _offsets(admin: Admin, wanted: Wanted, position: int) -> dict[TopicPartition, int]:
    asked = dict.fromkeys(wanted.partitions, position)
    offsets = admin.list_offsets(asked, isolation_level=wanted.isolation)
    return {at: one.offset for at, one in offsets.items()}


def _span(
    admin: Admin, wanted: Wanted, begins: Offsets, ends: Offsets
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The offsets from which and up to which each partition is read."""

    def within(offsets: Offsets, at: TopicPartition, default: int) -> int:
        return min(max(offsets.get(at, default), begins[at]), ends[at])

    if wanted.after is not None or wanted.start is not None:
        until = wanted.until or {}
        starts: Offsets = wanted.after or {}
        if wanted.start is not None:
            starts = offsets_at(admin, list(wanted.partitions), wanted.start)
        return (
            {at: within(starts, at, begins[at]) for at in wanted.partitions},
            {at: within(until, at, ends[at]) for at in wanted.partitions},
        )
    limits = {at: within(wanted.before or {}, at, ends[at]) for at in wanted.partitions}
    share = wanted.limit
    if wanted.selection is not None:  # the newest that match may lie far back
        share = max(share, SCANNED_MAX // max(1, len(wanted.partitions)))
    return {at: max(begins[at], limits[at] - share) for at in wanted.partitions}, limits


def _reader(settings: ClientSettings, isolation: IsolationLevel) -> ClientSettings:
    return msgspec.structs.replace(
        settings,
        group_id=None,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        fetch_max_bytes=_FETCH_BYTES,
    )


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
