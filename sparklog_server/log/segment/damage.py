"""Damage: durable records are missing. A damaged log is not served and not changed.

A crash can damage only bytes above the recovery point, and recovery truncates those (`cuts`). Below the
recovery point a crash removes nothing; to truncate the log there would give the offsets of missing records to
other records.
"""

from typing import NamedTuple

from sparklog.kernels import scan
from sparklog.model import Offset
from sparklog.record.batch import LENGTH_OVERHEAD, MAGIC
from sparklog_server.disk.door import DiskFile, StorageError

from .segment import header_at, walk

_MAGIC_POSITION = 16
_SEARCH_BYTES_MAX = 16 << 20


class LogDamaged(StorageError):
    """The log at `path` has lost durable records: it cannot be used, but other logs of the directory can.

    `position` is the first byte known to be wrong; None if the damage is not at a byte of a file. The records
    of `[start, end)` are lost or cannot be verified; `recovery_point` is the offset below which records were
    durable.
    """

    def __init__(
        self,
        path: str,
        what: str,
        *,
        position: int | None = None,
        start: Offset,
        end: Offset,
        recovery_point: Offset,
        log_dir: str,
    ) -> None:
        place = "" if position is None else f"at byte {position}: "
        lost = (
            f"the records of offsets [{start}, {end}) are lost, of which all below the recovery point "
            f"{recovery_point} were durable"
        )
        super().__init__(
            path, "recover", f"{place}{what}; {lost}; nothing was changed", remedy=repair_remedy(log_dir)
        )
        self.position = position
        self.what = what
        self.start = start
        self.end = end
        self.recovery_point = recovery_point


def repair_remedy(log_dir: str) -> str:
    """What an operator does about a damaged file of a log."""
    return (
        "restore the file from a copy or a replica, or stop the broker and run: "
        f"sparklog log repair {log_dir}"
    )


def is_of_log_alone(error: StorageError) -> bool:
    """Whether an error concerns one log, which is damaged, has a file that cannot be read, or has something
    else under the name of a file; any other concerns its whole directory.
    """
    return isinstance(error, LogDamaged) or error.is_of_path or (error.call == "read" and not error.is_full)


def log_dir_of(partition_directory: str) -> str:
    """The log directory in which the directory of a partition lies."""
    return partition_directory.rpartition("/")[0] or partition_directory


class Unsound(NamedTuple):
    """The bytes from `position` on, where the record with offset `start` was due, have no sound batch before
    the one with base offset `end`.
    """

    position: int
    start: Offset
    end: Offset


def unsound_in(file: DiskFile, base_offset: Offset, limit: Offset) -> Unsound:
    """The first stretch of a segment without a batch with a valid CRC; it ends at `limit` if no such batch
    follows before.
    """
    position, due = 0, int(base_offset)
    for at, header in walk(file, 0, verify_crc=True):
        if header.base_offset < due:
            break
        position, due = at + header.size, header.next_offset
    sound = next_sound_batch(file, position + 1, due + 1, limit)
    return Unsound(position, Offset(due), Offset(max(limit if sound is None else sound, due)))


def next_sound_batch(file: DiskFile, position: int, start: int, limit: int = 1 << 63) -> int | None:
    """The base offset, in `[start, limit)`, of the first batch with a valid CRC that begins within 16 MiB of
    `position`.
    """
    content = file.pread(position, _SEARCH_BYTES_MAX)
    at = content.find(MAGIC, _MAGIC_POSITION)
    while at >= 0:
        begin = position + at - _MAGIC_POSITION
        header = header_at(file, begin)
        if (
            header is not None
            and start <= header.base_offset < limit
            and _has_right_crc(file, begin, header.length)
        ):
            base_offset: int = header.base_offset
            return base_offset
        at = content.find(MAGIC, at + 1)
    return None


def _has_right_crc(file: DiskFile, position: int, length: int) -> bool:
    try:
        return bool(scan.headers(memoryview(file.pread(position, length + LENGTH_OVERHEAD)), True))
    except ValueError:
        return False
