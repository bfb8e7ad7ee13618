"""Snapshots of the producers of logs that have very many: rendered by a job, written when that is done.

    a log rolls ─► frozen ─► synced ─► rendered, in a job ─► written ─► durable with the next sync

A log that has few writes its snapshot when it rolls. After a crash in between, recovery begins with an
older snapshot.
"""

from collections.abc import Callable, Iterable
from typing import cast

from sparklog.effects import Run
from sparklog.model import Instant, Ticket
from sparklog_server.disk.door import StorageError
from sparklog_server.log.producer_state import FrozenProducers
from sparklog_server.replica.directory import ReplicaDirectory
from sparklog_server.replica.partition import Partition


class ProducerSnapshots:
    """Invariant: a log has at most one job under way."""

    def __init__(self, tickets: Callable[[], Ticket]) -> None:
        self._tickets = tickets
        self._jobs: dict[Ticket, tuple[ReplicaDirectory, Partition, FrozenProducers]] = {}

    def begin(self, directory: ReplicaDirectory, partitions: Iterable[Partition]) -> list[Run]:
        """The jobs for those of these logs that have rolled."""
        runs = []
        for partition in partitions:
            if (
                partition.log.frozen is not None
                and (frozen := partition.log.producers_to_render()) is not None
            ):
                ticket = self._tickets()
                self._jobs[ticket] = directory, partition, frozen
                runs.append(Run(frozen.render, ticket, in_steps=True, is_background=True))
        return runs

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Run] | None:
        """A job came back; None if the ticket belongs to another."""
        found = self._jobs.pop(ticket, None)
        if found is None:
            return None
        directory, partition, frozen = found
        try:
            file = partition.log.producers_rendered(frozen, cast(bytes, result))
        except StorageError as error:
            if error.is_full:  # recovery begins with an older snapshot
                directory.room.ran_out(error, now)
            else:
                partition.disk.storage_failed(error)
            return []
        if file is not None and partition in directory.partitions:
            directory.mark_dirty(partition, 0, now)
        return []
