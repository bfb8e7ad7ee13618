"""What a log says of an append, and of a read beyond it."""

import msgspec

from sparklog.model import Offset


class AppendResult(msgspec.Struct, gc=False, frozen=True):
    """Where a batch went: `[base_offset, last_offset]`, closed. `log_append_time_ms` is -1 where producers set the time."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    is_duplicate: bool


class OffsetOutOfRange(Exception):
    """The offset asked for is below the log start offset or beyond the log end offset."""
