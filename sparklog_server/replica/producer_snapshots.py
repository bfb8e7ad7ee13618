"""Producer snapshots of logs with very many producers: rendered by a job, written when it is done.

    a log rolls ─► frozen ─► synced ─► rendered, in a job ─► written ─► durable with the next sync

A log with few producers writes its snapshot when it rolls. After a crash in between, recovery begins with an
older snapshot.
"""

from collections.abc import Iterable
from functools import partial

from sparklog.model import Instant
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.log.producers.producer_state import FrozenProducers
from sparklog_server.replica.directory import ReplicaDirectory
from sparklog_server.replica.partition import Partition


class ProducerSnapshots:
    """The snapshots of producers that jobs render. Invariant: a log has at most one job in progress."""

    def __init__(self, continuations: Continuations) -> None:
        self._continuations = continuations

    def begin(self, directory: ReplicaDirectory, partitions: Iterable[Partition]) -> None:
        """Begin the jobs for those of these logs that have rolled."""
        for partition in partitions:
            if (
                partition.log.frozen is not None
                and (frozen := partition.log.producers_to_render()) is not None
            ):
                rendered = partial(self._rendered, directory, partition, frozen)
                self._continuations.run_in_steps(frozen.render, rendered, is_background=True)

    def _rendered(
        self,
        directory: ReplicaDirectory,
        partition: Partition,
        frozen: FrozenProducers,
        result: bytes | StorageError,
        now: Instant,
    ) -> None:
        assert not isinstance(result, StorageError), "rendering reads no disk"
        try:
            file = partition.log.producers_rendered(frozen, result)
        except StorageError as error:
            if error.is_full:  # recovery begins with an older snapshot
                directory.room.ran_out(error, now)
            else:
                partition.disk.storage_failed(error)
            return
        if file is not None and partition in directory.partitions:
            directory.mark_dirty(partition, 0, now)
