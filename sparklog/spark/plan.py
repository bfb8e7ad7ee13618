"""Chooses the offsets to read next from offsets alone, without a connection, a clock or Spark.

The readers fetch log start offsets and log end offsets from the brokers and pass them to these functions,
which return ranges of offsets. All ranges are half-open, `[start, limit)`. Gaps left by compaction or
transactions are normal and never count as loss. Records are lost only if a range starts below the log start
offset, or if a topic ends below an offset that was already read.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import ceil, floor

from sparklog.arrow.ranges import OffsetRange
from sparklog.errors import SettingsError
from sparklog.model import ZERO_UUID, Offset, TopicPartition, Uuid
from sparklog.spark.offsets import PartitionOffsets, StreamOffset
from sparklog.spark.positions import INT64_MAX

TASKS_MAX = 100_000
"""The maximum number of tasks in one read; more only load Spark's scheduler."""


TINY_BYTES = 1 << 20
"""Ranges estimated below this size together are one task: a task costs Spark more than reading them."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Lost offsets of a partition, a lower bound; reading continues at `restart`, or not at all if the
    partition was deleted.
    """

    partition: TopicPartition
    offsets: int
    restart: Offset | None
    sentence: str


# -- how far to read -----------------------------------------------------------------------------------------


def rate_limited(limit: int, start: PartitionOffsets, end: PartitionOffsets) -> dict[TopicPartition, Offset]:
    """`end` reduced so that about `limit` offsets remain, shared in proportion to the backlog of each
    partition.

    A share below one is one, so that a small partition beside a large one makes progress; other shares are
    rounded down. The arithmetic is that of Spark's Kafka connector, in 64-bit floating point, and no share
    exceeds the largest offset.
    """
    backlog = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = float(sum(backlog.values()))
    limited = dict(end)
    for tp, size in backlog.items():
        share = float(limit) * (float(size) / total)
        offsets = min(INT64_MAX, ceil(share) if share < 1 else floor(share))
        limited[tp] = Offset(min(end[tp], start[tp] + offsets))
    return limited


def bytes_limited(
    bytes_max: int,
    start: PartitionOffsets,
    end: PartitionOffsets,
    per_offset: Callable[[TopicPartition], float],
) -> dict[TopicPartition, Offset]:
    """`end` reduced so that about `bytes_max` bytes remain: the same fraction of every backlog, at least
    one offset of each.
    """
    backlog = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(size * per_offset(tp) for tp, size in backlog.items())
    if total <= bytes_max:
        return dict(end)
    fraction = bytes_max / total
    return {
        **end,
        **{
            tp: Offset(min(end[tp], start[tp] + max(1, floor(size * fraction))))
            for tp, size in backlog.items()
        },
    }


def is_put_off(
    current: StreamOffset, end: StreamOffset, *, least: int | None, waited_ms: float, delay_ms: int
) -> bool:
    """Whether a micro-batch waits: it has fewer than `least` offsets, and the last one began less than
    `delay_ms` ago.
    """
    if least is None or waited_ms >= delay_ms:
        return False
    return sum(len(r) for r in ranges_between(current, end)) < least


def next_offset(
    current: StreamOffset,
    *,
    latest: PartitionOffsets,
    earliest_of_new: PartitionOffsets,
    limit: int | None = None,
    ids: Mapping[str, Uuid] | None = None,
    limited: Callable[[PartitionOffsets, PartitionOffsets], PartitionOffsets] | None = None,
) -> StreamOffset:
    """The end of the next micro-batch after `current`, up to `latest`; `limit` is in offsets, `limited`
    applies other limits.

    New partitions of `latest` begin at `earliest_of_new`; partitions no longer in `latest` stay. A position
    never goes backwards: if `latest` is below it, it stays. `ids` are those of the topics of `latest`.
    """
    began = {
        # A new partition without an earliest offset has been deleted meanwhile.
        **{tp: earliest_of_new[tp] for tp in latest if tp not in current.reached and tp in earliest_of_new},
        **{tp: current.began.get(tp, reached) for tp, reached in current.reached.items()},
    }
    start = {tp: current.reached.get(tp, began[tp]) for tp in began}
    end: PartitionOffsets = {tp: Offset(max(start[tp], latest.get(tp, start[tp]))) for tp in began}
    if limit is not None:
        end = rate_limited(limit, start, end)
    if limited is not None:
        end = limited(start, end)
    topics = {tp.topic for tp in began}
    known = {topic: topic_id for topic, topic_id in {**current.ids, **(ids or {})}.items() if topic in topics}
    return StreamOffset(began=began, reached=dict(end), ids=known, lost=current.lost)


# -- lost offsets --------------------------------------------------------------------------------------------


def losses(
    current: StreamOffset,
    *,
    latest: PartitionOffsets,
    log_start: PartitionOffsets,
    ids: Mapping[str, Uuid],
    known_ends: PartitionOffsets,
    deleted: Set[str],
) -> list[Loss]:
    """The lost part of what `current` has not read yet, by partition, judged by log start offsets and topic
    ids.

    A partition that `latest` leaves out is lost only if its topic is `deleted`: otherwise the query cannot
    see it, and it keeps its position. `log_start` has each partition where it can matter; `known_ends` has
    the last known ends of topics that may have been deleted.
    """
    found: list[Loss] = []
    now = StreamOffset(began={}, reached={}, ids=ids)
    for tp, reached in sorted(current.reached.items()):
        unread = max(0, known_ends.get(tp, reached) - reached)
        if tp not in latest and tp.topic not in deleted:
            continue
        if tp not in latest:
            found.append(Loss(tp, unread, None, f"{tp} is gone, read up to offset {reached}"))
        elif not current.is_same_topic(now, tp.topic):
            reason = (
                f"topic {tp.topic!r} was deleted and recreated; {tp} was read up to offset {reached} before"
            )
            found.append(Loss(tp, unread, log_start[tp], reason))
        elif latest[tp] < reached:
            reason = f"{tp} ends at offset {latest[tp]}, but was read up to offset {reached}"
            found.append(Loss(tp, unread, log_start[tp], reason))
        elif reached < log_start.get(tp, reached):
            reason = (
                f"{tp}: offsets {reached} to {log_start[tp] - 1} are gone, the log starts at {log_start[tp]}"
            )
            found.append(Loss(tp, log_start[tp] - reached, log_start[tp], reason))
    return found


def behind(current: StreamOffset, latest: PartitionOffsets) -> list[TopicPartition]:
    """Partitions that end below the offset already read: a new leader may not know its high watermark yet."""
    return [tp for tp, reached in sorted(current.reached.items()) if tp in latest and latest[tp] < reached]


def begin_anew(offset: StreamOffset, found: Sequence[Loss]) -> StreamOffset:
    """`offset` with new starts after a loss and without deleted partitions, so that the stream can
    continue.
    """
    restarts = {loss.partition: loss.restart for loss in found if loss.restart is not None}
    gone = {loss.partition for loss in found if loss.restart is None}
    reached = {tp: restarts.get(tp, reached) for tp, reached in offset.reached.items() if tp not in gone}
    began = {tp: restarts.get(tp, offset.began.get(tp, start)) for tp, start in reached.items()}
    lost = dict(offset.lost)
    for loss in found:
        lost[loss.partition] = min(INT64_MAX, lost.get(loss.partition, 0) + loss.offsets)
    return StreamOffset(began=began, reached=reached, ids=offset.ids, lost=lost)


# -- ranges --------------------------------------------------------------------------------------------------


def unknown_starts(start: StreamOffset, end: StreamOffset) -> list[TopicPartition]:
    """Partitions of `end` whose start neither offset has: `ranges_between` needs their earliest offsets."""
    return [tp for tp in sorted(end.reached) if start.start_in(end, tp) is None]


def ranges_between(
    start: StreamOffset, end: StreamOffset, earliest: PartitionOffsets | None = None
) -> list[OffsetRange]:
    """The ranges of the micro-batch from `start` to `end`, without empty ones, in order of partition."""
    ranges: list[OffsetRange] = []
    for tp in sorted(end.reached):
        begins = start.start_in(end, tp)
        if begins is None:
            begins = (earliest or {}).get(tp, end.reached[tp])
        ranges.append(OffsetRange(tp, begins, end.reached[tp], end.ids.get(tp.topic, ZERO_UUID)))
    return [r for r in ranges if len(r)]


def ranges_of(start: PartitionOffsets, end: PartitionOffsets, ids: Mapping[str, Uuid]) -> list[OffsetRange]:
    """The ranges of a batch read from `start` to `end`, of topics with these ids, without empty ones, in
    order of partition.
    """
    for tp in sorted(start):
        if start[tp] > end[tp]:
            raise SettingsError(
                f"{tp}: startingOffsets {start[tp]} lies beyond the end of the read at offset {end[tp]}"
            )
    return [
        OffsetRange(tp, start[tp], end[tp], ids.get(tp.topic, ZERO_UUID))
        for tp in sorted(end)
        if end[tp] > start[tp]
    ]


def tasks(
    ranges: Sequence[OffsetRange],
    *,
    pieces_min: int | None = None,
    records_max: int | None = None,
    bytes_max: int | None = None,
    per_offset: Callable[[TopicPartition], float] | None = None,
    tiny_bytes: int = 0,
) -> list[tuple[OffsetRange, ...]]:
    """`ranges` divided into tasks: one range per task, split according to the limits; without limits,
    ranges below `tiny_bytes` together share a task.

    Raises SettingsError if the limits require more than TASKS_MAX tasks.
    """
    if not ranges:
        return []
    if pieces_min is None and records_max is None and bytes_max is None:
        return [(r,) for r in ranges] if per_offset is None else _together(ranges, per_offset, tiny_bytes)
    most = [_most(r, records_max, bytes_max, per_offset) for r in ranges]
    counts = [-(-len(r) // limit) for r, limit in zip(ranges, most, strict=True)]
    if max(sum(counts), min(pieces_min or 0, sum(map(len, ranges)))) > TASKS_MAX:
        raise SettingsError(
            f"the options 'maxRecordsPerPartition', 'maxBytesPerPartition' and 'minPartitions' ask for "
            f"{max(sum(counts), pieces_min or 0)}"
            f" tasks, more than {TASKS_MAX}: allow more for each task"
        )
    pieces = [piece for r, count in zip(ranges, counts, strict=True) for piece in _cut(r, count)]
    return [(piece,) for piece in split(pieces, pieces_min)]


def _together(
    ranges: Sequence[OffsetRange], per_offset: Callable[[TopicPartition], float], tiny_bytes: int
) -> list[tuple[OffsetRange, ...]]:
    """Tasks of one range each, or of consecutive ranges estimated below `tiny_bytes` together."""
    dealt: list[list[OffsetRange]] = []
    gathered = float(tiny_bytes)
    for r in ranges:
        size = len(r) * per_offset(r.partition)
        if gathered + size < tiny_bytes:
            dealt[-1].append(r)
            gathered += size
        else:
            dealt.append([r])
            gathered = size
    return [tuple(task) for task in dealt]


def _most(
    r: OffsetRange,
    records_max: int | None,
    bytes_max: int | None,
    per_offset: Callable[[TopicPartition], float] | None,
) -> int:
    """The maximum number of offsets of a range in one task."""
    limits = [len(r)]
    if records_max is not None:
        limits.append(records_max)
    if bytes_max is not None and per_offset is not None:
        limits.append(max(1, floor(bytes_max / per_offset(r.partition))))
    return min(limits)


def split(ranges: Sequence[OffsetRange], pieces_min: int | None) -> list[OffsetRange]:
    """`ranges` split into about `pieces_min` non-empty pieces in proportion to their sizes, as Spark's
    Kafka connector splits them.

    Small ranges that are one piece anyway do not count in the proportion. Rounding may give a piece more or
    less.
    """
    if pieces_min is None or len(ranges) >= pieces_min:
        return list(ranges)
    total = sum(map(len, ranges))
    small = [r for r in ranges if _share(len(r), total, pieces_min) == 1]
    whole = {r.partition for r in small}
    rest, rest_min = total - sum(map(len, small)), max(1, pieces_min - len(small))
    cuts = [(r, 1 if r.partition in whole else _share(len(r), rest, rest_min)) for r in ranges]
    return [piece for r, pieces in cuts for piece in _cut(r, pieces)]


def _share(size: int, total: int, pieces: int) -> int:
    return max(1, floor(float(size) / float(total) * pieces + 0.5))


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    """Pieces of equal size; the last ones are larger by one if the size is not a multiple."""
    cut: list[OffsetRange] = []
    start = whole.start
    for left in range(min(pieces, len(whole)), 0, -1):
        limit = Offset(start + (whole.limit - start) // left)
        cut.append(whole.between(start, limit))
        start = limit
    return cut
