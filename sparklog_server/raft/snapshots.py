"""Snapshots of the metadata log (KIP-630): each file replaces all records below an offset, so that the log
before it can be removed.

    <end>-<epoch>.checkpoint.part ── written, synced ──► <end>-<epoch>.checkpoint ──► removed by retention
                                                           ▲  └── damaged ──► .checkpoint.damaged, set aside
    .checkpoint.fetched.part ── checked ──► .checkpoint.new ┘
                                              the log goes meanwhile

A node may write a snapshot while it downloads the one with that name, so these are two files until then.

The end offset has 20 digits and is that of the first record not in the snapshot; the epoch, of the last
record in it, has 10. The file holds record batches with their own offsets from 0:

    SnapshotHeader   KRaftVersion, KRaftVoters (from kraft.version 1 on)   data batches …   SnapshotFooter

A snapshot holds committed records only, so its name proves that the log was durable up to its end. This
module does not read the content of the records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from sparklog.errors import DecodeError
from sparklog.kernels import scan
from sparklog.model import LeaderEpoch, Millis, Offset, OffsetAndEpoch
from sparklog.record.batch import decode_records
from sparklog.record.control import (
    ControlMessage,
    Marker,
    SnapshotFooter,
    SnapshotHeader,
    build_control,
    parse_control,
)
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.disk.removal import Removal, remove_all
from sparklog_server.log.directory.first_start import BOOTSTRAP_FILE
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE

SUFFIX = ".checkpoint"
_PARTIAL_SUFFIX = SUFFIX + ".part"
_FETCHED_SUFFIX = SUFFIX + ".fetched.part"
_NEW_SUFFIX = SUFFIX + ".new"
_LEFT_OVER_SUFFIXES = (_PARTIAL_SUFFIX, _FETCHED_SUFFIX, SUFFIX + ".deleted")
_DAMAGED_SUFFIX = ".damaged"
_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10
_HEAD_BYTES = 4096
_CONTROL_BYTES = 64 << 10
BOOTSTRAP = OffsetAndEpoch(Offset(0), LeaderEpoch(0))
"""The snapshot of a formatted directory (kraft.version 1), which is not sent to other nodes."""


class SnapshotDamaged(StorageError):
    """The file exists, and its content is not a whole snapshot."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, "read snapshot", f"at byte {position}: {reason}")
        self.position = position


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot that was read and found whole: its data batches, the append time of the last record that it
    covers, and the control records behind its header.
    """

    id: OffsetAndEpoch
    batches: memoryview
    last_timestamp: Millis
    control: tuple[ControlMessage, ...] = ()


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
    """The snapshots of a directory, oldest first, without that of its formatting; partial files of
    interrupted writes are removed. Raises StorageError.
    """
    found: list[OffsetAndEpoch] = []
    for name in disk.list(directory):
        if name.endswith(_LEFT_OVER_SUFFIXES):
            disk.remove(f"{directory}/{name}")
        elif (snapshot := id_of(name)) is not None and snapshot != BOOTSTRAP:
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
    control: Sequence[ControlMessage] = (),
) -> None:
    """Write a snapshot of these data batches durably, with `control` behind its header; a crash leaves the
    whole file or none. Blocks: a job. Raises StorageError.
    """
    path = f"{directory}/{file_name(snapshot)}"
    partial_path = path.removesuffix(SUFFIX) + _PARTIAL_SUFFIX
    disk.remove(partial_path)
    file = disk.open(partial_path, create=True)
    try:
        next_offset = 0
        for batch in _framed(batches, last_timestamp, wall_ms, control):
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


def _framed(
    batches: Iterable[bytearray], last_timestamp: Millis, wall_ms: Millis, control: Sequence[ControlMessage]
) -> Iterator[bytearray]:
    yield build_control(SnapshotHeader(last_contained_log_timestamp=last_timestamp), timestamp_ms=wall_ms)
    for message in control:
        yield build_control(message, timestamp_ms=wall_ms)
    yield from batches
    yield build_control(SnapshotFooter(), timestamp_ms=wall_ms)


def read(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> Snapshot:
    """Read a snapshot and check every batch of it. Raises SnapshotDamaged, StorageError."""
    return _read(disk, f"{directory}/{file_name(snapshot)}", snapshot)


def _read(disk: Disk, path: str, snapshot: OffsetAndEpoch) -> Snapshot:
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
    last_position = found[-1][0]
    control: list[ControlMessage] = []
    begin = 0
    for position, header in found[:-1]:
        if not header.is_control:
            break
        begin = position + header.size
        control += _control_of(content[position:begin], path, position)
    if not control or not isinstance(first := control[0], SnapshotHeader):
        raise SnapshotDamaged(path, 0, "a snapshot begins with a header; this one does not")
    if not isinstance(_control_of(content[last_position:], path, last_position)[0], SnapshotFooter):
        raise SnapshotDamaged(path, last_position, "a snapshot ends with a footer; this one does not")
    return Snapshot(
        snapshot,
        content[begin:last_position],
        Millis(first.last_contained_log_timestamp),
        tuple(control[1:]),
    )


def _control_of(batch: memoryview, path: str, position: int) -> list[ControlMessage]:
    """The control records of a batch, of which there is one at least."""
    try:
        found = [parse_control(record) for record in decode_records(batch, include_control=True)]
    except (DecodeError, IndexError) as error:
        raise SnapshotDamaged(path, position, f"not a control record: {error}") from error
    control = [message for message in found if message is not None and not isinstance(message, Marker)]
    if not control:
        raise SnapshotDamaged(path, position, "not a control record")
    return control


def write_bootstrap(
    disk: Disk, directory: str, control: Sequence[ControlMessage], *, wall_ms: Millis
) -> None:
    """Format a directory: its voters and kraft.version, as `kafka-storage format` leaves them (KIP-853).
    Raises StorageError.
    """
    write(disk, directory, BOOTSTRAP, (), last_timestamp=wall_ms, wall_ms=wall_ms, control=control)


def read_bootstrap(disk: Disk, directory: str) -> Snapshot | None:
    """The snapshot that formatting a directory left; None if there is none. Raises SnapshotDamaged,
    StorageError.
    """
    path = f"{directory}/{file_name(BOOTSTRAP)}"
    return _read(disk, path, BOOTSTRAP) if disk.size(path) else None


def write_bootstrap_metadata(disk: Disk, log_dir: str, batch: bytearray, *, wall_ms: Millis) -> None:
    """Write the first records of a cluster, one data batch, into a log directory, as `kafka-storage format`
    does. Raises StorageError.
    """
    write(disk, log_dir, BOOTSTRAP, (batch,), last_timestamp=wall_ms, wall_ms=wall_ms)
    disk.rename(f"{log_dir}/{file_name(BOOTSTRAP)}", f"{log_dir}/{BOOTSTRAP_FILE}")


def read_bootstrap_metadata(disk: Disk, log_dir: str) -> memoryview | None:
    """The data batches of the file that `kafka-storage format` left in a log directory; None if there is
    none. Raises SnapshotDamaged, StorageError.
    """
    path = f"{log_dir}/{BOOTSTRAP_FILE}"
    return _read(disk, path, BOOTSTRAP).batches if disk.size(path) else None


def partial_path(directory: str, snapshot: OffsetAndEpoch) -> str:
    """The file that a download fills."""
    return f"{directory}/{file_name(snapshot)}".removesuffix(SUFFIX) + _FETCHED_SUFFIX


def check_downloaded(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> Snapshot:
    """Sync and check a download. Blocks: a job. Raises SnapshotDamaged, StorageError."""
    path = partial_path(directory, snapshot)
    file = disk.open(path)
    disk.sync([file])
    file.close()
    return _read(disk, path, snapshot)


def begin_install(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> None:
    """From now on a checked download stands for the log, which goes; may be repeated. Blocks: a job. Raises
    StorageError.
    """
    if not disk.size(partial_path(directory, snapshot)):
        return
    disk.rename(
        partial_path(directory, snapshot),
        f"{directory}/{file_name(snapshot)}".removesuffix(SUFFIX) + _NEW_SUFFIX,
    )


def end_install(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> None:
    """The log is gone: the download is a snapshot like any other. Blocks: a job. Raises StorageError."""
    path = f"{directory}/{file_name(snapshot)}"
    disk.rename(path.removesuffix(SUFFIX) + _NEW_SUFFIX, path)


def finish_install(disk: Disk, directory: str) -> OffsetAndEpoch | None:
    """The snapshot whose installation a crash interrupted, after removing the rest of the log; `end_install`
    is to follow. None if there was none. Blocks. Raises StorageError.
    """
    names = disk.list(directory)
    installed = [
        found for name in names if (found := id_of(name.removesuffix(".new"))) and name.endswith(_NEW_SUFFIX)
    ]
    if not installed:
        return None
    files = [name for name in names if name.partition(".")[0].isdecimal() or name == EPOCH_FILE]
    disk.remove(*(f"{directory}/{name}" for name in sorted(files, reverse=True)))
    return installed[-1]


def set_damaged_aside(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> str:
    """Keep a damaged snapshot for the operator under a name that no reader opens; returns that name. Blocks.
    Raises StorageError.
    """
    path = f"{directory}/{file_name(snapshot)}"
    disk.rename(path, path + _DAMAGED_SUFFIX)
    return path + _DAMAGED_SUFFIX


def control_of(disk: Disk, directory: str, snapshot: OffsetAndEpoch) -> Sequence[ControlMessage] | None:
    """The control records behind the header of a snapshot, which is not checked; None if the beginning of
    the file is unreadable. Raises StorageError.
    """
    path = f"{directory}/{file_name(snapshot)}"
    file = disk.open(path)
    content = memoryview(file.pread(0, _CONTROL_BYTES))
    file.close()
    control: list[ControlMessage] = []
    try:
        for position, header in scan.headers(content, False):
            if not header.is_control:
                break
            control += _control_of(content[position : position + header.size], path, position)
    except (ValueError, SnapshotDamaged):
        return None
    return control[1:] if control and isinstance(control[0], SnapshotHeader) else None


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
