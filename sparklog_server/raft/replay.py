"""Reading the metadata log back: batches with their checksums, and the newest sound snapshot."""

from collections.abc import Iterator

from sparklog.kernels import scan
from sparklog.model import Offset, OffsetAndEpoch
from sparklog.record.batch import BatchHeader
from sparklog_server.disk.door import Disk
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.segment.damage import LogDamaged

from .snapshots import Snapshot, SnapshotDamaged
from .snapshots import read as read_snapshot

_READ_BYTES = 1 << 20


def read_batches(log: PartitionLog, start: Offset, limit: Offset, *, log_dir: str) -> Iterator[bytes]:
    """The batches of `[start, limit)` in pieces of whole batches, after checking each checksum. Raises
    LogDamaged, StorageError.

    A replay is the only time at which the whole log is read, and the image is built from it.
    """
    position = start
    while position < limit:
        piece = log.read(position, limit, _READ_BYTES, at_least_one=True)
        if piece is None:
            reason = f"there is no batch with offset {position}"
            raise _damaged(log, log.directory, None, reason, position, limit, log_dir)
        batches = piece.read()
        path = next(segment.file.path for segment in log.segments.all if segment.file is piece.file)
        try:
            found = scan.headers(batches, True)
        except ValueError as error:
            sound = scan.headers(memoryview(batches)[: error.args[1]], False)
            end, due = (0, position) if not sound else (_end_at(*sound[-1]), Offset(sound[-1][1].next_offset))
            reason = f"{error.args[2]} in the batch with offset {due}"
            raise _damaged(log, path, piece.position + end, reason, due, limit, log_dir) from None
        if not found:
            reason = f"no whole batch with offset {position} begins there"
            raise _damaged(log, path, piece.position, reason, position, limit, log_dir)
        due = Offset(min(position, found[0][1].base_offset))  # a snapshot may end within a batch
        for at, header in found:
            if header.base_offset != due:
                reason = f"a batch of offset {header.base_offset} where {due} was due"
                raise _damaged(log, path, piece.position + at, reason, due, limit, log_dir)
            due = Offset(header.base_offset + header.last_offset_delta + 1)
        yield batches
        position = due


def newest_sound_snapshot(
    disk: Disk, log: PartitionLog, snapshots: list[OffsetAndEpoch], *, log_dir: str
) -> tuple[Snapshot | None, list[tuple[OffsetAndEpoch, SnapshotDamaged]]]:
    """The newest sound snapshot from which the log continues, if there is one, and the damaged newer ones.

    Raises LogDamaged if no sound snapshot reaches the log start, and StorageError.
    """
    damaged: list[tuple[OffsetAndEpoch, SnapshotDamaged]] = []
    found: Snapshot | None = None
    directory, log_start = log.directory, log.log_start_offset
    for snapshot in reversed(snapshots):
        try:
            found = read_snapshot(disk, directory, snapshot)
            break
        except SnapshotDamaged as error:
            damaged.append((snapshot, error))
    end = Offset(0) if found is None else found.id.offset
    if log_start > end:
        path, reason = directory, "no snapshot is there"
        if damaged:
            path, reason = damaged[0][1].path, damaged[0][1].reason
        what = f"{reason}; the log begins at offset {log_start}, so a snapshot that reaches it is needed"
        raise _damaged(log, path, None, what, end, log_start, log_dir)
    return found, damaged


def _damaged(
    log: PartitionLog, path: str, position: int | None, what: str, start: Offset, end: Offset, log_dir: str
) -> LogDamaged:
    return LogDamaged(
        path,
        what,
        position=position,
        start=start,
        end=end,
        recovery_point=log.recovery_point,
        log_dir=log_dir,
    )


def _end_at(position: int, header: BatchHeader) -> int:
    """The end of the batch at `position`."""
    return position + header.size
