"""Retention checks, the removal of the files of expired segments, and the log start offset, which retention
and DeleteRecords raise.

    check ── a few logs a turn ──► renamed (job)
                                      └── log start written down, file.delete.delay.ms ──► removed (job)

A log whose active segment was rolled for retention is checked again once that segment is synced. A log whose
oldest segments have unknown timestamps is checked once a job has read them.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, Offset, TopicPartition, earlier
from sparklog.record.batch import NO_TIMESTAMP
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.removal import Removal
from sparklog_server.log.cleaning.retention import Ages, note_ages, read_ages, unread
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.removals import Removals

HIGH_WATERMARK = -1
"""The offset by which DeleteRecords requests the deletion of all committed records."""
_LOGS_PER_TURN = 32
_AGAIN_US = 1_000_000
_HURRIED_US = 30_000_000
"""The interval of retention checks while the disk is full."""


class Retention:
    """The checks of all logs of this node, and the files that wait to be removed.

    Invariant: while the files of a log are being renamed its partition is in `renaming`, and no other log is
    created under its name, because the job uses paths.
    """

    def __init__(
        self,
        removals: Removals,
        continuations: Continuations,
        *,
        first_check_ms: int,
        check_interval_ms: int,
        trace: Callable[..., None],
    ) -> None:
        self.renaming: dict[TopicPartition, None] = {}
        self._first_us = first_check_ms * 1000
        self._interval_us = check_interval_ms * 1000
        self._check_at_us: Micros | None = None
        self._again_at_us: Micros | None = None
        self._hurried_us = -_HURRIED_US
        self._again: dict[Partition, None] = {}
        self._queue: deque[Partition] = deque()
        self._continuations = continuations
        self._trace = trace
        self._jobs_running = 0
        self._removals = removals
        self._retained: list[
            tuple[Partition, Offset, Removal, Micros]
        ] = []  # until the log start offset is in the checkpoint

    def begin(self, now: Instant) -> None:
        """Begin the checks: the logs are open."""
        self._check_at_us = Micros(now.mono_us + self._first_us)

    def hurry(self, now: Instant) -> None:
        """A disk is full: check the logs now, unless that happened recently, and release the files that
        the checkpoint alone allows to be removed.
        """
        self.log_starts_written()
        if self._check_at_us is not None and now.mono_us >= self._hurried_us + _HURRIED_US:
            self._hurried_us = now.mono_us
            self._check_at_us = now.mono_us

    def stop(self) -> None:
        """Begin no more jobs."""
        self._check_at_us = self._again_at_us = None
        self._queue.clear()

    @property
    def is_quiet(self) -> bool:
        """Whether no file is being read or renamed."""
        return self._jobs_running == 0

    def deadline(self) -> Micros | None:
        """The next time for `begin_due`."""
        if self._queue:
            return Micros(0)
        return (
            self._check_at_us if self._again_at_us is None else earlier(self._again_at_us, self._check_at_us)
        )

    def begin_due(self, partitions: Iterable[Partition], now: Instant) -> None:
        """Check the next few logs if it is time, and begin the jobs that follow."""
        if self._check_at_us is not None and self._check_at_us <= now.mono_us:
            self._check_at_us = Micros(now.mono_us + self._interval_us)
            self._queue = deque(partitions)
        if self._again_at_us is not None and self._again_at_us <= now.mono_us:
            self._again_at_us = None
            self._queue.extend(self._again)
            self._again = {}
        for _ in range(min(len(self._queue), _LOGS_PER_TURN)):
            self._check(self._queue.popleft(), now)

    def _check(self, partition: Partition, now: Instant) -> None:
        if partition.topic_partition in self.renaming or partition.log.is_closed:
            return
        log = partition.log
        segments = unread(log.segments.settled, log.settings, now.wall_ms)
        if not segments or log.segments.is_swapping:
            self._retire(partition, now)
            return
        self._jobs_running += 1
        job = partial(read_ages, segments, now.wall_ms - log.settings.retention_ms)
        self._continuations.run(job, partial(self._read, partition))

    def _retire(self, partition: Partition, now: Instant) -> None:
        job = retire(partition, now)
        if partition.log.has_sealed_unsynced:
            self._again[partition] = None
            self._again_at_us = Micros(now.mono_us + _AGAIN_US)
        if job is None:
            return
        log_start = partition.log.log_start_offset
        self._trace("segments-deleted", partition=str(partition.topic_partition), log_start_offset=log_start)
        self._jobs_running += 1
        self.renaming[partition.topic_partition] = None
        self._continuations.run(job, partial(self._renamed, partition, log_start))

    def _renamed(
        self, partition: Partition, log_start: Offset, result: Removal | StorageError, now: Instant
    ) -> None:
        self._jobs_running -= 1
        del self.renaming[partition.topic_partition]
        if not isinstance(result, StorageError):
            delay_ms = 0 if partition.home.room.is_full else partition.log.settings.file_delete_delay_ms
            self._retained.append((partition, log_start, result, Micros(now.mono_us + delay_ms * 1000)))
            self.log_starts_written()
        elif result.is_full:
            # The log no longer has these files: the next start removes them.
            self._trace("removal-failed", reason=str(result))
        elif not partition.log.is_closed:
            # The directory of a closed log has been renamed, and its files are removed with it.
            partition.disk.storage_failed(result)

    def log_starts_written(self) -> None:
        """A checkpoint is on disk: files below its log start offsets, and below the durable epochs, may be
        removed when they are due.

        A start that finds the checkpoint damaged needs the epochs. A full disk may have no room for them
        before these files are removed.
        """
        retained, self._retained = self._retained, []
        for partition, log_start, removal, due_us in retained:
            durable_start = partition.durability.log_start
            if not partition.home.room.is_full:
                durable_start = min(durable_start, partition.durability.epochs_start)
            if durable_start >= log_start:
                self._removals.add(removal, due_us)
            elif not partition.log.is_closed:  # otherwise the files are removed with their directory
                self._retained.append((partition, log_start, removal, due_us))

    def _read(self, partition: Partition, result: Ages | StorageError, now: Instant) -> None:
        self._jobs_running -= 1
        log = partition.log
        if log.is_closed or partition.topic_partition in self.renaming or self._check_at_us is None:
            return
        if not isinstance(result, StorageError):
            note_ages(log.segments.settled, result)
            if all(timestamp != NO_TIMESTAMP for timestamp, _ in result.values()):
                self._check(partition, now)
                return
        # A segment without timestamps stays without them. If the job failed, a removed file is not a fault,
        # and one that cannot be read is reported here.
        self._retire(partition, now)


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
