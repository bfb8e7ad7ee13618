"""The recovery point of the metadata log: below it all records are durable, also after an unclean stop.

    records synced ── 0.5 s ──► written (a job), in the form of Kafka's offset checkpoints

Kafka has none for its metadata log. Without one, recovery cannot tell a damaged batch from the torn end that
a crash leaves, and truncates at it.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from sparklog.effects import Run
from sparklog.model import Instant, Micros, Offset, Ticket, TopicPartition
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets, render_offsets
from sparklog_server.disk.door import Disk

FILE_NAME: Final = "recovery-point-checkpoint"
_DELAY_US: Final = 500_000
"""The delay before a write, which gathers further syncs; the write itself has the rest of half a second."""


def read(disk: Disk, directory: str, log: TopicPartition) -> Offset:
    """The stored recovery point; 0 if there is none or it is unreadable. Raises StorageError."""
    content = disk.read(f"{directory}/{FILE_NAME}")
    try:
        return Offset(0) if content is None else parse_offsets(content).get(log, Offset(0))
    except CheckpointCorrupt:
        return Offset(0)


def write(disk: Disk, directory: str, log: TopicPartition, offset: Offset) -> None:
    """Store the recovery point durably. Blocks. Raises StorageError."""
    disk.write(f"{directory}/{FILE_NAME}", render_offsets({log: offset}))


class RecoveryPoint:
    """Schedules the writes. Invariant: at most one job is in flight, identified by `_ticket`."""

    def __init__(
        self, disk: Disk, directory: str, log: TopicPartition, *, tickets: Callable[[], Ticket]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._log = log
        self._tickets = tickets
        self._ticket: Ticket | None = None
        self.due_us: Micros | None = None  # also set while a job runs; it becomes the next `deadline`

    @property
    def is_quiet(self) -> bool:
        """Whether no job is in flight."""
        return self._ticket is None

    def moved(self, now: Instant) -> None:
        """Records were synced up to this offset."""
        if self.due_us is None:
            self.due_us = Micros(now.mono_us + _DELAY_US)

    def deadline(self) -> Micros | None:
        """The time at which `due` returns a job."""
        return self.due_us if self._ticket is None else None

    def due(self, recovery_point: Offset, now: Instant) -> list[Run]:
        """The job that writes the recovery point, if it is time."""
        if self._ticket is not None or self.due_us is None or self.due_us > now.mono_us:
            return []
        self.due_us = None
        self._ticket = self._tickets()
        return [Run(partial(write, self._disk, self._directory, self._log, recovery_point), self._ticket)]

    def finished(self, ticket: Ticket) -> bool:
        """Whether the ticket belongs to the job, which has ended."""
        if ticket != self._ticket:
            return False
        self._ticket = None
        return True

    def stop(self) -> None:
        """Start no further job."""
        self.due_us = self._ticket = None
