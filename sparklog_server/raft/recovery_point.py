"""The recovery point of the metadata log: below it all records are durable, also after an unclean stop.

    records synced ── 0.5 s ──► written (a job), in the form of Kafka's offset checkpoints

Kafka has none for its metadata log. Without one, recovery cannot tell a damaged batch from the torn end that
a crash leaves, and truncates at it.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from sparklog.model import Instant, Micros, Offset, TopicPartition
from sparklog_server.continuations import Continuations
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets, render_offsets
from sparklog_server.disk.door import Disk, StorageError

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
    """When it is written down. Invariant: one job at most is under way."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log: TopicPartition,
        continuations: Continuations,
        *,
        written: Callable[[StorageError | None, Instant], None],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._log = log
        self._continuations = continuations
        self._written = written
        self._is_writing = False
        self.due_us: Micros | None = None  # also while one is being written, after which it is `deadline`

    @property
    def is_quiet(self) -> bool:
        """Whether no job is in flight."""
        return not self._is_writing

    def moved(self, now: Instant) -> None:
        """Records were synced up to this offset."""
        if self.due_us is None:
            self.due_us = Micros(now.mono_us + _DELAY_US)

    def deadline(self) -> Micros | None:
        """When `begin_due` has something to begin."""
        return None if self._is_writing else self.due_us

    def begin_due(self, recovery_point: Offset, now: Instant) -> None:
        """Begin the job that writes it down, if it is time."""
        if self._is_writing or self.due_us is None or self.due_us > now.mono_us:
            return
        self.due_us = None
        self._is_writing = True
        self._continuations.run(
            partial(write, self._disk, self._directory, self._log, recovery_point), self._finished
        )

    def _finished(self, error: StorageError | None, now: Instant) -> None:
        self._is_writing = False
        self._written(error, now)

    def stop(self) -> None:
        """Start no further job."""
        self.due_us = None
        self._is_writing = False
