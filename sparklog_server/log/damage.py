"""What tells damage from a torn tail: sound batches behind the place where the walk had to stop, below the recovery point.

A crash tears only what was never promised, so a tail is cut in silence. Where a promise is in the way nothing is cut: the log stays as it
is, and its partition offline, until somebody has looked.
"""

from sparklog.kernels import scan
from sparklog.record.batch import LENGTH_OVERHEAD, MAGIC
from sparklog_server.disk.door import DiskFile, StorageError

from .segment import Segment, header_at

_MAGIC_POSITION = 16
_SEARCH_BYTES_MAX = 16 << 20


class LogDamaged(StorageError):
    """The disk gave what it has, and it is not what was promised: this log cannot be used, others beside it can."""


def damage_of(error: StorageError) -> LogDamaged | None:
    """What is wrong with a log alone: it is damaged, or a file of it cannot be read; None for what concerns its directory."""
    if isinstance(error, LogDamaged):
        return error
    if error.call != "read" or error.is_full:
        return None
    return LogDamaged(error.path, error.call, error.reason, remedy=error.remedy)


def refuse_to_cut(segment: Segment, position: int, *, last: tuple[int, int], recovery_point: int, is_followed: bool) -> None:
    """Raise LogDamaged if cutting at `position` would take batches that were durable.

    `last` is (position, offset that was due there) of the last durable batch before it, whose own offset, length or end may be what is
    damaged; `is_followed` by a segment that was durable.
    """
    if is_followed or _has_sound_batch(segment.file, last[0] + 1, last[1] + 1, recovery_point):
        reason = (
            f"no batch can begin at byte {position}, but durable ones follow, up to the recovery point {recovery_point}. Nothing was "
            "changed: restore the file, or take the partition's line out of recovery-point-offset-checkpoint to have it cut there"
        )
        raise LogDamaged(segment.file.path, "recover", reason)


def _has_sound_batch(file: DiskFile, position: int, start: int, limit: int) -> bool:
    """Whether a batch with a right CRC and a base offset in `[start, limit)` begins in the 16 MiB from `position` on."""
    if start >= limit:
        return False
    content = file.pread(position, _SEARCH_BYTES_MAX)
    at = content.find(MAGIC, _MAGIC_POSITION)
    while at >= 0:
        begin = position + at - _MAGIC_POSITION
        header = header_at(file, begin)
        if header is not None and start <= header[0] < limit and _has_right_crc(file, begin, header[1]):
            return True
        at = content.find(MAGIC, at + 1)
    return False


def _has_right_crc(file: DiskFile, position: int, length: int) -> bool:
    try:
        return bool(scan.headers(memoryview(file.pread(position, length + LENGTH_OVERHEAD)), True))
    except ValueError:
        return False
