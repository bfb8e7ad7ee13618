"""The state of a log from the files of its partition, after a clean stop or a crash.

    clean     nothing is scanned: the indexes of the active segment are read, and the few batches after the
              last index entry
    unclean   from the segment of the recovery point on: batches are walked, and their CRC is checked from
              the recovery point on; both indexes are rebuilt; the first torn batch and all after it are cut;
              then producers are loaded from the newest snapshot and the batches after it

Everything below the recovery point was durable when that was set. A crash can damage only bytes above it:
these are truncated, and `cuts` keeps a copy and reports an event. Bytes missing below it are damage, after a
clean stop too: `completeness` and `damage` report it, and nothing is changed.
"""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from sparklog.model import LeaderEpoch, Millis, Offset
from sparklog.record.batch import CONTROL_BIT, LENGTH_OVERHEAD, NO_TIMESTAMP
from sparklog_server.disk.checkpoint import CheckpointCorrupt
from sparklog_server.disk.door import Disk, DiskFile
from sparklog_server.log.cleaning.swap import CLEANED_SUFFIX, DELETED_SUFFIX, settle_swaps
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.lookup.aborted import recover_aborted
from sparklog_server.log.producers.producer_recovery import recover_producers, unreplicated_transactions
from sparklog_server.log.producers.producer_state import ProducerState
from sparklog_server.log.segment.damage import LogDamaged, Unsound, log_dir_of, next_sound_batch, unsound_in
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE, LeaderEpochCache
from sparklog_server.log.segment.offset_index import OffsetIndex
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    NAME_DIGITS,
    RELATIVE_OFFSET_MAX,
    Segment,
    base_offset_of,
    offset_of,
    walk,
)
from sparklog_server.log.segment.time_index import TimeIndex
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX

from .completeness import check_begin, check_end, check_names, check_seam, check_seams
from .cuts import Cuts

_LEFT_OVER_SUFFIXES = (".tmp", DELETED_SUFFIX, CLEANED_SUFFIX)
_START = Offset(0)


class Recovered(msgspec.Struct, frozen=True):
    """The state of a log from its files. `unsynced` are files that the next sync must include.

    `unreplicated` are the transactions whose markers may not be committed: see `OngoingTransactions`.
    `holes` are ranges of offsets between segments that a cleaner may have left. `leftovers` are files of
    segments that retention removed: they prove where the log begins, and may be removed once the log start
    offset and the epochs are durable.
    """

    segments: list[Segment]
    epochs: LeaderEpochCache
    producers: ProducerState
    snapshot_offset: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset
    unsynced: list[DiskFile]
    holes: Sequence[tuple[Offset, Offset]] = ()
    leftovers: Sequence[str] = ()
    unreplicated: Sequence[tuple[int, int]] = ()


class Checkpointed(msgspec.Struct, frozen=True):
    """What the checkpoints of a log directory, and the mark of a clean stop, tell of one log.

    Markers at or above `high_watermark` may not be committed; None: all are. Below `cleaned_to` Kafka's
    cleaner may have left holes between segments. The metadata log has no missing offsets between batches, and
    its snapshots tell whether it begins too late.
    """

    recovery_point: Offset = _START
    log_start_offset: Offset = _START
    was_clean: bool = False
    high_watermark: Offset | None = None
    cleaned_to: Offset = _START
    is_metadata: bool = False


def recover(
    disk: Disk,
    directory: str,
    settings: LogConfig,
    known: Checkpointed,
    *,
    now_ms: Millis,
    cuts: Cuts | None = None,
) -> Recovered:
    """Read the files of a partition, repair the traces of a crash, and return the state of the log. Raises
    StorageError, and LogDamaged.
    """
    cuts = Cuts(disk, lambda: [directory], now_ms) if cuts is None else cuts
    settle_swaps(disk, directory)
    content = disk.read(f"{directory}/{EPOCH_FILE}")
    saved_epochs = _parse_epochs(content)
    segments, leftovers = _open_segments(disk, directory, saved_epochs, known)
    if content is None and _has_lost_first(segments, known):
        reason = "the first segment is not there, and none was ever durable"
        _remove_all(disk, segments, known.log_start_offset, cuts, reason)
        segments = []
    doubtful = _first_doubtful(segments, known)
    holes = check_seams(
        disk,
        segments,
        doubtful,
        recovery_point=known.recovery_point,
        start=known.log_start_offset,
        cleaned_to=known.cleaned_to,
    )
    for segment in segments[: min(doubtful, len(segments) - 1)]:
        segment.settle()
    epochs = _epochs_of(segments[:doubtful], saved_epochs, known.log_start_offset)
    end_offset = _repair(disk, directory, segments, doubtful, epochs, settings, known, cuts)
    log_start_offset = _log_start(segments, end_offset, known)
    if not segments or end_offset < log_start_offset:
        reason = f"the log starts at offset {log_start_offset}, behind its end"
        _remove_all(disk, segments, end_offset, cuts, reason)
        segments = [Segment.open(disk, directory, log_start_offset, create=True)]
        doubtful, end_offset = 0, log_start_offset
    log_start_offset = Offset(max(log_start_offset, segments[0].base_offset))
    epochs.truncate_end(end_offset)
    epochs.truncate_start(log_start_offset)
    unsynced = [*_save_indexes(segments, doubtful), *recover_aborted(disk, segments, doubtful)]
    producers, snapshot_offset = recover_producers(
        disk,
        directory,
        segments,
        bases=frozenset(segment.base_offset for segment in segments),
        log_start_offset=log_start_offset,
        end_offset=end_offset,
        now_ms=now_ms,
    )
    producers.expire(now_ms, settings.producer_id_expiration_ms)
    is_durable = known.was_clean and doubtful >= len(segments)
    durable_end = end_offset if is_durable else min(known.recovery_point, end_offset)
    unreplicated: Sequence[tuple[int, int]] = ()
    if known.high_watermark is not None:
        # Where only synced records count as committed, the high watermark restarts at the recovery point if
        # that is lower.
        decided_to = Offset(max(log_start_offset, min(known.high_watermark, durable_end)))
        if decided_to < end_offset:
            unreplicated = unreplicated_transactions(disk, directory, segments, decided_to, end_offset)
    return Recovered(
        segments,
        epochs,
        producers,
        snapshot_offset,
        log_start_offset,
        end_offset,
        durable_end,
        unsynced,
        holes,
        leftovers,
        unreplicated,
    )


def _has_lost_first(segments: Sequence[Segment], known: Checkpointed) -> bool:
    """Whether a crash took the name of the first segment of a log that has no file of epochs: the log was
    never synced, or that file would be on disk, so no later record was durable.
    """
    if known.was_clean or not segments:
        return False
    return known.recovery_point <= known.log_start_offset < segments[0].base_offset


def _first_doubtful(segments: Sequence[Segment], known: Checkpointed) -> int:
    """The index of the first segment that is to be walked, and all after it; their number if none is."""
    if known.was_clean:
        return len(segments) if not segments or _load_active(segments[-1]) else len(segments) - 1
    # Strictly below: a sync that ended at the base offset of a segment may be older than the roll that wrote
    # the indexes before it.
    return max(bisect_left(segments, known.recovery_point, key=base_offset_of) - 1, 0)


def _log_start(segments: Sequence[Segment], end_offset: Offset, known: Checkpointed) -> Offset:
    """The log start offset of the checkpoint, or of the first segment if the checkpoint is damaged: a clean
    stop leaves no log that ends before its start, and to empty the log would let one wrong digit delete every
    record.
    """
    if known.was_clean and segments and end_offset < known.log_start_offset:
        return segments[0].base_offset
    return known.log_start_offset


def _save_indexes(segments: Sequence[Segment], doubtful: int) -> list[DiskFile]:
    """Write the indexes of the walked segments but the active one; returns the files for the next sync.
    Raises StorageError.
    """
    unsynced: list[DiskFile] = []
    for segment in segments[doubtful:]:
        unsynced.append(segment.file)
        if segment is not segments[-1]:
            unsynced.extend(segment.save_or_drop_indexes())
    return unsynced


def _open_segments(
    disk: Disk, directory: str, epochs: LeaderEpochCache | None, known: Checkpointed
) -> tuple[list[Segment], list[str]]:
    """The segments by base offset, and the files that prove where the log begins.

    Files of interrupted work are removed, unless durable records are missing. Raises LogDamaged,
    StorageError.
    """
    recovery_point, start = known.recovery_point, known.log_start_offset
    names = disk.list(directory)
    bases = [offset for name in names if (offset := offset_of(name, LOG_SUFFIX)) is not None]
    with_log = frozenset(bases)
    orphans: list[tuple[Offset, str]] = []
    for name in names:
        suffix = name[NAME_DIGITS:]
        offset = offset_of(name, suffix) if suffix in INDEX_SUFFIXES else None
        if offset is not None and offset not in with_log:
            orphans.append((offset, f"{directory}/{name}"))
    leftovers = [name for name in names if name.endswith(_LEFT_OVER_SUFFIXES)]
    retired = [
        offset for name in leftovers if (offset := offset_of(name, LOG_SUFFIX + DELETED_SUFFIX)) is not None
    ]
    check_names(
        directory,
        bases,
        [offset for offset, _ in orphans],
        retired,
        recovery_point=recovery_point,
        start=start,
    )
    if bases and start < bases[0] and not known.is_metadata:
        check_begin(directory, bases[0], epochs, retired, recovery_point=recovery_point, start=start)
    # The other files of a removed segment go before its log: without it they would look like those of a
    # missing segment.
    disk.remove(*(path for _, path in orphans))
    is_begin_known = bool(bases) and any(start < bases[0] > offset for offset in retired)
    kept = [name for name in leftovers if is_begin_known and name.endswith(DELETED_SUFFIX)]
    disk.remove(*(f"{directory}/{name}" for name in sorted(frozenset(leftovers).difference(kept))))
    segments = [Segment.open(disk, directory, base_offset) for base_offset in bases]
    with_aborted = frozenset(offset_of(name, TXN_INDEX_SUFFIX) for name in names)
    for segment in segments:
        segment.has_aborted = segment.base_offset in with_aborted
    return segments, [f"{directory}/{name}" for name in kept]


def _parse_epochs(content: bytes | None) -> LeaderEpochCache | None:
    """The epochs of the checkpoint; None if it is missing or damaged. They are then read from the batches."""
    try:
        return None if content is None else LeaderEpochCache.parse(content)
    except CheckpointCorrupt:
        return None


def _load_active(active: Segment) -> bool:
    """Load the active segment after a clean stop. False if its files contradict each other."""
    if active.file.size == 0:
        return True
    if not active.load_indexes():
        return False
    last = active.count_tail()
    assert active.index is not None
    begin = active.index.positions[-1] if len(active.index) else 0
    return (
        last is not None
        and begin + active.unindexed_bytes == active.file.size
        and last.base_offset >= active.base_offset
    )


def _repair(
    disk: Disk,
    directory: str,
    segments: list[Segment],
    doubtful: int,
    epochs: LeaderEpochCache,
    settings: LogConfig,
    known: Checkpointed,
    cuts: Cuts,
) -> Offset:
    """Walk the segments from index `doubtful` on, truncate at the first incomplete batch, and return the log
    end offset.

    Raises LogDamaged if durable records are missing, before anything is changed.
    """
    recovery_point = known.recovery_point
    end_offset = _next_offset(segments[-1]) if segments and doubtful >= len(segments) else Offset(0)
    keep, cut_at = len(segments), None
    for index in range(doubtful, len(segments)):
        segment = segments[index]
        if index > doubtful and segment.base_offset != end_offset:
            check_seam(segments[index - 1], end_offset, segment.base_offset, recovery_point, known.cleaned_to)
            # Above the recovery point it means that the end of the previous segment was lost.
            if segment.base_offset < end_offset or max(end_offset, recovery_point) < segment.base_offset:
                keep = index
                break
        is_followed = index + 1 < len(segments) and segments[index + 1].base_offset < recovery_point
        end_offset, cut_at = _repair_segment(segment, epochs, settings, known, is_followed=is_followed)
        if cut_at is not None:
            keep = index + 1
            break
    if segments or recovery_point > known.log_start_offset:
        check_end(directory, segments[:keep], end_offset, recovery_point)
    _cut(disk, segments, keep, cut_at, end_offset, cuts)
    return end_offset


def _cut(
    disk: Disk, segments: list[Segment], keep: int, cut_at: int | None, end_offset: Offset, cuts: Cuts
) -> None:
    """Truncate the last of the first `keep` segments at a position, if one is given, and remove the segments
    after it.
    """
    lost, segments[keep:] = segments[keep:], []
    if cut_at is not None:
        file = segments[-1].file
        is_followed = (
            any(segment.file.size for segment in lost)
            or next_sound_batch(file, cut_at + 1, end_offset) is not None
        )
        cuts.cut(
            file,
            cut_at,
            end_offset,
            is_followed=is_followed,
            reason=f"no whole batch begins at byte {cut_at}",
        )
    _remove_all(disk, lost, end_offset, cuts, f"the log ends at offset {end_offset}, before this segment")


def _remove_all(disk: Disk, segments: list[Segment], offset: Offset, cuts: Cuts, reason: str) -> None:
    for segment in segments:
        is_followed = next_sound_batch(segment.file, 0, 0) is not None
        segment.close()
        disk.remove(*(segment.path(suffix) for suffix in INDEX_SUFFIXES))
        cuts.remove(segment.file, offset, is_followed=is_followed, reason=reason)


def _repair_segment(
    segment: Segment, epochs: LeaderEpochCache, settings: LogConfig, known: Checkpointed, *, is_followed: bool
) -> tuple[Offset, int | None]:
    """Rebuild the indexes. Returns the offset after the last batch, and the position at which to truncate.
    Raises LogDamaged and StorageError.

    `is_followed` tells that a durable segment follows.
    """
    recovery_point = known.recovery_point
    segment.index, segment.time_index = OffsetIndex(), TimeIndex()
    segment.max_timestamp, segment.max_timestamp_offset, segment.unindexed_bytes = (
        NO_TIMESTAMP,
        segment.base_offset,
        0,
    )
    end = 0
    end_offset: int = segment.base_offset
    last = (-1, end_offset - 1)
    doubtful_from, due = end, end_offset
    for verify_crc in (False, True):
        for position, header in walk(segment.file, end, verify_crc=verify_crc):
            last_offset = header.base_offset + header.last_offset_delta
            if not verify_crc and header.base_offset >= recovery_point:
                break
            if (
                header.base_offset < end_offset
                or last_offset < header.base_offset
                or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            ):
                break
            if known.is_metadata and header.base_offset != end_offset:
                break
            if header.leader_epoch != epochs.epoch_at(Offset(header.base_offset)):
                # A truncation does not wait for the checkpoint: it may have entries beyond the offset at
                # which the log was truncated and written again.
                epochs.truncate_end(Offset(header.base_offset))
                epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
            segment.index_batch(position, header, settings.index_interval_bytes)
            segment.has_markers |= header.producer_id >= 0 and header.attributes & CONTROL_BIT != 0
            if not verify_crc:
                last = (position, end_offset)
            end, end_offset = position + header.length + LENGTH_OVERHEAD, last_offset + 1
        if not verify_crc:
            doubtful_from, due = end, end_offset
    if end >= segment.file.size:
        return Offset(end_offset), None
    # The damage may be in the offset or length of the last durable batch, so the search begins after its
    # first byte.
    sound = next_sound_batch(segment.file, last[0] + 1, last[1] + 1, recovery_point)
    if end_offset < recovery_point or is_followed or sound is not None:
        found = Unsound(
            doubtful_from, Offset(due), Offset(max(recovery_point if sound is None else sound, due))
        )
        # The walk above uses lengths and offsets without a check; the checksums may place the fault further
        # ahead.
        found = min(found, unsound_in(segment.file, segment.base_offset, recovery_point))
        raise LogDamaged(
            segment.file.path,
            f"no sound batch with offset {found.start} begins there",
            position=found.position,
            start=found.start,
            end=found.end,
            recovery_point=recovery_point,
            log_dir=log_dir_of(segment.directory),
        )
    return Offset(end_offset), end


def _next_offset(active: Segment) -> Offset:
    """The offset after the last batch of a segment whose indexes are in memory."""
    assert active.index is not None
    end_offset: int = active.base_offset
    for _, header in active.walk_from(active.index.positions[-1] if len(active.index) else 0):
        end_offset = header.base_offset + header.last_offset_delta + 1
    return Offset(end_offset)


def _epochs_of(
    segments: list[Segment], saved: LeaderEpochCache | None, log_start_offset: Offset
) -> LeaderEpochCache:
    """The leader epochs of these segments: those of the checkpoint and, of records before its first epoch,
    what the batches tell. The checkpoint begins too late if the log start had been raised, and a crash took
    the newer log start.
    """
    entries = [] if saved is None else saved.entries
    known_from = entries[0][1] if entries else None
    if saved is not None and (known_from is None or known_from <= log_start_offset):
        return saved
    epochs = LeaderEpochCache()
    for segment in segments:
        for _, header in walk(segment.file, 0):
            if known_from is not None and header.base_offset >= known_from:
                break
            if header.leader_epoch > epochs.latest:
                epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
    if saved is not None and not epochs.entries:
        return saved
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs
