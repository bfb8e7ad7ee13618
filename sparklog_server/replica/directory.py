"""One log directory with the partitions that live in it: they are synced together, and lost together.

Group commit: one sync is in flight at a time, and everything appended meanwhile shares the next. A failed sync or write is final: what the
kernel dropped cannot be synced by trying again, so the directory stays offline until the process starts anew.
"""

from collections.abc import Callable

from sparklog.effects import Sync
from sparklog.model import Offset, Ticket
from sparklog_server.disk.door import DiskFile, StorageError
from sparklog_server.log.log_dir import LogDir
from sparklog_server.replica.partition import Partition

Trace = Callable[..., None]


class Directory:
    """The partitions of one log directory.

    Invariants: at most one sync is in flight; what is appended after it began waits in `_dirty` for the next; an offline directory has
    only offline partitions and syncs nothing.
    """

    __slots__ = ("_dirty", "_in_flight", "_trace", "error", "log_dir", "partitions")

    def __init__(self, log_dir: LogDir, trace: Trace) -> None:
        self.log_dir = log_dir
        self._trace = trace
        self.partitions: dict[Partition, None] = {}
        self.error: StorageError | None = None
        self._dirty: dict[Partition, None] = {}
        self._in_flight: list[tuple[Partition, Offset]] = []

    @property
    def is_sync_due(self) -> bool:
        """Whether a sync should begin now."""
        return bool(self._dirty) and not self._in_flight

    @property
    def is_quiet(self) -> bool:
        """Whether everything appended is durable, as far as it ever will be."""
        return not self._dirty and not self._in_flight

    def mark_dirty(self, partition: Partition) -> None:
        """`partition` has records that are not durable yet."""
        self._dirty[partition] = None

    def begin_sync(self, ticket: Ticket) -> Sync | None:
        """The effect that makes everything appended so far durable; None if nothing was left to sync."""
        assert self.is_sync_due, self.log_dir.path
        files: list[DiskFile] = []
        for partition in self._dirty:
            if partition in self.partitions:
                partition_files, end_offset = partition.begin_sync()
                files.extend(partition_files)
                self._in_flight.append((partition, end_offset))
        self._dirty = {}
        return Sync(ticket, files, self.log_dir.path) if self._in_flight else None

    def synced(self) -> None:
        """The sync in flight returned: its records are durable."""
        in_flight, self._in_flight = self._in_flight, []
        for partition, end_offset in in_flight:
            if partition in self.partitions:
                partition.synced(end_offset)

    def storage_failed(self, error: StorageError) -> None:
        """The disk refused: every partition here goes offline."""
        if self.error is None:
            self.error = error
            self._trace("log-directory-offline", path=self.log_dir.path, reason=str(error))
        self._dirty = {}
        self._in_flight = []
        for partition in self.partitions:
            partition.go_offline()
