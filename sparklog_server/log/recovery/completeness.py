"""Checks at a start, without a scan, that every durable segment exists and ends where the next one begins.

    log start                                                recovery point
       |  segment ──► segment ──► segment            segment ──►  |
       `- begins too late?    ^ an index alone?  ^ a hole?        ^ the log ends before?

Each check covers only offsets below the recovery point. A sealed segment is read from its last index entry
on, so it costs two reads. Two kinds of records may be missing: segments that retention has removed (their
`.log.deleted` files stay until the log start offset is in its checkpoint), and the holes that Kafka's cleaner
leaves between segments. The cleaner of this broker leaves none.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from struct import Struct

from sparklog.model import Offset
from sparklog_server.disk.door import Disk, DiskFile, StorageError
from sparklog_server.log.segment.damage import LogDamaged, Unsound, log_dir_of, unsound_in
from sparklog_server.log.segment.leader_epoch_cache import LeaderEpochCache
from sparklog_server.log.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment, file_name, walk

_ENTRY = Struct(">ii")
_TAIL_BYTES = 8192
_WALK_BYTES = 1 << 20


def check_names(
    directory: str,
    bases: Sequence[Offset],
    orphans: Sequence[Offset],
    retired: Iterable[Offset],
    *,
    recovery_point: Offset,
    start: Offset,
) -> None:
    """Check the file names: `orphans` are base offsets with index files and no log, `retired` those of
    segments that retention has renamed. Raises LogDamaged.
    """
    if not orphans:
        return
    gone = frozenset(retired)
    for base_offset in sorted(set(orphans)):
        end = min((base for base in bases if base > base_offset), default=recovery_point)
        if base_offset < recovery_point and base_offset not in gone and max(base_offset, start) < end:
            path = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}"
            raise _damaged(
                directory,
                path,
                "the file is missing, its index is there",
                max(base_offset, start),
                end,
                recovery_point,
            )


def check_begin(
    directory: str,
    first: Offset,
    epochs: LeaderEpochCache | None,
    retired: Sequence[Offset],
    *,
    recovery_point: Offset,
    start: Offset,
) -> None:
    """Check that no durable record is missing before the first segment, whose base offset is `first`; `start`
    is the checkpointed log start offset. Raises LogDamaged.
    """
    if epochs is None or not epochs.entries or any(base_offset < first for base_offset in retired):
        return
    # Kafka writes a log start offset only if it is above the base offset of the first segment; both brokers
    # truncate the epochs at the log start offset.
    begin = max(start, epochs.entries[0][1])
    end = min(first, recovery_point)
    if begin < end:
        raise _damaged(
            directory, directory, f"the first segment begins at offset {first}", begin, end, recovery_point
        )


def check_seams(
    disk: Disk,
    segments: Sequence[Segment],
    count: int,
    *,
    recovery_point: Offset,
    start: Offset,
    cleaned_to: Offset,
) -> list[tuple[Offset, Offset]]:
    """Check that each of the first `count` segments ends where the next one begins; returns the holes that a
    cleaner may have left. Raises LogDamaged.
    """
    holes: list[tuple[Offset, Offset]] = []
    for segment, following in pairwise(segments[: count + 1]):
        limit = following.base_offset
        if start < limit <= recovery_point:
            end_offset = _checked_end(disk, segment, limit, recovery_point, cleaned_to=cleaned_to)
            if end_offset < limit:
                holes.append((end_offset, limit))
    return holes


def check_seam(
    segment: Segment, end_offset: Offset, limit: Offset, recovery_point: Offset, cleaned_to: Offset
) -> None:
    """Check a segment that ends at `end_offset` while the next begins at `limit`. Raises LogDamaged unless
    Kafka's cleaner may have left the hole.

    Above the recovery point a crash may leave a hole.
    """
    is_hole = end_offset < min(limit, recovery_point) and limit > cleaned_to
    is_overlap = limit < min(end_offset, recovery_point)
    if is_hole or is_overlap:
        what = f"the segment ends with offset {end_offset - 1}, and the next one begins with {limit}"
        start, end = sorted((end_offset, limit))
        raise _damaged(
            segment.directory,
            segment.file.path,
            what,
            start,
            max(min(end, recovery_point), start),
            recovery_point,
        )


def check_end(
    directory: str, segments: Sequence[Segment], end_offset: Offset, recovery_point: Offset
) -> None:
    """Check that the log ends at the recovery point or beyond. Raises LogDamaged."""
    if end_offset < recovery_point:
        path = segments[-1].file.path if segments else directory
        what = f"the log ends at offset {end_offset}" if segments else "there is no segment"
        raise _damaged(directory, path, what, end_offset, recovery_point, recovery_point)


def _checked_end(
    disk: Disk, segment: Segment, limit: Offset, recovery_point: Offset, *, cleaned_to: Offset
) -> Offset:
    """The offset after the last batch of a sealed segment, found from its last index entry if that entry is
    valid.
    """
    file = disk.open(
        segment.file.path
    )  # opened and closed here: a start must not hold a handle of every segment
    size = file.size
    relative_offset, indexed = _last_entry(disk, segment)
    position, end_offset = _walk_headers(
        file, indexed, segment.base_offset, segment.base_offset + relative_offset
    )
    if indexed and (position != size or end_offset > limit or indexed >= size):
        position, end_offset = _walk_headers(file, 0, segment.base_offset)
    if position != size:
        found = min(Unsound(position, end_offset, limit), unsound_in(file, segment.base_offset, limit))
        what = f"no sound batch with offset {found.start} begins there"
        raise _damaged(
            segment.directory, file.path, what, found.start, found.end, recovery_point, found.position
        )
    if end_offset < limit and indexed >= size and segment.base_offset + relative_offset >= end_offset:
        what = f"the file has {size} bytes, and its index has a batch at byte {indexed}"
        raise _damaged(segment.directory, segment.file.path, what, end_offset, limit, recovery_point, size)
    check_seam(segment, end_offset, limit, recovery_point, cleaned_to)
    return end_offset


def _last_entry(disk: Disk, segment: Segment) -> tuple[int, int]:
    """(relative offset, position) of the last index entry; zeros if there is none."""
    try:
        file = disk.open(segment.path(INDEX_SUFFIX))
    except StorageError:
        return 0, 0  # the file is missing, or cannot be read
    at = file.size - _ENTRY.size
    entry: tuple[int, int] = (
        _ENTRY.unpack(file.pread(at, _ENTRY.size)) if at >= 0 and file.size % _ENTRY.size == 0 else (0, 0)
    )
    return entry if min(entry) >= 0 else (0, 0)


def _walk_headers(
    file: DiskFile, position: int, base_offset: Offset, last_offset: int | None = None
) -> tuple[int, Offset]:
    """The end of the batches and the offset that follows them, walked from `position`, where the batch with
    `last_offset` should begin.

    `position` and `base_offset` themselves if that batch is not there: an index entry has no checksum.
    """
    end_offset: int = base_offset
    begin = position
    for at, header in walk(file, begin, chunk_bytes=_TAIL_BYTES if begin else _WALK_BYTES):
        if header.base_offset < end_offset or (at == begin > 0 and header.last_offset != last_offset):
            break
        position, end_offset = at + header.size, header.next_offset
    return position, Offset(end_offset)


def _damaged(
    directory: str,
    path: str,
    what: str,
    start: Offset,
    end: Offset,
    recovery_point: Offset,
    position: int | None = None,
) -> LogDamaged:
    return LogDamaged(
        path,
        what,
        position=position,
        start=start,
        end=end,
        recovery_point=recovery_point,
        log_dir=log_dir_of(directory),
    )
