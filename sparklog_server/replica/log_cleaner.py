"""Schedules the compaction of logs: the choice of the log, the rate, and the number of concurrent jobs.

    look ── the dirtiest log that is due ──► work … ─┬─ segment finished: swap it in ──► commit ──► work …
      ▲  └─ its aborted transactions ──► read ─┐     └─ done ──► checkpoint ─┐
      │     are not in memory                  │                             │
      └── at once after either; after the backoff if no log was due ◄────────┘

Each arrow to the right is a job that does a bounded part of the work; the rate of bytes delays the next one.
A round that needs a removed segment or log is dropped, and its files are ignored. `cleaner-offset-checkpoint`
has the first dirty offset of every log. A round for which a full disk has no space is dropped too, and the
log is examined again a minute later.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sparklog.kernels import clean
from sparklog.model import Instant, Micros, Offset, TopicPartition
from sparklog_server.continuations import Continuations
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets, render_offsets
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.cleaning.swap import Swap, commit
from sparklog_server.log.lookup.aborted import IndexReading
from sparklog_server.log.segment.segment import LOG_SUFFIX, offset_of
from sparklog_server.replica.directory import ReplicaDirectory, Trace
from sparklog_server.replica.partition import Partition

if TYPE_CHECKING:
    from sparklog_server.log.cleaning.cleaner import Progress, Round
    from sparklog_server.log.cleaning.compaction import Choice

CHECKPOINT_FILE = "cleaner-offset-checkpoint"
WORK_BYTES = 8 << 20
"""The most bytes that one job reads and writes, in about 50 ms."""
_WORK_BYTES_MIN = 64 << 10
_JOBS_PER_SECOND = 4
_PUT_OFF_US = 60_000_000
"""The time for which a log is not cleaned after its round found the disk full: each attempt writes into the
reserve.
"""
_AGAIN_US = 1_000_000
"""The delay before a retry of renames and checkpoints that a full disk refused."""


class CleaningLimits(msgspec.Struct, frozen=True):
    """The `log.cleaner.*` settings. The threads share the table of keys, and together keep to the rate."""

    is_enabled: bool = True
    threads: int = 1
    table_bytes_max: int = 128 << 20
    load_factor: float = 0.9
    io_bytes_per_second_max: float = float("inf")
    backoff_ms: int = 15_000


class Uncleanable(msgspec.Struct, frozen=True):
    """The result of a job that could not read a log."""

    reason: str


class _Work:
    """One round, or the read before it, and its job in progress; `partition.log` may be closed meanwhile."""

    __slots__ = ("directory", "is_committing", "is_running", "partition", "resume_at_us", "step")

    def __init__(
        self, directory: ReplicaDirectory, partition: Partition, step: "Round | IndexReading", now: Instant
    ) -> None:
        self.directory = directory
        self.partition = partition
        self.step = step
        self.resume_at_us: Micros = now.mono_us
        self.is_running = False
        self.is_committing: Swap | None = None


class LogCleaner:
    """The compaction of all logs of this node.

    Invariants: at most `threads` rounds are in progress, one per log, each with at most one job; `look_at_us`
    is None while no log is compacted.
    """

    def __init__(
        self,
        limits: CleaningLimits,
        disk: Disk,
        directories: list[ReplicaDirectory],
        continuations: Continuations,
        *,
        entropy: Callable[[int], bytes],
        trace: Trace,
    ) -> None:
        self.limits = limits
        self.is_stopping = False
        self.look_at_us: Micros | None = None
        self._disk = disk
        self._directories = directories
        self._continuations = continuations
        self._entropy = entropy
        self._trace = trace
        self._rounds: dict[Partition, _Work] = {}
        self._jobs_running = 0
        self._checkpoints: dict[ReplicaDirectory, None] = {}  # being written
        self._named: dict[
            ReplicaDirectory, dict[TopicPartition, Offset]
        ] = {}  # in the checkpoint on disk, or in one being written
        self._dirty: dict[ReplicaDirectory, None] = {}
        self._uncleanable: dict[Partition, None] = {}
        self._paused: dict[Partition, None] = {}
        self._put_off: dict[Partition, Micros] = {}
        self._checkpoint_at_us = Micros(0)
        for directory in directories:
            self._read_checkpoint(directory)

    def _read_checkpoint(self, directory: ReplicaDirectory) -> None:
        try:
            content = self._disk.read(f"{directory.log_dir.path}/{CHECKPOINT_FILE}")
            offsets: dict[TopicPartition, Offset] = {} if content is None else parse_offsets(content)
        except CheckpointCorrupt:
            return  # every log is then dirty from its start
        except StorageError as error:
            directory.storage_failed(error)
            return
        self._named[directory] = offsets
        for topic_partition, offset in offsets.items():
            log = directory.log_dir.logs.get(topic_partition)
            if log is not None and log.log_start_offset <= offset <= log.log_end_offset:
                log.first_dirty_offset = offset

    def removed(self, partition: Partition, directory: ReplicaDirectory) -> None:
        """Remove a deleted log: its entry in the checkpoint must not apply to the next topic of that name."""
        self._uncleanable.pop(partition, None)
        self._paused.pop(partition, None)
        self._put_off.pop(partition, None)
        work = self._rounds.get(partition)
        if work is not None and not work.is_running:
            self._drop(work)  # its next job would find the files of another log under the same paths
        if partition.topic_partition in self._named.get(directory, {}):
            self._dirty[directory] = None

    def pause(self, partition: Partition) -> bool:
        """Stop the compaction of a log until `resume`; returns whether no job uses its files any more."""
        self._paused[partition] = None
        work = self._rounds.get(partition)
        if work is not None and not work.is_running and work.is_committing is None:
            self._drop(work)
        return partition not in self._rounds

    def resume(self, partition: Partition) -> None:
        """Allow the compaction of a log again."""
        if self._paused.pop(partition, partition) is None and not partition.log.is_closed:
            self.watch(partition)

    def moved(self, partition: Partition, home: ReplicaDirectory, target: ReplicaDirectory) -> None:
        """Move the first dirty offset of a log to the checkpoint of its new directory."""
        if partition.topic_partition in self._named.get(home, {}):
            self._dirty[home] = None
        if partition.log.settings.is_compacted:
            self._dirty[target] = None

    def holds(self, topic_partition: TopicPartition, directory: ReplicaDirectory) -> bool:
        """Whether a job may still use the files of a partition of this name, or the checkpoint of its
        directory names it.
        """
        if topic_partition in self._named.get(directory, {}):
            self._dirty[directory] = None
            return True
        return any(
            work.is_running and work.partition.topic_partition == topic_partition
            for work in self._rounds.values()
        )

    # -- schedule

    def watch(self, partition: Partition) -> None:
        """A log was opened or its settings changed: if it is compacted, examine it soon."""
        if self.limits.is_enabled and partition.log.settings.is_compacted:
            self.look_at_us = Micros(0)

    def deadline(self) -> Micros | None:
        """The next time for `begin_due`."""
        if self.is_stopping:
            return None
        if not self._rounds and not self._dirty:
            return self.look_at_us if self.limits.threads > 0 else None
        times = [work.resume_at_us for work in self._rounds.values() if not work.is_running]
        if any(directory not in self._checkpoints for directory in self._dirty):
            times.append(self._checkpoint_at_us)
        if self.look_at_us is not None and len(self._rounds) < self.limits.threads:
            times.append(self.look_at_us)
        return min(times, default=None)

    @property
    def is_quiet(self) -> bool:
        """Whether no job is in progress."""
        return not self._jobs_running and not self._checkpoints

    def stop(self) -> None:
        """Begin no further job, except the commit of a segment that has been swapped in."""
        self.is_stopping = True

    def begin_due(self, now: Instant) -> None:
        """Begin the jobs that are due."""
        if self.is_stopping:
            return
        if self.look_at_us is not None and self.look_at_us <= now.mono_us:
            self._look(now)
        for work in self._rounds.values():
            if not work.is_running and work.resume_at_us <= now.mono_us:
                self._work_on(work, now)
        if now.mono_us < self._checkpoint_at_us:
            return
        dirty, self._dirty = self._dirty, {}
        for directory in dirty:
            if directory in self._checkpoints:
                self._dirty[directory] = None  # two at once could overwrite newer offsets with older ones
            elif directory.error is None:
                self._checkpoint(directory)

    def _compacted(self) -> Iterator[tuple[ReplicaDirectory, Partition]]:
        for directory in self._directories:
            if directory.error is None:
                for partition in directory.partitions:
                    if partition.log.settings.is_compacted and not partition.log.is_closed:
                        yield directory, partition

    def _look(self, now: Instant) -> None:
        """Begin rounds on the dirtiest logs that are due, up to the number of threads."""
        candidates: list[tuple[Choice, ReplicaDirectory, Partition]] = []
        self.look_at_us = None
        for directory, partition in self._compacted():
            self.look_at_us = Micros(now.mono_us + 1000 * self.limits.backoff_ms)
            if partition in self._rounds or partition in self._uncleanable or partition in self._paused:
                continue
            if self._put_off.get(partition, now.mono_us) > now.mono_us:
                continue
            self._put_off.pop(partition, None)
            from sparklog_server.log.cleaning.compaction import judge

            try:
                choice = judge(partition.log, partition.high_watermark, now.wall_ms)
            except StorageError as error:
                partition.disk.storage_failed(error)
                continue
            if choice.is_due:
                candidates.append((choice, directory, partition))
        candidates.sort(key=lambda candidate: candidate[0].dirty_ratio, reverse=True)
        for choice, directory, partition in candidates[: max(self.limits.threads - len(self._rounds), 0)]:
            from sparklog_server.log.cleaning.compaction import reading_before

            step = reading_before(partition.log, choice) or self._new_round(partition, choice, now)
            self._rounds[partition] = _Work(directory, partition, step, now)

    def _new_round(self, partition: Partition, choice: "Choice", now: Instant) -> "Round":
        from sparklog_server.log.cleaning.cleaner import Round
        from sparklog_server.log.cleaning.compaction import plan_round

        plan = plan_round(
            partition.log,
            choice,
            table_bytes_max=max(self.limits.table_bytes_max // self.limits.threads, 2 * clean.SLOT_SIZE),
            load_factor=self.limits.load_factor,
            seed=self._entropy(16),
            now_ms=now.wall_ms,
        )
        return Round(self._disk, plan)

    def _work_on(self, work: _Work, now: Instant) -> None:
        if work.is_committing is not None:
            self._commit(work, work.is_committing)
            return
        if isinstance(work.step, IndexReading):
            self._began(work)
            self._continuations.run(work.step.run, partial(self._read, work, work.step))
            return
        rate = self.limits.io_bytes_per_second_max / self.limits.threads
        io_bytes_max = int(min(WORK_BYTES, max(rate / _JOBS_PER_SECOND, _WORK_BYTES_MIN)))
        work.resume_at_us = now.mono_us
        self._began(work)
        self._continuations.run(
            partial(_work, work.step, io_bytes_max),
            partial(self._worked, work, work.step),
            is_background=True,
        )

    def _commit(self, work: _Work, swap: Swap) -> None:
        self._began(work)
        self._continuations.run(
            partial(commit, self._disk, swap), partial(self._committed, work, swap), is_background=True
        )

    def _began(self, work: _Work) -> None:
        work.is_running = True
        self._jobs_running += 1

    # -- results

    def _is_over(self, work: _Work, result: object, now: Instant) -> bool:
        """Process the end of a job. Returns whether the round ends here, or waits for space for the
        commit.
        """
        work.is_running = False
        self._jobs_running -= 1
        if work.partition.log.is_closed or work.directory.error is not None:
            self._drop(work)
        elif isinstance(result, StorageError) and result.is_full:
            self._found_full(work, result, now)
        elif isinstance(result, StorageError):
            self._failed(work, result)
        else:
            return False
        return True

    def _read(self, work: _Work, reading: IndexReading, result: StorageError | None, now: Instant) -> None:
        """Choose again, because another log may be dirtier now; a round of this one needs no further
        reading.
        """
        if self._is_over(work, result, now):
            return
        self._drop(work)
        if work.partition in self._paused:
            return
        self.look_at_us = now.mono_us
        try:
            reading.learn()
        except StorageError as error:
            work.partition.disk.storage_failed(error)

    def _worked(
        self, work: _Work, one: "Round", result: "Progress | Uncleanable | StorageError", now: Instant
    ) -> None:
        if self._is_over(work, result, now) or isinstance(result, StorageError):
            return
        if isinstance(result, Uncleanable):
            self._trace(
                "log-uncleanable", partition=str(work.partition.topic_partition), reason=result.reason
            )
            self._uncleanable[work.partition] = None
            self._drop(work)
        elif work.partition in self._paused:
            self._drop(work)
        else:
            self._progressed(work, one, result, now)

    def _progressed(self, work: _Work, one: "Round", progress: "Progress", now: Instant) -> None:
        rate = self.limits.io_bytes_per_second_max / self.limits.threads
        work.resume_at_us = Micros(work.resume_at_us + int(progress.io_bytes * 1_000_000 / rate))
        if progress.is_done:
            log = work.partition.log
            assert one.end_offset is not None
            log.first_dirty_offset = min(one.end_offset, log.log_end_offset)
            self._trace(
                "log-cleaned",
                partition=str(work.partition.topic_partition),
                end_offset=one.end_offset,
                records_read=one.records_read,
                records_kept=one.records_kept,
            )
            self._dirty[work.directory] = None
            self._drop(work)
            self.look_at_us = now.mono_us
        elif progress.cleaned is not None and not self.is_stopping:
            try:
                is_in = work.partition.log.segments.swap_in(progress.cleaned)
            except StorageError as error:
                self._failed(work, error)
                return
            if not is_in:
                self._drop(work)
                return
            work.is_committing = progress.cleaned.swap
            self._commit(work, work.is_committing)

    def _committed(self, work: _Work, swap: Swap, result: StorageError | None, now: Instant) -> None:
        if self._is_over(work, result, now):
            return
        try:
            work.partition.log.segments.swapped(swap.base_offset)
        except StorageError as error:
            self._failed(work, error)
        work.is_committing = None
        if work.partition in self._paused:
            self._drop(work)

    def _found_full(self, work: _Work, error: StorageError, now: Instant) -> None:
        """A full disk has no space for a round, or for a rename: retry later. The renames of a segment that
        has been swapped in are retried until they succeed.
        """
        work.directory.room.ran_out(error, now)
        if work.is_committing is not None:
            work.resume_at_us = Micros(now.mono_us + _AGAIN_US)
        else:
            self._put_off[work.partition] = Micros(now.mono_us + _PUT_OFF_US)
            self._drop(work)

    def _failed(self, work: _Work, error: StorageError) -> None:
        """The disk failed, or retention removed a segment that the round had not read, which is not
        a fault.
        """
        self._drop(work)
        read = offset_of(error.path.rpartition("/")[2], LOG_SUFFIX)
        bases = {segment.base_offset for segment in work.partition.log.segments.settled}
        if work.is_committing is None and read is not None and read not in bases:
            return
        work.partition.disk.storage_failed(error)

    def _drop(self, work: _Work) -> None:
        self._rounds.pop(work.partition, None)

    def _checkpoint(self, directory: ReplicaDirectory) -> None:
        """Begin the job that writes the first dirty offsets of a directory's logs."""
        offsets = {
            topic_partition: log.first_dirty_offset
            for topic_partition, log in directory.log_dir.logs.items()
            if log.settings.is_compacted and log.first_dirty_offset > log.log_start_offset
        }
        self._checkpoints[directory] = None
        self._named[directory] = self._named.get(directory, {}) | offsets
        self._continuations.run(
            partial(self._disk.write, f"{directory.log_dir.path}/{CHECKPOINT_FILE}", render_offsets(offsets)),
            partial(self._checkpointed, directory, offsets),
        )

    def _checkpointed(
        self,
        directory: ReplicaDirectory,
        offsets: dict[TopicPartition, Offset],
        result: StorageError | None,
        now: Instant,
    ) -> None:
        del self._checkpoints[directory]
        if result is not None and result.is_full:
            directory.room.ran_out(result, now)
            self._checkpoint_at_us = Micros(now.mono_us + _AGAIN_US)
            self._dirty[directory] = None
            return
        self._named[directory] = offsets
        if result is not None:
            directory.storage_failed(result)


def _work(one: "Round", io_bytes_max: int) -> "Progress | Uncleanable":
    from sparklog_server.log.cleaning.cleaner import UncleanableLog

    try:
        return one.work(io_bytes_max)
    except UncleanableLog as error:
        return Uncleanable(str(error))
