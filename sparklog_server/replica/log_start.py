"""The log start offset of a partition: DeleteRecords and retention raise it."""

from collections.abc import Callable

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Offset
from sparklog_server.disk.removal import Removal
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.unavailable import PartitionUnavailable

HIGH_WATERMARK = -1
"""The offset by which DeleteRecords requests the deletion of all committed records."""


def deletion_end(partition: Partition, offset: int) -> Offset:
    """The log start offset that DeleteRecords requests with `offset` (-1: the high watermark).

    Raises PartitionUnavailable: POLICY_VIOLATION for a compacted topic, OFFSET_OUT_OF_RANGE.
    """
    partition.leader_for(-1)
    settings = partition.log.settings
    if settings.is_compacted and not settings.is_deleted:
        raise PartitionUnavailable(ErrorCode.POLICY_VIOLATION)
    end = partition.promised_end if offset == HIGH_WATERMARK else Offset(offset)
    if not 0 <= end <= partition.promised_end:
        raise PartitionUnavailable(ErrorCode.OFFSET_OUT_OF_RANGE)
    return end


def delete_records(partition: Partition, end: Offset) -> None:
    """Raise the log start offset to `end`. Raises PartitionUnavailable, also if `end` is above the high
    watermark.
    """
    partition.leader_for(-1)
    if end > partition.high_watermark:
        raise PartitionUnavailable(ErrorCode.OFFSET_OUT_OF_RANGE)
    if partition.log.move_log_start(end):
        for one in partition.standing:
            one.log_start_moved()


def retire(partition: Partition, now: Instant) -> Callable[[], Removal] | None:
    """Remove the segments beyond retention from the log; returns the job that renames their files, which
    returns the removal of those.
    """
    if partition.error is ErrorCode.KAFKA_STORAGE_ERROR:
        return None
    log, home = partition.log, partition.home
    log_start = log.log_start_offset
    try:
        job = partition.disk.retire(partition.high_watermark, now)
    except PartitionUnavailable:
        return None
    if log.has_sealed_unsynced or job is not None:
        # The files are removed once the epochs on disk begin at the log start too.
        home.mark_dirty(partition, 0, now)
    if log.log_start_offset > log_start:
        # The files are removed once the checkpoint has the log start.
        home.log_start_moved(now, is_awaited=home.room.is_full)
    return job
