"""The recovery point of the metadata log: below it everything is durable, also after a stop that was not
clean.

    records synced ── 0.5 s ──► written down (a job), in the form of Kafka's offset checkpoints

Kafka has none for its metadata log. Without one a batch that was damaged looks like the end that a crash
left, and what follows it is cut.
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
"""How long what is synced waits for more: the other half of a second is the disk's."""


def read(disk: Disk, directory: str, log: TopicPartition) -> Offset:
    """What was written down; 0 if nothing was, or nothing that can be read. Raises StorageError."""
    content = disk.read(f"{directory}/{FILE_NAME}")
    try:
        return Offset(0) if content is None else parse_offsets(content).get(log, Offset(0))
    except CheckpointCorrupt:
        return Offset(0)


def write(disk: Disk, directory: str, log: TopicPartition, offset: Offset) -> None:
    """Write it down, durably. Blocks. Raises StorageError."""
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
        """Whether no job is under way."""
        return not self._is_writing

    def moved(self, now: Instant) -> None:
        """More is durable than was written down."""
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
        """Begin no job more."""
        self.due_us = None
        self._is_writing = False
