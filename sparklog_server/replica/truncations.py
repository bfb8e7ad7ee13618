"""Truncations of the logs of followers: one job for each.

cut, restart ─► the directory: nothing delays it ─────────────────────────► job ─► done: appends again
                     └── a checkpoint covers the removed records, or ──┘
                         compacted segments are being renamed: first that
"""

from collections.abc import Callable, Sequence
from functools import partial

from sparklog.model import Instant, Offset, TopicPartition
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.log.truncation import Restart, Truncation
from sparklog_server.replica.directory import ReplicaDirectory
from sparklog_server.replica.partition import Partition


class Truncations:
    """`done` collects the partitions whose logs take appends again; the broker drains it each turn."""

    def __init__(
        self,
        directories: Sequence[ReplicaDirectory],
        jobs: Continuations,
        *,
        done: Callable[[Partition, Instant], None],
    ) -> None:
        """`done` is called for each partition whose log takes appends again."""
        self.done: dict[Partition, None] = {}
        self._directories = directories
        self._jobs = jobs
        self._apply = done
        self._running: dict[TopicPartition, None] = {}
        self._put_off: list[tuple[ReplicaDirectory, Partition, Truncation | Restart, StorageError]] = []

    @property
    def is_quiet(self) -> bool:
        """Whether no job runs."""
        return not self._running

    def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether a job works on the files of that name; the partition may be deleted by now."""
        return topic_partition in self._running

    def check_close(self, directory: ReplicaDirectory) -> None:
        """Raises the StorageError of a full disk that a truncation in the directory still waits for: the
        files of its log are neither the old ones nor the new ones.
        """
        for one, partition, _, refusal in self._put_off:
            if one is directory and partition in directory.partitions:
                raise refusal

    def cut(self, partition: Partition, offset: Offset, now: Instant) -> None:
        """Remove the records at `offset` and above."""
        directory = self._home_of(partition)
        if directory is not None and directory.cut(partition, offset, now):
            if not partition.log.is_truncating:
                self._done(partition, now)
            self.begin(now)

    def restart(self, partition: Partition, offset: Offset, now: Instant) -> None:
        """Remove all records; the log starts anew at `offset`."""
        directory = self._home_of(partition)
        if directory is not None and directory.restart(partition, offset, now):
            self.begin(now)

    def begin(self, now: Instant) -> None:
        """Run the jobs of the truncations that have begun."""
        for directory in self._directories:
            directory.begin_cuts(now)
            for partition, truncation in directory.take_truncations():
                self._run(directory, partition, truncation)

    def go_on(self) -> None:
        """Run the jobs again that a full disk has refused."""
        put_off, self._put_off = self._put_off, []
        for directory, partition, truncation, _ in put_off:
            if partition in directory.partitions and directory.error is None:
                self._run(directory, partition, truncation)

    def _run(
        self, directory: ReplicaDirectory, partition: Partition, truncation: Truncation | Restart
    ) -> None:
        self._running[partition.topic_partition] = None
        self._jobs.run(truncation.run, partial(self._finished, directory, partition, truncation))

    def _finished(
        self,
        directory: ReplicaDirectory,
        partition: Partition,
        truncation: Truncation | Restart,
        result: StorageError | None,
        now: Instant,
    ) -> None:
        self._running.pop(partition.topic_partition, None)
        if partition not in directory.partitions or directory.error is not None:
            return
        if result is not None and result.is_full:
            directory.room.ran_out(result, now)
            self._put_off.append((directory, partition, truncation, result))
            return
        directory.truncated(partition, truncation, result)
        if directory.error is None:
            self._done(partition, now)

    def _done(self, partition: Partition, now: Instant) -> None:
        self.done[partition] = None
        self._apply(partition, now)

    def _home_of(self, partition: Partition) -> ReplicaDirectory | None:
        return next((one for one in self._directories if partition in one.partitions), None)
