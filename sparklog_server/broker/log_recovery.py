"""Recovers the data logs of a node of a cluster, while its controller votes and its broker is fenced.

    claimed ── begin: one job for each directory ──► recovering ── all jobs have ended ──► recovered
                                                         │  the newest image waits           │  the partitions
                                                         └── stop: each job ends at its      └─ get this image
                                                             next log                           as their first

A node alone recovers its logs before its broker exists: nothing of it is useful without them.
"""

from collections.abc import Callable
from functools import partial

from sparklog.effects import Steps
from sparklog.model import Instant
from sparklog_server.broker.directories import recover_logs
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.metadata.difference import difference
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.replica.directory import ReplicaDirectory, Trace
from sparklog_server.replica.partitions import Partitions

_Event = tuple[str, dict[str, object]]


class LogRecovery:
    """The recovery of the logs of all data directories.

    Invariant: while it `is_running`, the partitions have no metadata, so that no log is used or created.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        disk: Disk,
        partitions: Partitions,
        continuations: Continuations,
        trace: Trace,
    ) -> None:
        self._settings = settings
        self._disk = disk
        self._partitions = partitions
        self._continuations = continuations
        self._trace = trace
        self._awaited = len(partitions.directories)
        self._is_stopping = False
        self._image = MetadataImage()  # the newest that the partitions do not have

    @property
    def is_running(self) -> bool:
        """Whether a directory is not recovered yet."""
        return self._awaited > 0

    def begin(self, recovered: Callable[[Instant], None], now: Instant) -> None:
        """Begin the jobs; `recovered` is called once the partitions are open, and not after `stop`."""
        for directory in self._partitions.directories:
            self._continuations.run_in_steps(
                partial(self._recover, directory, now), partial(self._recovered, directory, recovered)
            )

    def stop(self) -> None:
        """End each job at its next log."""
        self._is_stopping = True

    def defers(self, delta: MetadataDelta) -> bool:
        """Whether the partitions get this change later, with the first image."""
        if self.is_running:
            self._image = delta.after
        return self.is_running

    def _recover(self, directory: ReplicaDirectory, now: Instant) -> Steps[list[_Event]]:
        """The job: it collects the events of the log, because the trace belongs to the event loop."""
        events: list[_Event] = []

        def note(event: str, **fields: object) -> None:
            events.append((event, fields))

        for _ in recover_logs(self._settings, self._disk, directory.log_dir, note, now):
            if self._is_stopping:
                break
            yield
        return events

    def _recovered(
        self,
        directory: ReplicaDirectory,
        recovered: Callable[[Instant], None],
        result: list[_Event] | StorageError,
        now: Instant,
    ) -> None:
        self._awaited -= 1
        if not isinstance(result, StorageError):
            for event, fields in result:
                self._trace(event, **fields)
        else:
            directory.storage_failed(result)
            path = directory.log_dir.path
            if path == self._settings.metadata_log_dir or all(
                one.error is not None for one in self._partitions.directories
            ):
                raise result
        if self._awaited or self._is_stopping:
            return
        self._trace(
            "logs-recovered", count=sum(len(one.log_dir.logs) for one in self._partitions.directories)
        )
        if self._image.offset >= 0:
            self._partitions.apply(difference(MetadataImage(), self._image), now)
        recovered(now)
