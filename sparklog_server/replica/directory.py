"""One log directory with its partitions, which are synced together, and go offline together.

Group commit: one sync is in flight at a time, and everything appended meanwhile shares the next. It begins at
once if a caller waits for it, else within 10 ms, so that a stream of records without waiting requests does
not keep the disk busy with small syncs. A failed sync or write is final: pages that the kernel dropped cannot
be synced by a retry, so the directory stays offline until the process restarts. A write that a full disk
refuses has changed nothing and is not a failure: see `disk_reserve`.

    synced ── 0.5 s ──► recovery points are written ── checkpoint interval ──► all checkpoints are written

So at most one second of acknowledged records lies above the recovery points on disk, and a crash cannot be
the cause of records missing below them.
"""

from collections.abc import Callable
from typing import Final

from sparklog.effects import Steps
from sparklog.errors import ErrorCode, without_frames
from sparklog.model import Instant, Micros, Offset, TopicPartition, Uuid, earlier
from sparklog_server.agenda import Agenda
from sparklog_server.disk.door import DiskFile, OutOfDescriptors, StorageError
from sparklog_server.disk.removal import Removal
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.log.lookup.places import BrokenFrame
from sparklog_server.log.truncation import Restart, Truncation
from sparklog_server.metadata.entries import DIRECTORY_LOST, Assignment, Assignments
from sparklog_server.replica.disk_reserve import DiskReserve
from sparklog_server.replica.durability import LINGER_US
from sparklog_server.replica.partition import Partition

Trace = Callable[..., None]
RECOVERY_POINTS_MS_MAX: Final = 500
"""The longest time from a sync to the write of the recovery points: half a second, because the write itself
may take the other half.
"""

_PUT_OFF_US = 1_000_000
"""The time after which the broker retries its own writes on a full disk."""
BROKEN_FRAMES_TOLD_MAX = 1_000


class ReplicaDirectory:
    """The partitions of one log directory.

    Invariants: at most one sync is in flight; records appended after it began wait in `_dirty` for the
    next; an offline directory has only offline partitions and syncs nothing.

    One class, because syncs, checkpoints and truncations of a directory wait for each other: a checkpoint may
    name only what is synced, and no log is truncated below an offset that a checkpoint on disk may name.
    """

    __slots__ = (
        "_agenda",
        "_assignments",
        "_broken_frames",
        "_checkpoint_at_us",
        "_checkpoint_interval_us",
        "_checkpointed_starts",
        "_cuts",
        "_dirty",
        "_failed",
        "_in_flight",
        "_is_awaited",
        "_is_checkpoint_whole",
        "_is_checkpointing",
        "_is_put_off",
        "_log_start_interval_us",
        "_recovery_points_at_us",
        "_recovery_points_interval_us",
        "_retained",
        "_settling_bytes",
        "_trace",
        "_truncations",
        "_unsynced_bytes_max",
        "checkpoints_begun",
        "checkpoints_done",
        "error",
        "has_offline",
        "is_congested",
        "is_cordoned",
        "log_dir",
        "partitions",
        "room",
        "sync_at_us",
        "sync_began_us",
        "unsynced_bytes",
    )

    def __init__(
        self,
        log_dir: LogDir,
        agenda: Agenda,
        *,
        checkpoint_interval_ms: int,
        log_start_interval_ms: int,
        recovery_points_interval_ms: int = RECOVERY_POINTS_MS_MAX,
        unsynced_bytes_max: int,
        reserve_bytes: int,
        failed: list[Uuid],
        assignments: Assignments,
        trace: Trace,
    ) -> None:
        """`failed` receives the directory id when the disk fails."""
        self.log_dir = log_dir
        self._agenda = agenda
        self._checkpoint_at_us: Micros | None = None
        self._recovery_points_at_us: Micros | None = None
        self._is_checkpointing = False
        self._is_checkpoint_whole = False  # in flight: all checkpoints, not the recovery points alone
        self._retained: list[tuple[int, Removal]] = []  # the number of checkpoints that must be done first
        self.checkpoints_begun = 0
        self.checkpoints_done = 0
        self._checkpoint_interval_us = checkpoint_interval_ms * 1000
        self._log_start_interval_us = log_start_interval_ms * 1000
        self._recovery_points_interval_us = min(recovery_points_interval_ms, RECOVERY_POINTS_MS_MAX) * 1000
        self._checkpointed_starts: list[tuple[Partition, Offset]] = []  # by the checkpoint in flight
        # The logs that are truncated once no checkpoint covers the removed records: where they end then, and
        # where they begin anew.
        self._cuts: dict[Partition, tuple[Offset, Offset | None]] = {}
        self._truncations: list[tuple[Partition, Truncation | Restart]] = []  # their jobs are not taken yet
        self._unsynced_bytes_max = unsynced_bytes_max
        self.unsynced_bytes = 0  # appended, and left to the next sync
        self._settling_bytes = 0  # in the sync in flight
        self.is_congested = False  # producers are paused: too many bytes of both
        self.is_cordoned = False  # it accepts no new partitions
        self._broken_frames: dict[tuple[str, int], None] = {}  # positions that were reported
        self._failed = failed
        self._assignments = assignments
        self.room = DiskReserve(log_dir.path, log_dir.room, agenda, reserve_bytes=reserve_bytes, trace=trace)
        self._trace = trace
        self.partitions: dict[Partition, None] = {}
        self.has_offline = False  # some partition of this directory is offline
        self.error: StorageError | None = None
        self._dirty: dict[Partition, None] = {}
        self._in_flight: list[tuple[Partition, Offset]] = []
        self._is_awaited = False  # a request waits for the dirty partitions
        self._is_put_off = False  # the dirty partitions wait for disk space
        self.sync_at_us: Micros | None = None  # the latest time for the sync of the dirty partitions
        self.sync_began_us: Micros | None = None  # when the sync in flight began

    def is_sync_due(self, now: Instant) -> bool:
        """Whether a sync should begin now."""
        if self._in_flight or self.sync_at_us is None:
            return False
        return self._is_awaited or self.sync_at_us <= now.mono_us

    def deadline(self) -> Micros | None:
        """The next time at which a sync, a checkpoint or a check of the disk space may be due."""
        earliest = None if self._in_flight else self.sync_at_us
        if self.room.look_at_us is not None and self.error is None:
            earliest = earlier(earliest, self.room.look_at_us)
        if self._is_checkpointing:
            return earliest
        if self._recovery_points_at_us is not None:
            earliest = earlier(earliest, self._recovery_points_at_us)
        return self._checkpoint_at_us if earliest is None else earlier(earliest, self._checkpoint_at_us)

    @property
    def is_quiet(self) -> bool:
        """Whether everything appended is durable, can never be, or waits for space on a full disk."""
        return not self._in_flight and (not self._dirty or self._is_put_off)

    def mark_dirty(
        self, partition: Partition, size: int, now: Instant, *, within_us: int = LINGER_US
    ) -> None:
        """`partition` has `size` more bytes of records to sync, within `within_us` from now."""
        self._dirty[partition] = None
        self._is_put_off = False
        self.unsynced_bytes += size
        self.is_congested = self.unsynced_bytes + self._settling_bytes > self._unsynced_bytes_max
        if self.sync_at_us is None or self.sync_at_us > now.mono_us + within_us:
            self.sync_at_us = Micros(now.mono_us + within_us)
            self._agenda.has_deadlines = True
            if within_us == 0 or self._is_awaited:
                self._agenda.has_syncs = True

    def hurry(self) -> None:
        """Sync the dirty partitions at once: a request waits for them."""
        self._is_awaited = True
        self._agenda.has_syncs = True

    def begin_sync(self, now: Instant) -> list[DiskFile] | None:
        """The files to sync so that everything appended so far becomes durable; None if there are none, or
        the disk failed.

        If a full disk has no space for the files that a sync writes for a partition, that partition is
        retried soon.
        """
        assert not self._in_flight, self.log_dir.path
        files: list[DiskFile] = []
        put_off: dict[Partition, None] = {}
        for partition in self._dirty:
            if partition in self.partitions and partition.error is not ErrorCode.KAFKA_STORAGE_ERROR:
                try:
                    partition_files, end_offset = partition.durability.begin_sync()
                except StorageError as error:
                    if error.is_full:
                        self.room.ran_out(error, now)
                        put_off[partition] = None
                        continue
                    self.storage_failed(error)
                    return None
                files.extend(partition_files)
                self._in_flight.append((partition, end_offset))
        self._dirty = put_off
        self._is_put_off = bool(put_off)
        self._is_awaited = False
        self.sync_at_us = Micros(now.mono_us + _PUT_OFF_US) if put_off else None
        self._settling_bytes, self.unsynced_bytes = self.unsynced_bytes if self._in_flight else 0, 0
        self.is_congested = self._settling_bytes > self._unsynced_bytes_max
        self.sync_began_us = now.mono_us if self._in_flight else None
        return files if self._in_flight else None

    def synced(self, now: Instant) -> list[Partition]:
        """Process the end of the sync: its records are durable, and a checkpoint of that becomes due. Returns
        the partitions of this directory.
        """
        in_flight, self._in_flight = self._in_flight, []
        self.sync_began_us = None
        self._settling_bytes = 0
        self.is_congested = self.unsynced_bytes > self._unsynced_bytes_max
        self._agenda.has_syncs = True  # of records appended meanwhile
        if self._checkpoint_at_us is None:
            self._checkpoint_at_us = Micros(now.mono_us + self._checkpoint_interval_us)
        if self._recovery_points_at_us is None:
            self._recovery_points_at_us = Micros(now.mono_us + self._recovery_points_interval_us)
        synced = []
        for partition, end_offset in in_flight:
            if partition in self.partitions:
                partition.synced(end_offset, now)
                synced.append(partition)
        return synced

    def is_checkpoint_due(self, now: Instant) -> bool:
        """Whether a checkpoint should begin now; never while another is in flight, which could overwrite
        newer offsets with older ones.
        """
        return (
            not self._is_checkpointing
            and self._checkpoint_at_us is not None
            and self._checkpoint_at_us <= now.mono_us
        )

    def begin_checkpoint(self) -> Callable[[], None]:
        """The job that writes the current recovery points and high watermarks."""
        self._checkpoint_at_us = self._recovery_points_at_us = None
        self._is_checkpointing = self._is_checkpoint_whole = True
        self.checkpoints_begun += 1
        self._checkpointed_starts = [
            (partition, partition.log.log_start_offset) for partition in self.partitions
        ]
        return self.log_dir.checkpoints.job(self.high_watermarks(), self._limits())

    def are_recovery_points_due(self, now: Instant) -> bool:
        """Whether the recovery points alone should be written now."""
        return (
            not self._is_checkpointing
            and self._recovery_points_at_us is not None
            and self._recovery_points_at_us <= now.mono_us
        )

    def begin_recovery_points(self) -> Callable[[], Steps[None]]:
        """The job that writes the current recovery points; `checkpoint_finished` follows."""
        self._recovery_points_at_us = None
        self._is_checkpointing, self._is_checkpoint_whole = True, False
        return self.log_dir.checkpoints.recovery_points_job(self._limits())

    def _limits(self) -> dict[TopicPartition, Offset]:
        """The offsets that no checkpoint may exceed any more."""
        return {
            partition.topic_partition: offset
            for partition, (offset, _) in self._cuts.items()
            if partition in self.partitions
        }

    def checkpoint_finished(self, error: StorageError | None, now: Instant) -> None:
        """Process the end of the checkpoint in flight; if the disk was full another is tried soon, and the
        old one stays valid.
        """
        self._is_checkpointing = False
        starts, self._checkpointed_starts = self._checkpointed_starts, []
        if self.error is not None:
            return
        if error is not None and error.is_full:
            self.room.ran_out(error, now)
            again_us = Micros(now.mono_us + _PUT_OFF_US)
            if self._is_checkpoint_whole:
                self._checkpoint_at_us = again_us
            else:
                self._recovery_points_at_us = again_us
            return
        if error is not None:
            self.storage_failed(error)
            return
        if not self._is_checkpoint_whole:
            return
        self.checkpoints_done = self.checkpoints_begun
        self.log_dir.checkpoints.written()
        self.begin_cuts(now)
        if any(self._is_vouched(partition, offset) for partition, (offset, _) in self._cuts.items()):
            self.checkpoint_now(now)  # the truncation was requested after this one had begun
        for partition, log_start in starts:
            if partition in self.partitions:
                partition.log_start_written(log_start)

    def hold(self, removal: Removal, now: Instant) -> None:
        """Keep renamed files until no checkpoint covers them; `take_forgotten` returns their removal then."""
        self._retained.append((self.checkpoints_begun + 1, removal))
        self.checkpoint_now(now)

    def remove_left_overs(self, now: Instant) -> None:
        """Remove the files that the last run left, once a checkpoint of this run is on disk."""
        left = self.log_dir.take_left_overs()
        if left is not None:
            self.hold(left, now)

    def take_forgotten(self) -> list[Removal]:
        """The removals that were held, and may begin now."""
        forgotten = [removal for due, removal in self._retained if due <= self.checkpoints_done]
        self._retained = self._retained[len(forgotten) :]
        return forgotten

    def log_start_moved(self, now: Instant, *, is_awaited: bool) -> None:
        """Write a log start offset to the checkpoint: at once if a request waits for it."""
        due_us = now.mono_us + (0 if is_awaited else self._log_start_interval_us)
        if self._checkpoint_at_us is None or self._checkpoint_at_us > due_us:
            self._checkpoint_at_us = Micros(due_us)
            self._agenda.has_deadlines = True

    def checkpoint_now(self, now: Instant) -> None:
        """Begin a checkpoint at once: a caller waits for one that begins after this call."""
        if self.error is None:
            self._checkpoint_at_us = now.mono_us
            self._agenda.has_deadlines = True

    def let_go(self, partition: Partition, now: Instant) -> tuple[str, str]:
        """Remove a partition whose files are in another directory now; returns their old path, and the path
        to rename it to.
        """
        del self.partitions[partition]
        self._dirty.pop(partition, None)
        self._cuts.pop(partition, None)
        self.checkpoint_now(now)  # until then the checkpoint names the partition
        return self.log_dir.let_go(partition.log)

    def take_in(self, partition: Partition, now: Instant) -> None:
        """Add a partition whose files are here now."""
        self.log_dir.adopt(partition.log)
        self.partitions[partition] = None
        partition.move_to(self, now)

    def cut(self, partition: Partition, offset: Offset, now: Instant) -> bool:
        """Begin the truncation of the log of a follower to `offset`: now, or once no checkpoint covers the
        removed batches, because those that replace them must not count as durable after a crash, and no
        compacted segments are being renamed.

        Returns whether it has begun; `take_truncations` returns its job then, if batches are to be removed.
        """
        try:
            offset = partition.log.batch_start(offset)
            if offset < partition.log.log_end_offset and self._must_wait(partition, offset, now):
                self._cuts[partition] = offset, None
                return False
            truncation = partition.log.begin_truncation(offset)
        except StorageError as error:
            self.storage_failed(error)
            return True
        partition.cut_to(partition.log.log_end_offset)
        if truncation is not None:
            self._truncations.append((partition, truncation))
        return True

    def restart(self, partition: Partition, offset: Offset, now: Instant) -> bool:
        """Begin to remove all records of the log of a follower, which starts anew at `offset`: as `cut`."""
        log_start = partition.log.log_start_offset
        if self._must_wait(partition, log_start, now):
            self._cuts[partition] = log_start, offset
            return False
        try:
            restart = partition.log.begin_restart(offset, now)
        except StorageError as error:
            self.storage_failed(error)
            return True
        partition.cut_to(offset)
        self._truncations.append((partition, restart))
        return True

    def _must_wait(self, partition: Partition, offset: Offset, now: Instant) -> bool:
        if self._is_vouched(partition, offset):
            self.checkpoint_now(now)
            return True
        return partition.log.segments.is_swapping

    def _is_vouched(self, partition: Partition, offset: Offset) -> bool:
        return self.log_dir.checkpoints.is_vouched(partition.topic_partition, offset)

    def begin_cuts(self, now: Instant) -> None:
        """Begin the truncations that no checkpoint and no swap of compacted segments delays any more."""
        for partition, (offset, start) in tuple(self._cuts.items()):
            if self._is_vouched(partition, offset) or partition.log.segments.is_swapping:
                continue
            del self._cuts[partition]
            if start is None:
                self.cut(partition, offset, now)
            else:
                self.restart(partition, start, now)

    def forget_cut(self, partition: Partition) -> None:
        """Drop a truncation that has not begun: the partition has a new role."""
        self._cuts.pop(partition, None)

    def is_cut_due(self, partition: Partition) -> bool:
        """Whether a truncation of the log has not begun."""
        return partition in self._cuts

    def take_truncations(self) -> list[tuple[Partition, Truncation | Restart]]:
        """The truncations whose jobs are to be run; `truncated` follows each."""
        taken, self._truncations = self._truncations, []
        return [one for one in taken if one[0] in self.partitions]

    def truncated(
        self, partition: Partition, truncation: Truncation | Restart, error: StorageError | None
    ) -> None:
        """The job of a truncation is done, or has failed."""
        try:
            if error is not None:
                raise error
            partition.log.truncated(truncation)
            partition.cut_to(partition.log.log_end_offset)
        except StorageError as failed:
            self.storage_failed(failed)

    def high_watermarks(self) -> dict[TopicPartition, Offset]:
        """The high watermark of every log here: those without a partition yet have the one that recovery
        found.
        """
        logs = self.log_dir.logs
        found = {at: offset for at, offset in self.log_dir.high_watermarks.items() if at in logs}
        return found | {partition.topic_partition: partition.high_watermark for partition in self.partitions}

    def partition_failed(self, partition: Partition, error: StorageError) -> None:
        """Take a partition offline because a file of it cannot be read, and report that; the directory then
        gets no mark of a clean stop.
        """
        if partition.error is ErrorCode.KAFKA_STORAGE_ERROR:
            return
        if isinstance(error, OutOfDescriptors):
            self._trace("out-of-descriptors", path=self.log_dir.path, reason=str(error))
            return
        self._trace("partition-offline", partition=str(partition.topic_partition), **error.fields)
        self._dirty.pop(partition, None)
        self._cuts.pop(partition, None)
        self.has_offline = True
        self.log_dir.failed()
        self.lost(partition.log.topic_id, partition.topic_partition.partition)
        partition.go_offline()
        partition.log.close()

    def lost(self, topic_id: Uuid, index: int) -> None:
        """Report a log here that cannot be served, so that another replica leads."""
        self._assignments[topic_id, index] = Assignment(topic_id, index, DIRECTORY_LOST)
        self._agenda.has_deadlines = True

    def storage_failed(self, error: StorageError) -> None:
        """The disk failed: take every partition of the directory offline. A lack of descriptors is not a
        failure of the disk.
        """
        if isinstance(error, OutOfDescriptors):
            self._trace("out-of-descriptors", path=self.log_dir.path, reason=str(error))
            return
        if self.error is None:
            self.error = without_frames(error)
            self._failed.append(self.log_dir.directory_id)
            self.log_dir.failed()
            self._agenda.has_deadlines = True
            self._trace("log-directory-offline", path=self.log_dir.path, **error.fields)
        self.has_offline = True
        self._dirty = {}
        self._in_flight = []
        self.sync_began_us = None
        self.unsynced_bytes = self._settling_bytes = 0
        self.is_congested = False
        self.sync_at_us = None
        self._checkpoint_at_us = self._recovery_points_at_us = None
        self._cuts = {}
        self._truncations = []
        self._retained = []  # renamed files are removed when the directory is opened again
        for partition in self.partitions:
            partition.go_offline()

    def frame_broken(self, topic_partition: TopicPartition, broken: BrokenFrame) -> None:
        """Report bytes that cannot be the start of a batch; once for each position, because readers retry."""
        place = broken.file.path, broken.position
        if place not in self._broken_frames and len(self._broken_frames) < BROKEN_FRAMES_TOLD_MAX:
            self._broken_frames[place] = None
            self._trace(
                "batch-unreadable",
                partition=str(topic_partition),
                file=broken.path,
                byte=broken.position,
                **broken.fields,
            )
