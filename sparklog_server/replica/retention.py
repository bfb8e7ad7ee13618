"""When retention is looked at, and what becomes of the segments that it takes out of the logs.

    check ── a few logs a turn ──► renamed (job) ── log start written down, file.delete.delay.ms ──► removed (job)

A log whose active segment was rolled to be taken is looked at again once that is synced; one whose oldest
segments have not told their ages in this life is looked at once a job has read them.
"""  # noqa: E501

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from sparklog.effects import Run
from sparklog.model import Instant, Micros, Offset, Ticket, TopicPartition, earlier
from sparklog.record.batch import NO_TIMESTAMP
from sparklog_server.disk.door import StorageError
from sparklog_server.log.removal import Removal, go_on
from sparklog_server.log.retention import Ages, note_ages, read_ages, unread
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.removals import Removals

_LOGS_PER_TURN = 32
_AGAIN_US = 1_000_000
_HURRIED_US = 30_000_000
"""How often logs are looked at while their disk is full."""


class Retention:
    """The checks of all logs of this node, and the files that wait to be removed.

    Invariant: while a log's files are being renamed its partition is in `renaming`, and no other log may
    be begun under its name: the job knows files by their paths.
    """

    def __init__(
        self,
        removals: Removals,
        *,
        first_check_ms: int,
        check_interval_ms: int,
        tickets: Callable[[], Ticket],
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
        self._tickets = tickets
        self._trace = trace
        self._renames: dict[
            Ticket, tuple[Partition, Offset]
        ] = {}  # with the log start that takes their files out
        self._readings: dict[Ticket, Partition] = {}
        self._removals = removals
        self._held: list[
            tuple[Partition, Offset, Removal, Micros]
        ] = []  # until the log start is written down

    def begin(self, now: Instant) -> None:
        """The logs are open: check them from now on."""
        self._check_at_us = Micros(now.mono_us + self._first_us)

    def hurry(self, now: Instant) -> None:
        """A disk is full: look at the logs now, unless that was done lately, and let go of what the
        checkpoint alone lets go.
        """
        self.log_starts_written()
        if self._check_at_us is not None and now.mono_us >= self._hurried_us + _HURRIED_US:
            self._hurried_us = now.mono_us
            self._check_at_us = now.mono_us

    def stop(self) -> None:
        """Begin nothing more."""
        self._check_at_us = self._again_at_us = None
        self._queue.clear()

    @property
    def is_quiet(self) -> bool:
        """Whether no file is being read or renamed."""
        return not self._readings and not self._renames

    def deadline(self) -> Micros | None:
        """When `due_jobs` has something to do."""
        if self._queue:
            return Micros(0)
        return (
            self._check_at_us if self._again_at_us is None else earlier(self._again_at_us, self._check_at_us)
        )

    def due_jobs(self, partitions: Iterable[Partition], now: Instant) -> list[Run]:
        """Look at the next few logs if it is time; the jobs that follow."""
        if self._check_at_us is not None and self._check_at_us <= now.mono_us:
            self._check_at_us = Micros(now.mono_us + self._interval_us)
            self._queue = deque(partitions)
        if self._again_at_us is not None and self._again_at_us <= now.mono_us:
            self._again_at_us = None
            self._queue.extend(self._again)
            self._again = {}
        return [
            run
            for _ in range(min(len(self._queue), _LOGS_PER_TURN))
            for run in self._check(self._queue.popleft(), now)
        ]

    def _check(self, partition: Partition, now: Instant) -> list[Run]:
        if partition.topic_partition in self.renaming or partition.log.is_closed:
            return []
        log = partition.log
        segments = unread(log.segments.settled, log.settings, now.wall_ms)
        if not segments or log.segments.is_swapping:
            return self._retire(partition, now)
        ticket = self._tickets()
        self._readings[ticket] = partition
        return [Run(partial(read_ages, segments, now.wall_ms - log.settings.retention_ms), ticket)]

    def _retire(self, partition: Partition, now: Instant) -> list[Run]:
        job = partition.retire(now)
        if partition.log.has_sealed_unsynced:
            self._again[partition] = None
            self._again_at_us = Micros(now.mono_us + _AGAIN_US)
        if job is None:
            return []
        log_start = partition.log.log_start_offset
        self._trace("segments-retired", partition=str(partition.topic_partition), log_start_offset=log_start)
        ticket = self._tickets()
        self._renames[ticket] = partition, log_start
        self.renaming[partition.topic_partition] = None
        return [Run(job, ticket)]

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Run] | None:
        """The result of a job and what follows; None if the ticket is somebody else's."""
        reading = self._readings.pop(ticket, None)
        if reading is not None:
            return self._read(reading, result, now)
        renamed = self._renames.pop(ticket, None)
        if renamed is None:
            return None
        partition, log_start = renamed
        del self.renaming[partition.topic_partition]
        removal = go_on(result)
        if removal is not None:
            delay_ms = 0 if partition.home.room.is_full else partition.log.settings.file_delete_delay_ms
            self._held.append((partition, log_start, removal, Micros(now.mono_us + delay_ms * 1000)))
            self.log_starts_written()
        elif isinstance(result, StorageError) and result.is_full:
            # The log has forgotten these files: they go after the next start.
            self._trace("removal-failed", reason=str(result))
        elif isinstance(result, StorageError) and not partition.log.is_closed:
            # Where the log is closed its directory has another name by now, and what is in it goes with it.
            partition.disk.storage_failed(result)
        return []

    def log_starts_written(self) -> None:
        """A checkpoint is on disk: what lies below the log starts in it, and the durable epochs, may leave
        the disk when it is due.

        The epochs are for a start that finds the checkpoint damaged. A full disk may have no room for them
        before these files are gone.
        """
        held, self._held = self._held, []
        for partition, log_start, removal, due_us in held:
            durable_start = partition.durability.log_start
            if not partition.home.room.is_full:
                durable_start = min(durable_start, partition.durability.epochs_start)
            if durable_start >= log_start:
                self._removals.add(removal, due_us)
            elif not partition.log.is_closed:  # else the files go with their directory
                self._held.append((partition, log_start, removal, due_us))

    def _read(self, partition: Partition, result: object, now: Instant) -> list[Run]:
        log = partition.log
        if log.is_closed or partition.topic_partition in self.renaming or self._check_at_us is None:
            return []
        if not isinstance(result, StorageError):
            ages = cast(Ages, result)
            note_ages(log.segments.settled, ages)
            if all(timestamp != NO_TIMESTAMP for timestamp, _ in ages.values()):
                return self._check(partition, now)
        # A segment without timestamps never knows them; and where the job failed, a file that is gone is no
        # fault, and one that cannot be read is told here.
        return self._retire(partition, now)
