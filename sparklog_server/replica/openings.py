"""Jobs that create and remove logs, so that a topic of a thousand partitions does not block the loop.

    wanted ── few ──► created in the turn
       └── many ──► queued ──► created (job), 128 at a time

    removed ──► renamed (job) ──► `Removals`
       ▲           └── no room for the names ──► put off ──┐
       └───────────────────────────────────────────────────┘

A job addresses files by path. While a job may touch the files of a partition, the partition's name is held,
and no log is created under it.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from sparklog.model import Instant, TopicPartition
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.removal import Removal
from sparklog_server.log.directory.log_creation import Wanted
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.replica.directory import ReplicaDirectory
from sparklog_server.replica.removals import Removals

IN_TURN_MAX = 16
"""The most logs created within one turn."""
_LOGS_PER_JOB = 128


class Begun(msgspec.Struct, frozen=True):
    """The result of one job: the created logs, or none if the disk failed. `is_put_off`: the disk
    was full.
    """

    directory: ReplicaDirectory
    names: tuple[TopicPartition, ...]
    logs: list[PartitionLog]
    is_put_off: bool = False


class _Renaming(NamedTuple):
    """The directories of these logs are to be renamed."""

    directory: ReplicaDirectory
    names: tuple[TopicPartition, ...]
    job: Callable[..., Removal]


class Openings:
    """The jobs that create and remove logs; at most one creates logs in each directory.

    Invariants: the names of a job that is running or postponed are in `_busy`; a queued name is in no job and
    in no log.
    """

    def __init__(
        self,
        removals: Removals,
        continuations: Continuations,
        *,
        begun: Callable[[Begun, Instant], None],
    ) -> None:
        """`begun` is called with the result of each job that creates logs."""
        self._continuations = continuations
        self._begun = begun
        self._queues: dict[ReplicaDirectory, dict[TopicPartition, Wanted]] = {}
        self._creations: dict[ReplicaDirectory, tuple[TopicPartition, ...]] = {}
        self._renames_running = 0
        self._put_off: list[_Renaming] = []
        self._removals = removals
        self._busy: dict[TopicPartition, None] = {}

    def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether a job creates or renames the files of a partition of this name, or is queued to create
        them.
        """
        return topic_partition in self._busy or any(
            topic_partition in queue for queue in self._queues.values()
        )

    def awaited(self, directory: ReplicaDirectory) -> int:
        """The number of logs still to be created in a directory."""
        return len(self._queues.get(directory, ())) + len(self._creations.get(directory, ()))

    @property
    def is_quiet(self) -> bool:
        """Whether no log is being created or renamed."""
        return not self._creations and not self._renames_running

    def stop(self) -> None:
        """Begin no further job; the next start creates the logs that are still missing."""
        self._queues.clear()
        self._put_off.clear()

    # -- create

    def begin(self, directory: ReplicaDirectory, wanted: Iterable[Wanted], now: Instant) -> None:
        """Create logs in a directory by jobs; their names must be free."""
        queue = self._queues.setdefault(directory, {})
        queue.update((one.topic_partition, one) for one in wanted)
        self._begin_next(directory, now)

    def forget(self, topic: str) -> None:
        """Remove the logs of a deleted topic from the queue, except those being created."""
        for queue in self._queues.values():
            for topic_partition in [one for one in queue if one.topic == topic]:
                del queue[topic_partition]

    def _begin_next(self, directory: ReplicaDirectory, now: Instant) -> None:
        queue = self._queues.get(directory)
        if not queue or directory in self._creations:
            return
        names = tuple(queue)[:_LOGS_PER_JOB]
        job = directory.log_dir.create_job([queue.pop(name) for name in names], now)
        self._creations[directory] = names
        self._busy.update(dict.fromkeys(names))
        self._continuations.run(job, partial(self._created, directory))

    # -- remove

    def remove(self, directory: ReplicaDirectory, names: Iterable[TopicPartition]) -> None:
        """Remove logs from a directory, and then delete their files."""
        doomed = tuple(names)
        if doomed:
            self._busy.update(dict.fromkeys(doomed))
            self._rename(_Renaming(directory, doomed, directory.log_dir.delete_job(doomed)))

    def go_on_renaming(self) -> None:
        """Retry the renames that a full disk refused."""
        put_off, self._put_off = self._put_off, []
        for one in put_off:
            self._rename(one)

    def _rename(self, renaming: _Renaming) -> None:
        self._renames_running += 1
        self._continuations.run(renaming.job, partial(self._renamed, renaming))

    # -- results

    def _created(
        self, directory: ReplicaDirectory, result: list[PartitionLog] | StorageError, now: Instant
    ) -> None:
        names = self._creations.pop(directory)
        self._release(names)
        if isinstance(result, StorageError):
            if result.is_full:
                directory.room.ran_out(result, now)
            else:
                directory.storage_failed(result)
        if isinstance(result, StorageError) or directory.error is not None:
            is_put_off = isinstance(result, StorageError) and result.is_full
            dropped = self._queues.pop(directory, {})
            self._begun(Begun(directory, (*names, *dropped), [], is_put_off), now)
            return
        self._begin_next(directory, now)
        self._begun(Begun(directory, names, result), now)

    def _renamed(self, renaming: _Renaming, result: Removal | StorageError, now: Instant) -> None:
        self._renames_running -= 1
        directory, names, job = renaming
        if isinstance(result, StorageError) and result.is_full and directory.error is None:
            directory.room.ran_out(result, now)
            self._put_off.append(renaming._replace(job=partial(job, is_again=True)))
            return
        self._release(names)
        if isinstance(result, StorageError):
            directory.storage_failed(result)
        elif any(directory.log_dir.checkpoints.is_vouched(name) for name in names):
            directory.hold(result, now)
        else:
            self._removals.add(result)

    def _release(self, names: Iterable[TopicPartition]) -> None:
        for name in names:
            del self._busy[name]
