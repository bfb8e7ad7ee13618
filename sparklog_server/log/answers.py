"""The results of appends and of reads beyond the log."""

import msgspec

from sparklog.model import Offset
from sparklog_server.disk.door import DiskFile, StorageError
from sparklog_server.log.segment.damage import log_dir_of, repair_remedy


class AppendResult(msgspec.Struct, gc=False, frozen=True):
    """The offsets of an appended batch, `[base_offset, last_offset]`, closed. `log_append_time_ms` is -1
    where producers set the time.
    """

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    is_duplicate: bool


class OffsetOutOfRange(Exception):
    """The requested offset is below the log start offset or beyond the log end offset."""


class BrokenFrame(StorageError):
    """No batch can begin at `position` of a log, though bytes follow, so later batches cannot be found
    from there.
    """

    def __init__(self, file: DiskFile, position: int) -> None:
        reason = f"no batch begins at byte {position}"
        log_dir = log_dir_of(log_dir_of(file.path))
        super().__init__(file.path, "read", reason, remedy=repair_remedy(log_dir))
        self.file = file
        self.position = position
