"""The state of one partition that survives a crash: its recovery point, log start offset and leader epochs.

    append ──► dirty ── sync ──► below the recovery point
    log start moved ── checkpoint ──► durable log start ──► parked DeleteRecords are released

With `sparklog.ack.flush` = always, or auto and one replica, a record counts as acknowledged by this replica
once it is synced; otherwise once it is appended.
"""

from sparklog.model import Offset
from sparklog_server.disk.door import DiskFile
from sparklog_server.log.log_config import INT64_MAX, LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.replica.purgatory import Waiter

BEHIND_BYTES_MAX = 8 << 20
"""A log with more unsynced bytes is synced soon: one sync of a whole segment keeps the disk busy for a
second, in which writes and reads of all other logs wait.
"""
LINGER_US = 10_000
"""The longest time that appended records stay unsynced while no request waits for them."""


class Durability:
    """The durable part of one partition's log.

    Invariants: `log_start` and `epochs_start` never move back; `log_start` is at most the log start offset.
    """

    __slots__ = (
        "_awaits_log_start",
        "_flush_messages",
        "_flush_us",
        "_log",
        "_syncing_start",
        "_unsynced_bytes",
        "epochs_start",
        "log_start",
        "waits_for_sync",
    )

    def __init__(self, log: PartitionLog, *, waits_for_sync: bool) -> None:
        self._log = log
        self.waits_for_sync = waits_for_sync
        self.log_start = log.log_start_offset  # in the checkpoint on disk
        self.epochs_start = self._syncing_start = Offset(0)  # the epochs on disk begin there or later
        self._unsynced_bytes = 0
        self._awaits_log_start: list[tuple[Offset, Waiter]] = []
        self.configure(log.settings)

    def configure(self, settings: LogConfig) -> None:
        """Take over flush.messages and flush.ms."""
        self._flush_messages = settings.flush_messages
        self._flush_us = settings.flush_ms * 1000 if settings.flush_ms < INT64_MAX else None

    @property
    def acknowledged_end(self) -> Offset:
        """The end of the records that this replica acknowledges."""
        return self._log.recovery_point if self.waits_for_sync else self._log.log_end_offset

    @property
    def is_sync_awaited(self) -> bool:
        """Whether records are unacknowledged until the next sync."""
        return self.waits_for_sync and self._log.recovery_point < self._log.log_end_offset

    def appended(self, size: int) -> int | None:
        """Count `size` more bytes of a log whose records are acknowledged unsynced. Returns the time within
        which it must be synced; None if no sync is due.

        A sealed segment is synced to bound the scan after a crash; flush.messages and flush.ms work as in
        Kafka.
        """
        log = self._log
        self._unsynced_bytes += size
        if log.log_end_offset - log.recovery_point >= self._flush_messages:
            return 0
        if log.segments.sealed or self._unsynced_bytes > BEHIND_BYTES_MAX:
            return LINGER_US
        return self._flush_us

    def begin_sync(self) -> tuple[list[DiskFile], Offset]:
        """The files to sync, and the log end offset up to which they make the log durable. Raises
        StorageError.
        """
        syncing = self._log.begin_sync()
        self._unsynced_bytes = 0
        self._syncing_start = self._log.log_start_offset
        return syncing

    def synced(self) -> None:
        """Mark the sync that began last as done."""
        self.epochs_start = self._syncing_start

    def park(self, log_start: Offset, waiter: Waiter) -> None:
        """Keep `waiter` until the checkpoint on disk, and every other replica, has `log_start` or a later log
        start.
        """
        self._awaits_log_start.append((log_start, waiter))

    @property
    def is_log_start_awaited(self) -> bool:
        """Whether a request waits for the checkpoint of a log start."""
        return bool(self._awaits_log_start)

    def log_start_written(self, log_start: Offset) -> None:
        """The checkpoint on disk has `log_start`."""
        self.log_start = max(self.log_start, log_start)

    def release(self, low_watermark: Offset) -> None:
        """Release the waiters for a log start that every replica has."""
        waiting, self._awaits_log_start = self._awaits_log_start, []
        for until, waiter in waiting:
            if until <= low_watermark:
                waiter.released()
            else:
                self._awaits_log_start.append((until, waiter))

    def release_all(self) -> None:
        """Release every waiter: the role of the partition ends."""
        waiting, self._awaits_log_start = self._awaits_log_start, []
        for _, waiter in waiting:
            waiter.released()
