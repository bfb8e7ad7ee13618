"""What to read next, decided from offsets alone: no connection, no clock, no Spark.

The readers ask the brokers for facts (log start offsets, ends) and hand them to these functions; the answers are ranges of offsets. All
ranges are half-open, `[start, limit)`. Gaps between offsets, left by compaction or by transactions, are normal and never count as loss:
records are lost only where a range starts below the log start offset, or where a topic ends below what was already read of it.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor

from sparklog.errors import SettingsError, SparklogError
from sparklog.model import Offset, TopicPartition
from sparklog.spark.offsets import PartitionOffsets, StreamOffset
from sparklog.spark.options import EARLIEST_OFFSET, LATEST_OFFSET, Place, Position


class DataLoss(SparklogError):
    """Records that a read needs are gone; says which, and how to go on without them."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[start, limit)` of one partition: what one task reads."""

    partition: TopicPartition
    start: Offset
    limit: Offset

    def __len__(self) -> int:
        return max(0, self.limit - self.start)


def resolve(position: Position, *, option: str, earliest: PartitionOffsets, latest: PartitionOffsets) -> dict[TopicPartition, Offset]:
    """The offset of every partition of `latest`; JSON must name exactly those partitions."""
    if position.place is Place.EARLIEST:
        return dict(earliest)
    if position.place is Place.LATEST:
        return dict(latest)
    missing = sorted(latest.keys() - position.offsets.keys())
    unknown = sorted(position.offsets.keys() - latest.keys())
    if missing or unknown:
        raise SettingsError(
            f"option {option!r} must name every partition that is read, -2 for earliest and -1 for latest;"
            f" missing: {', '.join(map(str, missing)) or 'none'}; not among those read: {', '.join(map(str, unknown)) or 'none'}"
        )
    named = {EARLIEST_OFFSET: earliest, LATEST_OFFSET: latest}
    return {tp: named[offset][tp] if offset < 0 else Offset(offset) for tp, offset in position.offsets.items()}


def rate_limited(limit: int, start: PartitionOffsets, end: PartitionOffsets) -> dict[TopicPartition, Offset]:
    """`end` brought down so that about `limit` offsets lie between, each partition's share in proportion to its backlog.

    A share below one is one, so that a small partition beside a large one does not starve; any other share is rounded down.
    """
    backlog = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(backlog.values())
    limited = dict(end)
    for tp, size in backlog.items():
        share = limit * (size / total)
        limited[tp] = Offset(min(end[tp], start[tp] + (ceil(share) if share < 1 else floor(share))))
    return limited


def next_offset(
    current: StreamOffset,
    *,
    latest: PartitionOffsets,
    earliest_of_new: PartitionOffsets,
    limit: int | None,
) -> StreamOffset:
    """The end of the next micro-batch after `current`, up to `latest`.

    Partitions of `latest` that are new begin at `earliest_of_new`; those no longer in `latest` stay. A partition never goes back
    by itself: where `latest` lies below what was read, the position stays.
    """
    began = {**{tp: earliest_of_new[tp] for tp in latest if tp not in current.began}, **current.began}
    start = {tp: current.reached.get(tp, began[tp]) for tp in began}
    end = {tp: Offset(max(start[tp], latest.get(tp, start[tp]))) for tp in began}
    return StreamOffset(began=began, reached=end if limit is None else rate_limited(limit, start, end))


def begin_anew(offset: StreamOffset, restarts: PartitionOffsets, gone: Iterable[TopicPartition]) -> StreamOffset:
    """`offset` with reading of some partitions begun anew at `restarts`, and those `gone` left out: a stream goes on after loss."""
    left_out = set(gone)
    began = {tp: restarts.get(tp, start) for tp, start in offset.began.items() if tp not in left_out}
    reached = {tp: restarts.get(tp, reached) for tp, reached in offset.reached.items() if tp not in left_out}
    return StreamOffset(began=began, reached=reached)


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """What the micro-batch from `start` to `end` reads, without empty ranges, in order of partition."""
    ranges = (OffsetRange(tp, start.start_in(end, tp), end.reached[tp]) for tp in sorted(end.reached))
    return [r for r in ranges if len(r)]


def ranges_of(start: PartitionOffsets, end: PartitionOffsets) -> list[OffsetRange]:
    """What a batch read from `start` to `end` reads, without empty ranges, in order of partition."""
    for tp in sorted(start):
        if start[tp] > end[tp]:
            raise SettingsError(f"{tp}: startingOffsets {start[tp]} lies beyond the end of the read at offset {end[tp]}")
    return [OffsetRange(tp, start[tp], end[tp]) for tp in sorted(end) if end[tp] > start[tp]]


def split(ranges: Sequence[OffsetRange], pieces_min: int | None) -> list[OffsetRange]:
    """`ranges` cut into at least `pieces_min` pieces, always the one whose pieces are largest; never an empty piece."""
    total = sum(map(len, ranges))
    if pieces_min is None or len(ranges) >= min(pieces_min, total):
        return list(ranges)
    counts = [1] * len(ranges)
    largest = [(-len(r), index) for index, r in enumerate(ranges)]
    heapq.heapify(largest)
    for _ in range(min(pieces_min, total) - len(ranges)):
        _, index = heapq.heappop(largest)
        counts[index] += 1
        heapq.heappush(largest, (-len(ranges[index]) / counts[index], index))  # type: ignore[misc]
    return [piece for r, count in zip(ranges, counts, strict=True) for piece in _cut(r, count)]


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    size = len(whole)
    bounds = [Offset(whole.start + size * index // pieces) for index in range(pieces + 1)]
    return [OffsetRange(whole.partition, low, high) for low, high in pairwise(bounds)]


def lost(ranges: Iterable[OffsetRange], log_start: Mapping[TopicPartition, Offset]) -> list[str]:
    """One sentence for each range whose first records are gone: it starts below the log start offset, or its partition is no more."""
    losses: list[str] = []
    for r in ranges:
        if r.partition not in log_start:
            losses.append(f"{r.partition} is gone, offsets {r.start} to {r.limit - 1} with it")
        elif r.start < log_start[r.partition]:
            last = min(r.limit, log_start[r.partition]) - 1
            losses.append(f"{r.partition}: offsets {r.start} to {last} are gone, the log starts at {log_start[r.partition]}")
    return losses


def without_lost(ranges: Iterable[OffsetRange], log_start: Mapping[TopicPartition, Offset]) -> list[OffsetRange]:
    """What is still there of `ranges`."""
    kept = (OffsetRange(r.partition, Offset(max(r.start, log_start[r.partition])), r.limit) for r in ranges if r.partition in log_start)
    return [r for r in kept if len(r)]


def loss_text(losses: Sequence[str]) -> str:
    """What a user is told about lost records, and what to do."""
    return (
        "records that this query has not read are gone: "
        + "; ".join(losses)
        + ". They were removed by retention or DeleteRecords, or the topic was deleted."
        + " Set the option failOnDataLoss to false to go on with what is left."
    )


def behind_position(current: StreamOffset, latest: PartitionOffsets) -> list[str]:
    """One sentence for each partition that is no more, or ends below what was read of it: the topic was deleted or made anew."""
    losses: list[str] = []
    for tp, reached in sorted(current.reached.items()):
        if tp not in latest:
            losses.append(f"{tp} is gone, read up to offset {reached}")
        elif latest[tp] < reached:
            losses.append(f"{tp} ends at offset {latest[tp]}, but was read up to offset {reached}")
    return losses
