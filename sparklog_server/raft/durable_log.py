"""The metadata log as its node keeps it: one sync in flight, truncation and installed snapshots, and the
recovery point.

    append ──► flush ──► Sync ──► synced          records appended meanwhile share the next sync
    truncate(offset) ──► job ──► settled          a follower's log diverged
    install(snapshot) ──► job ──► settled         the leader no longer has the records that follow this log

A failed sync is never retried: the page cache may have dropped the data, so the state of the disk is unknown
and the process must end. A write that a full disk refuses has changed nothing: it is retried every second
(`retry_at_us`, `tick`). Nothing is appended while a truncation or an installation is under way.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import msgspec

from sparklog.errors import ErrorCode
from sparklog.kernels import scan
from sparklog.model import (
    NO_EPOCH,
    Instant,
    LeaderEpoch,
    Micros,
    Offset,
    OffsetAndEpoch,
    TopicPartition,
    Uuid,
    earlier,
)
from sparklog_server.continuations import Continuations
from sparklog_server.disk import ballast
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog, RecordsRefused
from sparklog_server.log.recovery.cuts import Cuts
from sparklog_server.log.recovery.log_loader import Checkpointed
from sparklog_server.log.segment.segment import LOG_SUFFIX
from sparklog_server.log.truncation import Restart, Truncation

from .clean_stop import leave_mark, read_mark, remove_mark
from .recovery_point import RecoveryPoint
from .recovery_point import read as read_recovery_point
from .recovery_point import write as write_recovery_point
from .replay import newest_sound_snapshot, read_batches
from .snapshots import (
    Snapshot,
    begin_install,
    end_install,
    file_name,
    finish_install,
    listed,
    set_damaged_aside,
)

METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
_TOPIC_ID_FILE = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
_RETRY_US = 1_000_000
_READ_BYTES = 1 << 20
_Result = TypeVar("_Result")

Trace = Callable[..., None]


class Events(msgspec.Struct, frozen=True):
    """What the node of a log is told."""

    synced: Callable[[Instant], None]
    """The recovery point moved."""
    settled: Callable[[Instant], None]
    """A truncation or an installation is done."""
    failed: Callable[[StorageError], None]
    """The disk is unreliable: the node must end."""


class DurableLog:
    """Invariants: one sync and one cut are under way at most; `snapshots`, oldest first, hold committed
    records only, and the oldest reaches the log start.
    """

    def __init__(
        self,
        disk: Disk,
        log: PartitionLog,
        snapshots: list[OffsetAndEpoch],
        *,
        log_dir: str,
        continuations: Continuations,
        trace: Trace,
    ) -> None:
        self.log = log
        self.snapshots = snapshots
        self.disk = disk
        self.log_dir = log_dir
        self.continuations = continuations
        self.retry_at_us: Micros | None = None  # a full disk refused a write: when `tick` is wanted
        self.sync_began_us: Micros | None = None
        self.is_dead = False
        self.is_cutting = False
        self._begin_cut: Callable[[], None] | None = None  # waits for the recovery point's job, or for room
        self._is_full = False  # and that was traced
        self._trace = trace
        self._events: Events | None = None
        self.recovery = RecoveryPoint(
            disk, log.directory, METADATA_PARTITION, continuations, written=self._recovery_point_written
        )

    @classmethod
    def open(
        cls,
        disk: Disk,
        log_dir: str,
        settings: LogConfig,
        *,
        continuations: Continuations,
        trace: Trace,
        now: Instant,
    ) -> "DurableLog":
        """Open or begin the metadata log in `log_dir`. Raises StorageError and LogDamaged."""
        directory = f"{log_dir}/{METADATA_PARTITION}"
        disk.make_directory(directory)
        metadata_path = f"{directory}/partition.metadata"
        is_identified = disk.read(metadata_path) is not None
        if (installed := finish_install(disk, directory)) is not None:
            write_recovery_point(disk, directory, METADATA_PARTITION, installed.offset)
            end_install(disk, directory, installed)
        snapshots = listed(disk, directory)
        cuts = Cuts(disk, lambda: [directory], now.wall_ms)
        log = _open_log(disk, directory, settings, now, snapshots[-1] if snapshots else None, cuts)
        for cut in cuts.made:
            trace("log-cut", partition=str(METADATA_PARTITION), **cut.fields)
        while snapshots and snapshots[0].offset < log.log_start_offset:
            disk.remove(f"{directory}/{file_name(snapshots.pop(0))}")  # useless without the next records
        if not is_identified:
            log.sync_with_next(disk.replace(metadata_path, _TOPIC_ID_FILE))
        return cls(disk, log, snapshots, log_dir=log_dir, continuations=continuations, trace=trace)

    def tell(self, events: Events) -> None:
        """Report to the node of this log."""
        self._events = events

    # -- where it ends

    @property
    def end_offset(self) -> Offset:
        """The offset of the next record."""
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last record, which may be in the newest snapshot; 0 without any."""
        if self.log.latest_epoch != NO_EPOCH:
            return self.log.latest_epoch
        return self.snapshots[-1].epoch if self.snapshots else LeaderEpoch(0)

    def end_of_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """Where the greatest epoch not above `epoch` ends in this log, and which that is (KIP-595)."""
        end = self.log.end_offset_for_epoch(epoch)
        if end.offset < 0:
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        oldest = self.oldest_snapshot
        return oldest if oldest is not None and end == (oldest.offset, epoch) else end

    @property
    def oldest_snapshot(self) -> OffsetAndEpoch | None:
        """The oldest snapshot that reaches the log start; one that does not is about to be removed."""
        start = self.log.log_start_offset
        return next((snapshot for snapshot in self.snapshots if snapshot.offset >= start), None)

    @property
    def is_synced(self) -> bool:
        """Whether every record is durable, so that a follower may acknowledge them all."""
        return self.log.recovery_point >= self.end_offset

    @property
    def is_quiet(self) -> bool:
        """Whether no sync or job is pending."""
        return self.sync_began_us is None and not self.is_cutting and self.recovery.is_quiet

    # -- append and sync

    def append(self, batch: bytearray, epoch: LeaderEpoch, now: Instant) -> Offset:
        """Append a leader's batches; returns their base offset. Raises StorageError, and then nothing has
        changed.
        """
        return self.written(lambda: self.log.append_own(batch, epoch, now)).base_offset

    def append_fetched(self, records: bytes, epoch: LeaderEpoch, now: Instant) -> memoryview | None:
        """Append the whole batches of a fetch in `epoch`, without those of later epochs (KAFKA-18723).

        Returns the appended batches, None if there are none. Raises RecordsRefused and StorageError, and then
        nothing has changed.
        """
        end, due = 0, int(self.end_offset)
        try:
            found = scan.headers(records, False)
        except ValueError as error:
            raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, str(error.args[2])) from None
        for position, header in found:
            if header.leader_epoch > epoch:
                break
            if header.base_offset != due:
                reason = f"a batch of offset {header.base_offset} where {due} was due"
                raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, reason)
            end, due = position + header.size, header.next_offset
        if end == 0:
            return None
        batches = memoryview(records)[:end]
        self.written(lambda: self.log.append_as_follower(batches, now))
        return batches

    def flush(self, now: Instant) -> None:
        """Begin a sync of appended records; if one is in flight, the next one follows it."""
        if self.sync_began_us is not None or self.is_cutting or self.is_dead or self.is_synced:
            return
        try:
            files, end_offset = self.written(self.log.begin_sync)
        except StorageError as error:
            self.refused(error, now)
            return
        self._is_full = False
        self.sync_began_us = now.mono_us
        self.continuations.sync(files, self.log_dir, partial(self._synced, end_offset))

    def _synced(self, end_offset: Offset, error: StorageError | None, now: Instant) -> None:
        self.sync_began_us = None
        if self.is_dead or self._events is None:
            return
        if error is not None:
            self._events.failed(error)
            return
        self.log.synced(end_offset)
        self.recovery.moved(now)
        self._events.synced(now)
        self.flush(now)

    # -- truncate and install

    def truncate(self, offset: Offset) -> None:
        """Drop every record from `offset` on; `settled` follows."""
        self._cut(lambda: self._begin_truncation(offset))

    def install(self, snapshot: OffsetAndEpoch, replaced: Callable[[Instant], None], now: Instant) -> None:
        """Replace the log by a downloaded snapshot, which was checked; `replaced` and `settled` follow."""
        self._cut(lambda: self._begin_install(snapshot, replaced, now))

    def _cut(self, begin: Callable[[], None]) -> None:
        assert not self.is_cutting
        self.is_cutting = True
        self._begin_cut = begin
        if self.recovery.is_quiet:
            self._begin_due_cut()

    def _begin_due_cut(self) -> None:
        begin, self._begin_cut = self._begin_cut, None
        if begin is None or self._events is None:
            return
        try:
            begin()
        except StorageError as error:  # the log is half cut
            self._events.failed(error)

    def _begin_truncation(self, offset: Offset) -> None:
        job = self.log.begin_truncation(offset)
        assert job is not None, "nothing to cut"
        self.recovery.stop()
        self._run_cut(partial(_truncate, self.disk, self.log.directory, job), job, lambda _now: None)

    def _begin_install(
        self, snapshot: OffsetAndEpoch, replaced: Callable[[Instant], None], now: Instant
    ) -> None:
        job = self.log.begin_restart(snapshot.offset, now)
        self.recovery.stop()
        work = partial(_install, self.disk, self.log.directory, job, snapshot, tuple(self.snapshots))
        self._run_cut(work, job, partial(self._installed, snapshot, replaced))

    def _installed(self, snapshot: OffsetAndEpoch, replaced: Callable[[Instant], None], now: Instant) -> None:
        self.snapshots[:] = [snapshot]
        replaced(now)

    def _run_cut(
        self, work: Callable[[], None], job: Truncation | Restart, adopted: Callable[[Instant], None]
    ) -> None:
        self.continuations.run(work, partial(self._adopt, work, job, adopted))

    def _adopt(
        self,
        work: Callable[[], None],
        job: Truncation | Restart,
        adopted: Callable[[Instant], None],
        error: StorageError | None,
        now: Instant,
    ) -> None:
        if self.is_dead or self._events is None:
            return
        if error is not None and error.is_full:
            self._begin_cut = partial(self._run_cut, work, job, adopted)  # up to there it can be repeated
            self.refused(error, now)
            return
        try:
            if error is not None:
                raise error
            self.log.truncated(job)
        except StorageError as failed:
            self._events.failed(failed)
            return
        adopted(now)
        self._settled(now)

    def _settled(self, now: Instant) -> None:
        self.is_cutting = False
        if not self.is_dead and self._events is not None:
            self._events.settled(now)
            self.flush(now)

    # -- time

    def tick(self, now: Instant) -> bool:
        """Write the recovery point if it is due; returns whether refused writes are to be retried now."""
        if not self.is_cutting and not self.is_dead:
            self.recovery.begin_due(self.log.recovery_point, now)
        if self.retry_at_us is None or self.retry_at_us > now.mono_us:
            return False
        self.retry_at_us = None
        if self.recovery.is_quiet:
            self._begin_due_cut()
        self.flush(now)
        return True

    def deadline(self) -> Micros | None:
        """The time of the next call of `tick`."""
        return earlier(self.retry_at_us, None if self.is_cutting else self.recovery.deadline())

    def _recovery_point_written(self, error: StorageError | None, now: Instant) -> None:
        if error is not None and error.is_full:
            self.recovery.moved(now)  # the previous one stays true
        elif error is not None and not self.is_dead and self._events is not None:
            self._events.failed(error)
            return
        self._begin_due_cut()

    # -- read

    def read(self, start: Offset, limit: Offset) -> Iterator[bytes]:
        """As `read_batches`."""
        return read_batches(self.log, start, limit, log_dir=self.log_dir)

    def read_control(self, start: Offset) -> Iterator[bytes]:
        """The control batches from `start` on, not checked: `read` does that, for a replay. Raises
        StorageError.
        """
        position = max(start, self.log.log_start_offset)
        while position < self.end_offset:
            piece = self.log.read(position, self.end_offset, _READ_BYTES, at_least_one=True)
            if piece is None:
                return
            batches = piece.read()
            try:
                found = scan.headers(batches, False)
            except ValueError:
                return
            if not found:
                return
            for at, header in found:
                if header.is_control and header.base_offset >= start:
                    yield batches[at : at + header.size]
            position = Offset(max(found[-1][1].next_offset, position + 1))

    def load_snapshot(self) -> Snapshot | None:
        """The newest sound snapshot from which the log continues, if there is one; damaged ones are set
        aside. Raises LogDamaged, StorageError.
        """
        found, damaged = newest_sound_snapshot(self.disk, self.log, self.snapshots, log_dir=self.log_dir)
        for snapshot, damage in damaged:
            kept = set_damaged_aside(self.disk, self.log.directory, snapshot)
            self.snapshots.remove(snapshot)
            self._trace(
                "metadata-snapshot-damaged", path=kept, position=damage.position, reason=damage.reason
            )
        return found

    # -- a full disk, the end

    def written(self, write: Callable[[], _Result]) -> _Result:
        """The result of `write`; on a full disk, half the ballast is freed for it. Raises StorageError, and
        then nothing has changed.
        """
        return ballast.written(
            self.disk, self.log_dir, write, lambda: self._trace("disk-ballast-halved", path=self.log_dir)
        )

    def refused(self, error: StorageError, now: Instant) -> None:
        """The disk refused a write: retry later if it is full, else the node must end."""
        if not error.is_full:
            if self._events is not None:
                self._events.failed(error)
            return
        if not self._is_full:
            self._is_full = True
            self._trace("metadata-log-awaits-room", path=error.path, call=error.call, reason=error.reason)
        self.retry_at_us = Micros(now.mono_us + _RETRY_US)

    def die(self) -> None:
        """The disk is unreliable: begin nothing more."""
        self.is_dead = True
        self.sync_began_us = None
        self.retry_at_us = None

    def close(self, now: Instant) -> None:
        """Close the log; cleanly unless the disk is unreliable or refuses, or a cut is under way, in which
        case the next start recovers it.
        """
        is_clean = not self.is_dead and not self.is_cutting
        try:
            self.log.close(now if is_clean else None)
            self.recovery.stop()
            if is_clean:
                directory, end_offset = self.log.directory, self.log.log_end_offset
                write_recovery_point(self.disk, directory, METADATA_PARTITION, end_offset)
                leave_mark(self.disk, directory, METADATA_PARTITION, end_offset)
        except StorageError as error:
            self._trace(
                "metadata-log-not-closed-cleanly", path=error.path, call=error.call, reason=error.reason
            )
            self.log.close()
        self.is_dead = True


def _truncate(disk: Disk, directory: str, job: Truncation) -> None:
    # First, for recovery refuses a log that ends below its recovery point.
    point = read_recovery_point(disk, directory, METADATA_PARTITION)
    if point > job.cut_offset:
        write_recovery_point(disk, directory, METADATA_PARTITION, job.cut_offset)
    job.run()


def _install(
    disk: Disk, directory: str, job: Restart, snapshot: OffsetAndEpoch, older: tuple[OffsetAndEpoch, ...]
) -> None:
    """From `begin_install` on, a start after a crash finishes the installation."""
    begin_install(disk, directory, snapshot)
    write_recovery_point(disk, directory, METADATA_PARTITION, snapshot.offset)
    job.run()
    end_install(disk, directory, snapshot)
    disk.remove(*(f"{directory}/{file_name(old)}" for old in older))


def _open_log(
    disk: Disk, directory: str, settings: LogConfig, now: Instant, newest: OffsetAndEpoch | None, cuts: Cuts
) -> PartitionLog:
    """Open the log as its last stop left it; after an unclean stop, scan it from its recovery point.

    Raises StorageError, and LogDamaged if durable records are missing; the mark of a clean stop then stays.
    """
    end_offset = read_mark(disk, directory, METADATA_PARTITION)
    snapshot_end = Offset(0) if newest is None else newest.offset
    is_begun = any(name.endswith(LOG_SUFFIX) for name in disk.list(directory))
    known = Checkpointed(
        recovery_point=max(
            end_offset or Offset(0), snapshot_end, read_recovery_point(disk, directory, METADATA_PARTITION)
        ),
        log_start_offset=Offset(0) if is_begun else snapshot_end,
        was_clean=end_offset is not None,
        is_metadata=True,
    )
    open_as = partial(
        PartitionLog.open,
        disk,
        directory,
        METADATA_PARTITION,
        METADATA_TOPIC_ID,
        settings,
        now=now,
        cuts=cuts,
    )
    log = open_as(known=known)
    if end_offset is not None and log.log_end_offset != end_offset:
        # The log does not end at the marked offset (other files, or a later append): recover from the lower
        # one.
        log.close()
        log = open_as(known=msgspec.structs.replace(known, was_clean=False))
    disk.remove(*log.leftovers)  # the snapshots define the log start
    remove_mark(disk, directory)
    return log
