"""Recovers the data logs of a node of a cluster, while its controller votes and its broker is fenced.

    claimed ── begin: one job for each directory ──► recovering ── all jobs have ended, and the newest image
                                                         │         has the registration ──► recovered
                                                         └── stop: each job ends at its       the partitions
                                                             next log                         get this image
                                                                                              as their first

An older image may name this broker as a leader although it stopped without the records that it acknowledged:
a follower that fetched from it would truncate them. The registration takes its leaderships away.

A node alone recovers its logs before its broker exists: nothing of it is useful without them.
"""

from collections.abc import Callable
from functools import partial

from sparklog.effects import Steps
from sparklog.model import Instant, NodeId, Uuid
from sparklog_server.broker.opening.directories import recover_logs
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.metadata.image import MetadataDelta, MetadataImage, difference
from sparklog_server.replica.directory import ReplicaDirectory, Trace
from sparklog_server.replica.replica_manager import ReplicaManager

_Event = tuple[str, dict[str, object]]


class LogRecovery:
    """The recovery of the logs of all data directories.

    Invariant: until it `is_over`, the partitions have no metadata, so that no log is used or created.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        disk: Disk,
        partitions: ReplicaManager,
        continuations: Continuations,
        trace: Trace,
        incarnation_id: Uuid,
    ) -> None:
        self.is_over = False
        self._incarnation_id = incarnation_id
        self._settings = settings
        self._disk = disk
        self._partitions = partitions
        self._continuations = continuations
        self._trace = trace
        self._awaited = len(partitions.directories)
        self._is_stopping = False
        self._image = MetadataImage()  # the newest that the partitions do not have
        self._then: Callable[[Instant], None]

    @property
    def is_running(self) -> bool:
        """Whether a directory is not recovered yet."""
        return self._awaited > 0

    def begin(self, recovered: Callable[[Instant], None], now: Instant) -> None:
        """Begin the jobs; `recovered` is called once the partitions are open, and not after `stop`."""
        self._then = recovered
        for directory in self._partitions.directories:
            self._continuations.run_in_steps(
                partial(self._recover, directory, now), partial(self._recovered, directory)
            )

    def stop(self) -> None:
        """End each job at its next log."""
        self._is_stopping = True

    def defers(self, delta: MetadataDelta, now: Instant) -> bool:
        """Whether this change is, or will be, part of the first image of the partitions."""
        if self.is_over:
            return False
        self._image = delta.after
        self._finish(now)
        return True

    def _finish(self, now: Instant) -> None:
        """Give the partitions their first image, if the logs are open and it is not too old."""
        if self.is_running or self._is_stopping or not self._is_registered():
            return
        self.is_over = True
        self._partitions.apply(difference(MetadataImage(), self._image), now)
        self._then(now)

    def _is_registered(self) -> bool:
        if "broker" not in self._settings.process_roles:
            return True
        known = self._image.brokers.get(NodeId(self._settings.node_id))
        return known is not None and known.incarnation_id == self._incarnation_id

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
        self._finish(now)
