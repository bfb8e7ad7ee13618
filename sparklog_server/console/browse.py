"""Reading a part of a topic: from a position on, or its newest records, with bounds on time, records and
bytes.
"""

from collections.abc import Sequence
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from sparklog.client.admin import EARLIEST, LATEST, Admin
from sparklog.client.consumer import Consumer, ConsumerRecord
from sparklog.client.settings import ClientSettings, IsolationLevel
from sparklog.model import TopicPartition
from sparklog_server.cli.positions import Position, offsets_at
from sparklog_server.console.filters import Filter

SCANNED_MAX: Final = 50_000
"""Records that a page with a filter looks at."""
TIME_S_MAX: Final = 4.0
BYTES_MAX: Final = 8 << 20
"""Keys, values and headers of the records on a page; a larger single record is shown all the same."""
_FETCH_BYTES: Final = 4 << 20
_POLL_MS: Final = 200


class Wanted(NamedTuple):
    """What to read. `start` None means the newest records."""

    partitions: Sequence[TopicPartition]
    start: Position | None
    limit: int
    selection: Filter | None = None
    isolation: IsolationLevel = "read_uncommitted"


class Found(NamedTuple):
    """The records in the order of a page: newest first for the newest, else oldest first. `scanned` were
    looked at; `reached` is the offset at which each partition was left, `begins` and `ends` are those of the
    logs.
    """

    records: list[ConsumerRecord]
    scanned: int
    reached: dict[TopicPartition, int]
    begins: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    is_whole: bool


def read(admin: Admin, settings: ClientSettings, wanted: Wanted) -> Found:
    """Read as much as the bounds allow, up to the ends of the logs as they are now."""
    begins = _offsets(admin, wanted, EARLIEST)
    ends = _offsets(admin, wanted, LATEST)
    starts = _starts(admin, wanted, begins, ends)
    reading = {at for at in starts if starts[at] < ends[at]}
    is_newest = wanted.start is None
    kept: dict[TopicPartition, list[ConsumerRecord]] = {at: [] for at in starts}
    scanned, size = 0, 0
    with Consumer.from_settings(_reader(settings, wanted.isolation)) as consumer:
        consumer.assign(sorted(reading))
        for at in sorted(reading):
            consumer.seek(at, starts[at])
        until_s = monotonic() + TIME_S_MAX
        while reading and monotonic() < until_s and scanned < SCANNED_MAX:
            if size >= BYTES_MAX and not is_newest:
                break
            for record in consumer.poll(_POLL_MS):
                at = record.topic_partition
                if at not in reading or record.offset >= ends[at]:
                    continue
                scanned += 1
                starts[at] = record.offset + 1
                if wanted.selection is not None and not wanted.selection.selects(record):
                    continue
                kept[at].append(record)
                size += _size(record)
                if is_newest:
                    while len(kept[at]) > wanted.limit or (size > BYTES_MAX and len(kept[at]) > 1):
                        size -= _size(kept[at].pop(0))
                elif len(kept[at]) >= wanted.limit:
                    reading.discard(at)
                    consumer.pause([at])
            for at in sorted(reading):
                if (position := consumer.position(at)) >= ends[at]:
                    starts[at] = position
                    reading.discard(at)
                    consumer.pause([at])
    records = [record for own in kept.values() for record in own]
    records.sort(key=lambda one: (one.timestamp_ms, one.offset, one.partition), reverse=is_newest)
    is_whole = all(starts[at] >= ends[at] for at in starts) and (is_newest or len(records) <= wanted.limit)
    return Found(records[: wanted.limit], scanned, starts, begins, ends, is_whole)


def _offsets(admin: Admin, wanted: Wanted, position: int) -> dict[TopicPartition, int]:
    asked = dict.fromkeys(wanted.partitions, position)
    told = admin.list_offsets(asked, isolation_level=wanted.isolation)
    return {at: one.offset for at, one in told.items()}


def _starts(
    admin: Admin, wanted: Wanted, begins: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if wanted.start is not None:
        return offsets_at(admin, list(wanted.partitions), wanted.start)
    share = wanted.limit
    if wanted.selection is not None:  # the newest that match may lie far back
        share = max(share, SCANNED_MAX // max(1, len(wanted.partitions)))
    return {at: max(begins[at], ends[at] - share) for at in wanted.partitions}


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
