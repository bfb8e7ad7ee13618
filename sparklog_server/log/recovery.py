"""From the files of a partition to the state of its log, after a clean stop and after any other.

    clean     nothing is scanned: the active segment's indexes are read, and the few batches behind the last index entry
    unclean   from the segment of the recovery point on: batches are walked, checked with their CRC from the recovery point on, both indexes
              rebuilt, the first torn batch and all behind it cut; then producers from the newest snapshot and the batches behind it

Everything below the recovery point was durable when it was set, so it is not doubted, and what lies beyond it was promised to nobody.
"""

from bisect import bisect_left
from typing import NamedTuple

from sparklog.model import LeaderEpoch, Millis, Offset
from sparklog.record.batch import CONTROL_BIT, LENGTH_OVERHEAD, NO_TIMESTAMP
from sparklog_server.disk.checkpoint import CheckpointCorrupt
from sparklog_server.disk.door import Disk, DiskFile

from .aborted import recover_aborted
from .damage import refuse_to_cut
from .epoch_cache import EpochCache
from .offset_index import OffsetIndex
from .producer_recovery import recover_producers
from .producer_state import ProducerState
from .segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    NAME_DIGITS,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_SUFFIX,
    Segment,
    base_offset_of,
    offset_of,
    walk,
)
from .settings import LogSettings
from .swap import settle_swaps
from .time_index import TimeIndex
from .txn_index import TXN_INDEX_SUFFIX

EPOCH_FILE = "leader-epoch-checkpoint"
_LEFT_OVER_SUFFIXES = (".tmp", ".deleted", ".cleaned")
_START = Offset(0)
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Recovered(NamedTuple):
    """The state of a log as its files tell it. `unsynced` is what the next sync must make durable too."""

    segments: list[Segment]
    epochs: EpochCache
    producers: ProducerState
    snapshot_offset: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset
    unsynced: list[DiskFile]


def recover(
    disk: Disk,
    directory: str,
    settings: LogSettings,
    *,
    recovery_point: Offset,
    log_start_offset: Offset,
    was_clean: bool,
    now_ms: Millis,
) -> Recovered:
    """Read the files of a partition, repair what a crash left, and know the log. Raises StorageError, and LogDamaged if it cannot be."""
    settle_swaps(disk, directory)
    segments = _open_segments(disk, directory)
    content = disk.read(f"{directory}/{EPOCH_FILE}")
    epochs = _parse_epochs(content)
    unsynced: list[DiskFile] = []
    doubtful = len(segments)
    if not was_clean and segments and content is None and recovery_point <= log_start_offset < segments[0].base_offset:
        # Never synced, or its epochs were on disk: the name of the first segment was lost, and what follows was promised to nobody.
        for segment in segments:
            _remove_segment(disk, segment)
        segments = []
        doubtful = 0
    if segments:
        if not (was_clean and _load_active(segments[-1])):
            doubtful = len(segments) - 1
        if not was_clean:
            # Strictly below: a sync that ended where a segment begins may be older than the roll that wrote the indexes before it.
            doubtful = max(bisect_left(segments, recovery_point, key=base_offset_of) - 1, 0)
    for segment in segments[: min(doubtful, len(segments) - 1)]:
        segment.settle()
    if epochs is None:
        epochs = _epochs_of(segments[:doubtful])
    end_offset = _repair(disk, segments, doubtful, epochs, settings, recovery_point=recovery_point)
    if was_clean and segments and end_offset < log_start_offset:
        # No clean stop leaves that behind: the checkpoint is damaged, and emptying the log would let one digit take every record.
        log_start_offset = segments[0].base_offset
    if not segments or end_offset < log_start_offset:
        for segment in segments:
            _remove_segment(disk, segment)
        segments = [Segment.open(disk, directory, log_start_offset, create=True)]
        doubtful, end_offset = 0, log_start_offset
    for segment in segments[doubtful:]:
        unsynced.append(segment.file)
        if segment is not segments[-1]:
            unsynced.extend(segment.save_or_drop_indexes())
    log_start_offset = Offset(max(log_start_offset, segments[0].base_offset))
    epochs.truncate_end(end_offset)
    epochs.truncate_start(log_start_offset)
    unsynced += recover_aborted(disk, segments, doubtful)
    producers, snapshot_offset = recover_producers(
        disk, directory, segments, log_start_offset=log_start_offset, end_offset=end_offset, now_ms=now_ms
    )
    producers.expire(now_ms, settings.producer_id_expiration_ms)
    return Recovered(
        segments,
        epochs,
        producers,
        snapshot_offset,
        log_start_offset,
        end_offset,
        end_offset if was_clean and doubtful >= len(segments) else min(recovery_point, end_offset),
        unsynced,
    )


def begin(disk: Disk, directory: str, leader_epoch: LeaderEpoch) -> Recovered:
    """A log that nothing was written to yet: its directory has an empty first segment and, unless it is -1, `leader_epoch` in its file."""
    epochs = EpochCache()
    epochs.assign(leader_epoch, _START)
    epochs.is_saved = True
    segment = Segment.open(disk, directory, _START)
    assert segment.file.size == 0, segment.file.path
    return Recovered([segment], epochs, ProducerState(), _START, _START, _START, _START, [])


def _open_segments(disk: Disk, directory: str) -> list[Segment]:
    """The segments in the order of their base offsets; what interrupted work left behind is removed."""
    names = disk.list(directory)
    bases = [offset for name in names if (offset := offset_of(name, LOG_SUFFIX)) is not None]
    known = frozenset(bases)
    for name in names:
        suffix = name[NAME_DIGITS:]
        offset = offset_of(name, suffix) if suffix in _INDEX_SUFFIXES else None
        if (offset is not None and offset not in known) or name.endswith(_LEFT_OVER_SUFFIXES):
            disk.remove(f"{directory}/{name}")
    segments = [Segment.open(disk, directory, base_offset) for base_offset in bases]
    with_aborted = frozenset(offset_of(name, TXN_INDEX_SUFFIX) for name in names)
    for segment in segments:
        segment.has_aborted = segment.base_offset in with_aborted
    return segments


def _parse_epochs(content: bytes | None) -> EpochCache | None:
    """The epochs of the checkpoint; None if it is missing or damaged: the batches carry their epochs, so they are read again."""
    try:
        return None if content is None else EpochCache.parse(content)
    except CheckpointCorrupt:
        return None


def _load_active(active: Segment) -> bool:
    """Take the active segment as a clean stop left it. False if its files do not agree."""
    if active.file.size == 0:
        return True
    if not active.load_indexes():
        return False
    last = active.count_tail()
    assert active.index is not None
    begin = active.index.positions[-1] if len(active.index) else 0
    return last is not None and begin + active.unindexed_bytes == active.file.size and last[0] >= active.base_offset


def _repair(
    disk: Disk, segments: list[Segment], doubtful: int, epochs: EpochCache, settings: LogSettings, *, recovery_point: Offset
) -> Offset:
    """Walk the segments from index `doubtful` on, cut at the first batch that is not whole, and give the log end offset."""
    end_offset = Offset(0)
    if doubtful >= len(segments):
        return _next_offset(segments[-1]) if segments else end_offset
    for index in range(doubtful, len(segments)):
        segment = segments[index]
        # A hole between two segments means that the end of the first was lost, and what follows it was promised to nobody; but below the
        # recovery point nothing was lost: there Kafka's cleaner left it.
        is_hole = index > doubtful and (segment.base_offset < end_offset or max(end_offset, recovery_point) < segment.base_offset)
        if not is_hole:
            is_followed = index + 1 < len(segments) and segments[index + 1].base_offset < recovery_point
            end_offset, was_cut = _repair_segment(segment, epochs, settings, recovery_point, is_followed=is_followed)
        if is_hole or was_cut:
            keep = index if is_hole else index + 1
            for lost in segments[keep:]:
                _remove_segment(disk, lost)
            del segments[keep:]
            break
    return end_offset


def _repair_segment(
    segment: Segment, epochs: EpochCache, settings: LogSettings, recovery_point: Offset, *, is_followed: bool
) -> tuple[Offset, bool]:
    """Rebuild the indexes, cut what is not whole: (the offset that follows, whether something was cut). Raises LogDamaged, StorageError."""
    segment.index, segment.time_index = OffsetIndex(), TimeIndex()
    segment.max_timestamp, segment.max_timestamp_offset, segment.unindexed_bytes = NO_TIMESTAMP, segment.base_offset, 0
    end = 0
    end_offset: int = segment.base_offset
    last = (-1, end_offset - 1)
    for verify_crc in (False, True):
        for position, header in walk(segment.file, end, verify_crc=verify_crc):
            last_offset = header[0] + header[6]
            if not verify_crc and header[0] >= recovery_point:
                break
            if header[0] < end_offset or last_offset < header[0] or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                break
            if header[2] != epochs.epoch_at(Offset(header[0])):
                # A truncation does not wait for the checkpoint: entries may lie beyond where the log was cut and written anew.
                epochs.truncate_end(Offset(header[0]))
                epochs.assign(LeaderEpoch(header[2]), Offset(header[0]))
            segment.index_batch(position, header, settings.index_interval_bytes)
            segment.has_markers |= header[9] >= 0 and header[5] & CONTROL_BIT != 0
            if not verify_crc:
                last = (position, end_offset)
            end, end_offset = position + header[1] + LENGTH_OVERHEAD, last_offset + 1
    was_cut = end < segment.file.size
    if was_cut:
        refuse_to_cut(segment, end, last=last, recovery_point=recovery_point, is_followed=is_followed)
        segment.file.truncate(end)
    return Offset(end_offset), was_cut


def _next_offset(active: Segment) -> Offset:
    """The offset behind the last batch of a segment whose indexes are in memory."""
    assert active.index is not None
    end_offset: int = active.base_offset
    for _, header in active.walk_from(active.index.positions[-1] if len(active.index) else 0):
        end_offset = header[0] + header[6] + 1
    return Offset(end_offset)


def _remove_segment(disk: Disk, segment: Segment) -> None:
    segment.close()
    for suffix in (LOG_SUFFIX, *_INDEX_SUFFIXES):
        disk.remove(segment.path(suffix))


def _epochs_of(segments: list[Segment]) -> EpochCache:
    """The epochs that the batches of these segments carry."""
    epochs = EpochCache()
    for segment in segments:
        for _, header in walk(segment.file, 0):
            if header[2] > epochs.latest:
                epochs.assign(LeaderEpoch(header[2]), Offset(header[0]))
    return epochs
