"""The future log: the copy of a log in another log directory, as it grows. Sealed segments are copied first,
then the active one, byte for byte.

    <topic>-<n>.<uuid>-future/     .log files, each with its indexes once it is sealed; snapshots,
                                   leader epochs, partition.metadata

A job copies some pieces and makes them durable before it returns, so the turn of the swap has little left to
copy and to sync. The copy has no state but its files. The files of an earlier, interrupted move may be torn,
or belong to a log that was truncated or compacted since: they are compared with the log, and only differences
are written. The caller makes sure that the log is not truncated or compacted during the copy; `gone` lists
the segments that retention removed.

In the turn of its swap a copy is renamed to the name of a log; the source log is renamed for deletion only
once that name is durable. So there is at least one log at any moment. A crash may leave two logs, or a log
and a copy with more records. The longer one is correct, because later records were acknowledged only in it;
up to the end of the shorter one both have the same bytes.
"""

import msgspec

from sparklog.model import Offset, Uuid
from sparklog_server.disk.door import Disk, DiskFile, StorageError
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
    offset_of,
)
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX

from .identity import PARTITION_METADATA_FILE, write_topic_id

_WINDOW_BYTES = 256 << 10
"""The size of one read: allocating more at once would delay the loop."""


class Future(msgspec.Struct, frozen=True):
    """A copy found at the start, and the checkpointed offsets of the log that it may have become."""

    name: str
    topic_id: Uuid
    recovery_point: Offset
    log_start_offset: Offset


def may_be_further(disk: Disk, directory: str, active: Segment) -> bool:
    """Whether a copy in `directory` may have records that the log with this active segment does not. Raises
    StorageError.
    """
    bases = segments_in(disk, directory)
    if not bases or bases[-1] != active.base_offset:
        return bool(bases) and bases[-1] > active.base_offset
    return disk.open(f"{directory}/{bases[-1]:020d}{LOG_SUFFIX}").size > active.file.size


def segments_in(disk: Disk, directory: str) -> tuple[Offset, ...]:
    """The base offsets of the segments in a copy. Raises StorageError."""
    return tuple(
        base_offset
        for name in disk.list(directory)
        if (base_offset := offset_of(name, LOG_SUFFIX)) is not None
    )


class Piece(msgspec.Struct, frozen=True):
    """The bytes `[begin, end)` of a segment's log of `size` bytes. The index files are copied with the last
    piece of a sealed segment.
    """

    base_offset: Offset
    begin: int
    end: int
    size: int
    is_sealed: bool


class Copying(msgspec.Struct, frozen=True):
    """The task of one job. `snapshots` are copied if they exist; `leftovers` is set for the first job of a
    copy.
    """

    source: str
    target: str
    pieces: tuple[Piece, ...]
    gone: tuple[Offset, ...]
    snapshots: tuple[Offset, ...]
    topic_id: Uuid
    leftovers: tuple[str, ...] | None


class Copied(msgspec.Struct, frozen=True):
    """The result of a job; its pieces are durable."""

    io_bytes: int
    pieces: tuple[Piece, ...]


class SourceFailed(msgspec.Struct, frozen=True):
    """The source log cannot be read. This is a fault only if the file should exist."""

    error: StorageError


def copy(disk: Disk, todo: Copying) -> Copied | SourceFailed:
    """Continue a copy. Blocks. Raises StorageError for the target's disk."""
    if todo.leftovers is not None:
        # Of an earlier move only the logs are reused, after a comparison: the other files are copied again.
        names = disk.list(todo.target)
        old = (name for name in names if not name.endswith(LOG_SUFFIX) and name != PARTITION_METADATA_FILE)
        disk.remove(*todo.leftovers, *(f"{todo.target}/{name}" for name in old))
        if PARTITION_METADATA_FILE not in names:
            disk.make_directory(todo.target)
            disk.sync([write_topic_id(disk, todo.target, todo.topic_id)])
    for base_offset in todo.gone:
        # The log last: recovery ignores index files without a log.
        disk.remove(
            *(f"{todo.target}/{file_name(base_offset, suffix)}" for suffix in reversed(SEGMENT_SUFFIXES))
        )
    before = 0
    files: list[DiskFile] = []
    try:
        for piece in todo.pieces:
            before += _copy_piece(disk, todo, piece, files)
        names = [EPOCH_FILE, *(file_name(offset, SNAPSHOT_SUFFIX) for offset in todo.snapshots)]
        for name in names:
            _copy_small(disk, todo, name, files)
    except _SourceError as error:
        return SourceFailed(error.error)
    disk.sync(files)
    for file in files:
        file.close()
    return Copied(before, todo.pieces)


class _SourceError(Exception):
    def __init__(self, error: StorageError) -> None:
        super().__init__(str(error))
        self.error = error


def _copy_piece(disk: Disk, todo: Copying, piece: Piece, files: list[DiskFile]) -> int:
    grown = 0
    for suffix in (LOG_SUFFIX, TXN_INDEX_SUFFIX):
        name = file_name(piece.base_offset, suffix)
        try:
            source = disk.open(f"{todo.source}/{name}")
        except StorageError as error:
            if suffix == TXN_INDEX_SUFFIX and name not in disk.list(todo.source):
                continue  # few segments have one
            raise _SourceError(error) from error
        target = disk.open(f"{todo.target}/{name}", create=True)
        files.append(target)
        begin, end, size = (
            (piece.begin, piece.end, piece.size) if suffix == LOG_SUFFIX else (0, source.size, source.size)
        )
        grown += _grow(source, target, begin, end, size)
        source.close()
    if piece.is_sealed:
        for suffix in (TIME_INDEX_SUFFIX, INDEX_SUFFIX):
            grown += _copy_small(disk, todo, file_name(piece.base_offset, suffix), files)
    grown += _copy_small(disk, todo, file_name(piece.base_offset, SNAPSHOT_SUFFIX), files)
    return grown


def _grow(source: DiskFile, target: DiskFile, begin: int, end: int, size: int) -> int:
    """Make `[begin, end)` of the target equal to the source, which has `size` bytes in all; returns the
    number of bytes written.
    """
    if target.size > size:
        target.truncate(size)
    at, written = begin, 0
    while at < end:
        try:
            window = source.pread(at, min(_WINDOW_BYTES, end - at))
        except StorageError as error:
            raise _SourceError(error) from error
        if not window:
            raise _SourceError(
                StorageError(source.path, "read", f"{source.size} bytes, where there should be {end}")
            )
        if target.size > at and target.pread(at, len(window)) != window:
            target.truncate(at)
        if target.size == at:
            target.append(window)
            written += len(window)
        at += len(window)
    return written


def _copy_small(disk: Disk, todo: Copying, name: str, files: list[DiskFile]) -> int:
    """Copy a small file whole; a missing file is skipped. Returns the number of bytes written."""
    try:
        content = disk.read(f"{todo.source}/{name}")
    except StorageError as error:
        raise _SourceError(error) from error
    if content is None:
        return 0
    files.append(disk.replace(f"{todo.target}/{name}", content))
    return len(content)


def catch_up(
    disk: Disk,
    source: str,
    target: str,
    base_offset: Offset,
    *,
    copied: int,
    end: int,
    has_aborted: bool,
    bytes_max: int,
) -> bool:
    """Copy the rest of the active segment, of which `copied` bytes are copied and which ends at `end`;
    returns False if more than `bytes_max` are missing. Raises StorageError.

    The index of aborted transactions is copied only with `has_aborted`: an index that cannot be opened is
    an error then, not a missing one.
    """
    grown: list[tuple[DiskFile, DiskFile]] = []
    for suffix in (LOG_SUFFIX, TXN_INDEX_SUFFIX) if has_aborted else (LOG_SUFFIX,):
        name = file_name(base_offset, suffix)
        old = disk.open(f"{source}/{name}")
        if suffix == LOG_SUFFIX:
            old.size = end
        grown.append((old, disk.open(f"{target}/{name}", create=True)))
    if grown[0][1].size > copied:
        grown[0][1].truncate(copied)  # bytes of an earlier move, which were not compared
    if sum(old.size - new.size for old, new in grown) > bytes_max:
        return False
    for old, new in grown:
        if old.size > new.size:
            new.append(old.pread(new.size, old.size - new.size))
        old.close()
        new.close()
    return True
