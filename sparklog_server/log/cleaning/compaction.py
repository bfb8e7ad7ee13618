"""The choice of the logs to compact and of the range to compact; `cleaner` does the work.

    log start        first dirty offset            first uncleanable offset         active segment
        │  cleaned before   │  dirty: its keys decide     │  too young, not committed or not durable yet  │

A log is due when its dirty part exceeds `min.cleanable.dirty.ratio` of the part that could be compacted, or
when a dirty record has waited for `max.compaction.lag.ms`. All segments below the first uncleanable offset
are rewritten, those of the cleaned part too.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

import msgspec

from sparklog.kernels import clean
from sparklog.model import Millis, Offset
from sparklog_server.log.log_config import INT64_MAX, LogConfig
from sparklog_server.log.lookup.aborted import IndexReading
from sparklog_server.log.producers.producer_state import ProducerState
from sparklog_server.log.segment.segment import LOG_SUFFIX, Segment, header_at
from sparklog_server.log.segment.txn_index import AbortedTxn

from .cleaner import RoundPlan, Source


class SettledSegments(Protocol):
    """The part of a log's segments that the choice needs."""

    @property
    def settled(self) -> list[Segment]: ...
    @property
    def first_unsettled_offset(self) -> Offset: ...
    def aborted_in(self, start: Offset, limit: Offset) -> list[AbortedTxn]: ...
    def reading_of_aborted(self, start: Offset, limit: Offset) -> IndexReading | None: ...


class CompactedLog(Protocol):
    """The part of a log's state that the choice needs."""

    directory: str
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset
    first_dirty_offset: Offset

    @property
    def segments(self) -> SettledSegments: ...
    @property
    def settings(self) -> LogConfig: ...
    @property
    def producers(self) -> ProducerState: ...
    def last_stable_offset(self, high_watermark: Offset) -> Offset: ...


class Choice(msgspec.Struct, frozen=True):
    """The range of a log that could be compacted, and the reasons to do so. `segments` are sealed and end at
    the first uncleanable offset.
    """

    segments: tuple[Segment, ...]
    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    dirty_ratio: float
    is_due: bool


def judge(log: CompactedLog, high_watermark: Offset, now_ms: Millis) -> Choice:
    """How far the log can be compacted now, and whether it should be. May read a header of each dirty
    segment. Raises StorageError.
    """
    settings, settled = log.settings, log.segments.settled
    # Unsynced records may be lost; the older records that they replace must stay until then.
    stable = min(log.last_stable_offset(high_watermark), log.recovery_point)
    ends = _ends(log, settled)
    count = bisect_right(ends, stable)
    first_dirty = log.first_dirty_offset
    if not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset
    if settings.min_compaction_lag_ms > 0:
        count = _count_old_enough(settled[:count], ends, first_dirty, now_ms - settings.min_compaction_lag_ms)
    segments = tuple(settled[:count])
    end = ends[count - 1] if count else first_dirty
    clean_bytes = sum(segment.file.size for segment in segments if segment.base_offset < first_dirty)
    dirty = [segment for segment, limit in zip(segments, ends, strict=False) if limit > first_dirty]
    dirty_bytes = sum(segment.file.size for segment in dirty)
    total = clean_bytes + dirty_bytes
    ratio = dirty_bytes / total if total else 0.0
    is_overdue = (
        settings.max_compaction_lag_ms < INT64_MAX
        and _first_time(dirty) < now_ms - settings.max_compaction_lag_ms
    )
    is_due = (
        first_dirty < end and dirty_bytes > 0 and (is_overdue or ratio > settings.min_cleanable_dirty_ratio)
    )
    return Choice(segments, Offset(first_dirty), Offset(end), ratio, is_due)


def _ends(log: CompactedLog, settled: Sequence[Segment]) -> list[Offset]:
    """The end offset of each of these segments: the base offset of the next one, and for the last the first
    unsettled offset.
    """
    return [segment.base_offset for segment in settled[1:]] + (
        [log.segments.first_unsettled_offset] if settled else []
    )


def _count_old_enough(
    segments: Sequence[Segment], ends: Sequence[int], first_dirty: Offset, until_ms: int
) -> int:
    """The number of segments before the first dirty one with a record younger than `until_ms`."""
    for index, segment in enumerate(segments):
        if ends[index] > first_dirty and segment.read_max_timestamp()[0] > until_ms:
            return index
    return len(segments)


def _first_time(segments: Sequence[Segment]) -> int:
    """The least of the segments' first timestamps; the greatest possible timestamp if they have none."""
    times = []
    for segment in segments:
        header = header_at(segment.file, 0)
        if header is not None and header.max_timestamp > 0:
            times.append(header.max_timestamp)
    return min(times, default=INT64_MAX)


def reading_before(log: CompactedLog, choice: Choice) -> IndexReading | None:
    """The index files to read in a job before a round is planned; None if all of them are in memory."""
    return log.segments.reading_of_aborted(choice.segments[0].base_offset, choice.first_uncleanable_offset)


def plan_round(
    log: CompactedLog,
    choice: Choice,
    *,
    table_bytes_max: int,
    load_factor: float,
    seed: bytes,
    now_ms: Millis,
) -> RoundPlan:
    """The input of the job, copied, because the log may change meanwhile. Reads the files of `reading_before`
    if no job has. Raises StorageError.
    """
    settings = log.settings
    ends = [segment.base_offset for segment in choice.segments[1:]] + [choice.first_uncleanable_offset]
    slots_max = max(table_bytes_max // clean.SLOT_SIZE, 2)
    # No more than all dirty records could need, even if the setting allows more.
    slots = min(
        slots_max, int((choice.first_uncleanable_offset - choice.first_dirty_offset) / load_factor) + 2
    )
    return RoundPlan(
        log.directory,
        tuple(
            Source(segment.base_offset, end, segment.path(LOG_SUFFIX), segment.file.size)
            for segment, end in zip(choice.segments, ends, strict=True)
        ),
        choice.first_dirty_offset,
        settings.segment_bytes,
        settings.segment_index_bytes,
        settings.index_interval_bytes,
        settings.decompressed_bytes_max,
        tuple(log.producers.last_batches()),
        tuple(
            sorted(log.segments.aborted_in(choice.segments[0].base_offset, choice.first_uncleanable_offset))
        ),
        now_ms,
        min(now_ms + settings.delete_retention_ms, INT64_MAX),
        slots,
        min(max(int(slots * load_factor), 1), slots - 1),
        seed,
    )
