"""The results of appends and of reads beyond the log."""

import msgspec

from sparklog.model import Offset
from sparklog_server.disk.door import DiskFile, StorageError


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
        directory = file.path.rpartition("/")[0].rpartition("/")[0]
        reason = (
            f"no batch begins at byte {position}: restore the file, or stop the broker and run `sparklog log "
            f"repair {directory}`"
        )
        super().__init__(file.path, "read", reason)
        self.file = file
        self.position = position
