"""Snapshots of the metadata log (KIP-630): each file replaces all records below an offset, so that the log
before it can be removed.

    <end>-<epoch>.checkpoint.part ── written, synced ──► <end>-<epoch>.checkpoint ──► removed by retention
                                                           └── damaged ──► .checkpoint.damaged, not read again

The end offset has 20 digits and is that of the first record not in the snapshot; the epoch, of the last
record in it, has 10. The file holds record batches with their own offsets from 0:

    control batch: SnapshotHeader    data batches …    control batch: SnapshotFooter

A snapshot holds committed records only, so its name proves that the log was durable up to its end. This
module does not read the content of the records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from sparklog.errors import DecodeError
from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, Millis, Offset, OffsetAndEpoch
from sparklog.record.batch import decode_records
from sparklog.record.control import SnapshotFooter, SnapshotHeader, build_control, parse_control
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.removal import Removal, remove_all

SUFFIX = ".checkpoint"
_PARTIAL_SUFFIX = SUFFIX + ".part"
_LEFT_OVER_SUFFIXES = (_PARTIAL_SUFFIX, SUFFIX + ".deleted")
_DAMAGED_SUFFIX = ".damaged"
_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10
_HEAD_BYTES = 4096


class SnapshotDamaged(StorageError):
    """The file exists, and its content is not a whole snapshot."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, "read snapshot", f"at byte {position}: {reason}")
        self.position = position


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot that was read and found whole: its data batches, and the append time of the last record that
    it covers.
    """

    id: OffsetAndEpoch
    batches: memoryview
    last_timestamp: Millis


def file_name(snapshot: OffsetAndEpoch) -> str:
    """The file name, as in Kafka."""
    return f"{snapshot.offset:0{_OFFSET_DIGITS}d}-{snapshot.epoch:0{_EPOCH_DIGITS}d}{SUFFIX}"


def id_of(name: str) -> OffsetAndEpoch | None:
    """The snapshot of a file name; None for any other file."""
    offset, dash, epoch = name.removesuffix(SUFFIX).partition("-")
    if not (name.endswith(SUFFIX) and dash and len(offset) == _OFFSET_DIGITS and len(epoch) == _EPOCH_DIGITS):
        return None
    if not (offset.isascii() and offset.isdecimal() and epoch.isascii() and epoch.isdecimal()):
        return None
    return OffsetAndEpoch(Offset(int(offset)), LeaderEpoch(int(epoch)))


def listed(disk: Disk, directory: str) -> list[OffsetAndEpoch]:
    """The snapshots of a directory, oldest first; partial files of interrupted writes are removed. Raises
    StorageError.
    """
    found: list[OffsetAndEpoch] = []
    for name in disk.list(directory):
        if name.endswith(_LEFT_OVER_SUFFIXES):
            disk.remove(f"{directory}/{name}")
        elif (snapshot := id_of(name)) is not None:
            found.append(snapshot)
    return sorted(found)


def write(
    disk: Disk,
    directory: str,
    snapshot: OffsetAndEpoch,
    batches: Iterable[bytearray],
    *,
    last_timestamp: Millis,
    wall_ms: Millis,
) -> None:
    """Write a snapshot of these data batches durably; a crash leaves the whole file or none. Blocks: a job.
    Raises StorageError.
    """
    path = f"{directory}/{file_name(snapshot)}"
    partial_path = path.removesuffix(SUFFIX) + _PARTIAL_SUFFIX
    disk.remove(partial_path)
    file = disk.open(partial_path, create=True)
    try:
        next_offset = 0
        for batch in _framed(batches, last_timestamp, wall_ms):
            # The loop's thread can run between two appends, so the caller passes small batches.
            view = memoryview(batch)
            (_, header), *_ = scan.headers(view, False)
            scan.stamp(view, next_offset, snapshot.epoch)
            next_offset += header.last_offset_delta + 1
            file.append(view)
        disk.sync([file])
    except StorageError as error:
        file.close()
        if error.is_full:
            disk.remove(partial_path)
        raise
    file.close()
    disk.rename(partial_path, path)


def _framed(batches: Iterable[bytearray], last_timestamp: Millis, wall_ms: Millis) -> Iterator[bytearray]:
    yield build_control(SnapshotHeader(last_contained_log_timestamp=last_timestamp), timestamp_ms=wall_ms)
    yield from batches
    yield build_control(SnapshotFooter(), timestamp_ms=wall_ms)


def read(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> Snapshot:
    """Read a snapshot and check every batch of it. Raises SnapshotDamaged, StorageError."""
    path = f"{directory}/{file_name(snapshot)}"
    file = disk.open(path)
    content = memoryview(file.pread(0, file.size))
    file.close()
    try:
        found = scan.headers(content, True)
    except ValueError as error:
        raise SnapshotDamaged(path, error.args[1], str(error.args[2])) from error
    end, next_offset = 0, 0
    for position, header in found:
        if header.base_offset != next_offset or header.last_offset_delta < 0:
            raise SnapshotDamaged(
                path, position, f"a batch of offset {header.base_offset} where {next_offset} was due"
            )
        end, next_offset = position + header.size, header.next_offset
    if end != len(content):
        raise SnapshotDamaged(path, end, "the batch at this position is truncated")
    if len(found) < 2 or not (found[0][1].is_control and found[-1][1].is_control):
        raise SnapshotDamaged(
            path, end, "a snapshot begins with a header and ends with a footer; this one does not"
        )
    first = _control_of(content[: found[0][1].size], path, 0)
    if not isinstance(first, SnapshotHeader):
        raise SnapshotDamaged(path, 0, "a snapshot begins with a header; this one does not")
    last_position = found[-1][0]
    if not isinstance(_control_of(content[last_position:], path, last_position), SnapshotFooter):
        raise SnapshotDamaged(path, last_position, "a snapshot ends with a footer; this one does not")
    return Snapshot(
        snapshot, content[found[0][1].size : last_position], Millis(first.last_contained_log_timestamp)
    )


def _control_of(batch: memoryview, path: str, position: int) -> object:
    """The first control record of a batch."""
    try:
        return parse_control(decode_records(batch, include_control=True)[0])
    except (DecodeError, IndexError) as error:
        raise SnapshotDamaged(path, position, f"not a control record: {error}") from error


def set_damaged_aside(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> str:
    """Keep a damaged snapshot for the operator under a name that no reader opens; returns that name. Blocks.
    Raises StorageError.
    """
    path = f"{directory}/{file_name(snapshot)}"
    disk.rename(path, path + _DAMAGED_SUFFIX)
    return path + _DAMAGED_SUFFIX


def last_timestamp(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> Millis:
    """The append time in a snapshot's header; -1 if it is unreadable, so that retention may remove
    the file.
    """
    file = disk.open(f"{directory}/{file_name(snapshot)}")
    content = file.pread(0, _HEAD_BYTES)
    file.close()
    try:
        first = parse_control(decode_records(content, include_control=True)[0])
    except (DecodeError, IndexError):
        first = None
    return Millis(first.last_contained_log_timestamp) if isinstance(first, SnapshotHeader) else Millis(-1)


def is_outdated(
    sizes: Sequence[int],
    oldest_timestamp: Millis,
    *,
    log_bytes: int,
    retention_bytes: int,
    retention_ms: int,
    now_ms: Millis,
) -> bool:
    """Whether the oldest of these snapshots exceeds retention: by the size of all and the log, or by its age.
    Negative limits are unlimited.

    One at a time, since the log shrinks with it; the newest always stays.
    """
    if len(sizes) < 2:
        return False
    return 0 <= retention_bytes < log_bytes + sum(sizes) or 0 <= retention_ms < now_ms - oldest_timestamp


def check(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> None:
    """Check a snapshot before an older one is removed, and set it aside if it is damaged. Blocks: a job.
    Raises SnapshotDamaged too.
    """
    try:
        read(disk, directory, snapshot)
    except SnapshotDamaged:
        set_damaged_aside(disk, directory, snapshot)
        raise


def remove(
    disk: Disk, directory: str, snapshot: OffsetAndEpoch, retire: Callable[[], Removal] | None
) -> None:
    """Remove a snapshot, and before it, by `retire`, the segments that only it needs. Blocks: a job. Raises
    StorageError.
    """
    if retire is not None:
        remove_all(retire())
    disk.remove(f"{directory}/{file_name(snapshot)}")
