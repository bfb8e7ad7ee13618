"""A voter of the metadata quorum: it opens its log, gets elected, appends and commits.

    UNATTACHED --campaign--> CANDIDATE --own vote on disk, majority--> LEADER --close--> CLOSED
                                  |                                      |
                                  +-------- a failed sync or write ------+--> HALTED

One sync is in flight at a time; records appended meanwhile share the next one. A failed sync is never
retried: the page cache may have dropped the data, so the state of the disk is unknown and the process must
end. A write that a full disk refuses has changed nothing: it is retried every second (`retry_at_us`, `tick`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from sparklog.effects import Halt
from sparklog.kernels import scan
from sparklog.model import (
    Instant,
    LeaderEpoch,
    Micros,
    NodeId,
    Offset,
    OffsetAndEpoch,
    TopicPartition,
    Uuid,
    earlier,
)
from sparklog.record.batch import BatchHeader
from sparklog.record.control import LeaderChange, build_control
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log import ballast
from sparklog_server.log.cuts import Cuts
from sparklog_server.log.damage import LogDamaged
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.segment import LOG_SUFFIX

from .clean_stop import leave_mark, read_mark, remove_mark
from .election_state import FILE_NAME, ElectionState, parse
from .leading import Leading
from .recovery_point import RecoveryPoint
from .recovery_point import read as read_recovery_point
from .recovery_point import write as write_recovery_point
from .roles import LEGAL, Role
from .snapshots import Snapshot, SnapshotDamaged, file_name, listed, set_damaged_aside
from .snapshots import read as read_snapshot
from .voters import VoterSet

METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
_TOPIC_ID_FILE = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
_READ_BYTES = 1 << 20
_RETRY_US = 1_000_000
_Result = TypeVar("_Result")

Trace = Callable[..., None]


class RaftNode:
    """One voter and its log.

    Invariants: `epoch` and the vote are durable before the voter acts in the epoch; only a leader appends;
    `high_watermark <= log_end_offset`, and a majority has synced everything below it; `snapshots`, oldest
    first, end at or below it, and the oldest reaches the log start.
    """

    def __init__(
        self,
        disk: Disk,
        log: PartitionLog,
        state: ElectionState,
        snapshots: list[OffsetAndEpoch],
        *,
        node_id: NodeId,
        directory_id: Uuid,
        voters: VoterSet,
        log_dir: str,
        continuations: Continuations,
        trace: Trace,
    ) -> None:
        self.role = Role.UNATTACHED
        self.log = log
        self.snapshots = snapshots
        # A log ahead of `quorum-state` means that the file was lost: the epochs in the log have been used.
        self.epoch = LeaderEpoch(
            max(state.epoch, log.latest_epoch, *(snapshot.epoch for snapshot in snapshots))
        )
        self._disk = disk
        self._node_id = node_id
        self._directory_id = directory_id
        self._voters = voters
        self._log_dir = log_dir
        self._continuations = continuations
        self._trace = trace
        self._leading: Leading | None = None
        self._is_voting = False
        self._is_elected = False
        self._is_syncing = False
        self.retry_at_us: Micros | None = None  # a full disk refused a write: when `tick` is wanted
        self._is_full = False  # and that was told
        self.recovery = RecoveryPoint(
            disk,
            log.directory,
            METADATA_PARTITION,
            continuations,
            written=self._recovery_point_written,
        )

    @classmethod
    def open(
        cls,
        disk: Disk,
        log_dir: str,
        settings: LogConfig,
        *,
        node_id: NodeId,
        directory_id: Uuid,
        voters: VoterSet,
        continuations: Continuations,
        trace: Trace,
        now: Instant,
    ) -> "RaftNode":
        """Open or begin the metadata log in `log_dir`. Raises StorageError, ElectionStateCorrupt, and
        LogDamaged.
        """
        directory = f"{log_dir}/{METADATA_PARTITION}"
        disk.make_directory(directory)
        metadata_path = f"{directory}/partition.metadata"
        is_identified = disk.read(metadata_path) is not None
        state_path = f"{directory}/{FILE_NAME}"
        state = parse(disk.read(state_path), state_path)
        snapshots = listed(disk, directory)
        cuts = Cuts(disk, lambda: [directory], now.wall_ms)
        log = _open_log(disk, directory, settings, now, snapshots[-1] if snapshots else None, cuts)
        for cut in cuts.made:
            trace("log-cut", partition=str(METADATA_PARTITION), **cut.fields)
        while snapshots and snapshots[0].offset < log.log_start_offset:
            disk.remove(f"{directory}/{file_name(snapshots.pop(0))}")  # useless without the next records
        if not is_identified:
            log.sync_with_next(disk.replace(metadata_path, _TOPIC_ID_FILE))
        return cls(
            disk,
            log,
            state,
            snapshots,
            node_id=node_id,
            directory_id=directory_id,
            voters=voters,
            log_dir=log_dir,
            continuations=continuations,
            trace=trace,
        )

    @property
    def directory_id(self) -> Uuid:
        """The directory of the log."""
        return self._directory_id

    @property
    def high_watermark(self) -> Offset:
        """All records below it are committed; 0 until a leadership has committed its first record."""
        return Offset(0) if self._leading is None else self._leading.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self.log.log_end_offset

    @property
    def is_leader(self) -> bool:
        """Whether this node leads and so may append."""
        return self.role is Role.LEADER

    @property
    def is_quiet(self) -> bool:
        """Whether no sync or job is pending, except for writes that wait for free space."""
        return not self._is_syncing and not self._is_voting and self.recovery.is_quiet

    def tick(self, now: Instant) -> None:
        """Retry writes that a full disk refused, and write the recovery point if it is due."""
        if self.retry_at_us is not None and self.retry_at_us <= now.mono_us:
            self.retry_at_us = None
            if self.role is not Role.CANDIDATE:
                self.flush(now)
            elif self._is_elected:
                self._lead(now)
            else:
                self._vote(now)
        if self.is_leader:
            self.recovery.begin_due(self.log.recovery_point, now)

    def deadline(self) -> Micros | None:
        """The time of the next call of `tick`."""
        return earlier(self.retry_at_us, self.recovery.deadline()) if self.is_leader else self.retry_at_us

    def campaign(self, now: Instant) -> None:
        """Become a candidate in the next epoch: the vote for itself goes to disk first."""
        self._become(Role.CANDIDATE)
        self.epoch = LeaderEpoch(self.epoch + 1)
        self._vote(now)

    def _vote(self, now: Instant) -> None:
        # On disk before anything is done in the epoch: a crash must not let us vote twice in it (KIP-595).
        state = ElectionState(epoch=self.epoch, voted_id=self._node_id, voted_directory_id=self._directory_id)
        try:
            file = self._written(
                lambda: self._disk.replace(f"{self.log.directory}/{FILE_NAME}", state.render())
            )
        except StorageError as error:
            self._refused(error, now)
            return
        self._is_voting = True
        self._continuations.sync([file], self._log_dir, self._voted)

    def append(self, batch: bytearray, now: Instant) -> Offset:
        """Append a leader's batch and return its base offset; `flush` makes it durable. Raises StorageError,
        and then nothing has changed.
        """
        assert self._leading is not None
        assert self.is_leader
        return self._written(lambda: self.log.append_own(batch, self.epoch, now)).base_offset

    def flush(self, now: Instant) -> None:
        """Start a sync of appended records; if one is in flight, the next one follows it."""
        if self._is_syncing or not self.is_leader or self.log.recovery_point >= self.log_end_offset:
            return
        try:
            files, end_offset = self._written(self.log.begin_sync)
        except StorageError as error:
            self._refused(error, now)
            return
        self._is_full = False
        self._is_syncing = True
        self._continuations.sync(files, self._log_dir, partial(self._synced, end_offset))

    def _recovery_point_written(self, error: StorageError | None, now: Instant) -> None:
        if error is not None and error.is_full:
            self.recovery.moved(now)  # the previous one stays true
        elif error is not None and self.role is not Role.HALTED:
            self.halt(error)

    def _voted(self, error: StorageError | None, now: Instant) -> None:
        """The vote is on disk, and elects this node."""
        self._is_voting = False
        if error is not None:
            self.halt(error)
            return
        assert self._voters.majority == 1, "votes of others are not asked for yet"
        self._is_elected = True
        self._lead(now)

    def _synced(self, end_offset: Offset, error: StorageError | None, now: Instant) -> None:
        """The records below `end_offset` count from now on."""
        self._is_syncing = False
        if self.role is Role.HALTED:
            return
        if error is not None:
            self.halt(error)
            return
        self.log.synced(end_offset)
        self.recovery.moved(now)
        if self._leading is not None:
            self._leading.voter_synced(self._node_id, end_offset)
        assert self.high_watermark <= self.log_end_offset
        self.flush(now)

    def read(self, start: Offset, limit: Offset) -> Iterator[bytes]:
        """The batches of `[start, limit)` in pieces of whole batches, after checking each checksum. Raises
        LogDamaged, StorageError.

        A replay is the only time at which the whole log is read, and the image is built from it.
        """
        position = start
        while position < limit:
            piece = self.log.read(position, limit, _READ_BYTES, at_least_one=True)
            if piece is None:
                raise self._damaged(
                    self.log.directory, None, f"there is no batch with offset {position}", position, limit
                )
            batches = piece.read()
            path = next(segment.file.path for segment in self.log.segments.all if segment.file is piece.file)
            try:
                found = scan.headers(batches, True)
            except ValueError as error:
                sound = scan.headers(memoryview(batches)[: error.args[1]], False)
                end, due = (
                    (0, position) if not sound else (_end_at(*sound[-1]), Offset(sound[-1][1].next_offset))
                )
                raise self._damaged(
                    path, piece.position + end, f"{error.args[2]} in the batch with offset {due}", due, limit
                ) from None
            if not found:
                raise self._damaged(
                    path,
                    piece.position,
                    f"no whole batch with offset {position} begins there",
                    position,
                    limit,
                )
            due = Offset(min(position, found[0][1].base_offset))  # a snapshot may end within a batch
            for at, header in found:
                if header.base_offset != due:
                    raise self._damaged(
                        path,
                        piece.position + at,
                        f"a batch of offset {header.base_offset} where {due} was due",
                        due,
                        limit,
                    )
                due = Offset(header.base_offset + header.last_offset_delta + 1)
            yield batches
            position = due

    def _damaged(self, path: str, position: int | None, what: str, start: Offset, end: Offset) -> LogDamaged:
        recovery_point = self.log.recovery_point
        return LogDamaged(
            path,
            what,
            position=position,
            start=start,
            end=end,
            recovery_point=recovery_point,
            log_dir=self._log_dir,
        )

    def load_snapshot(self) -> Snapshot | None:
        """The newest sound snapshot from which the log continues, if there is one; damaged ones are set
        aside.

        Raises LogDamaged if no remaining snapshot reaches the log start, and StorageError.
        """
        damaged: list[tuple[OffsetAndEpoch, SnapshotDamaged]] = []
        found: Snapshot | None = None
        directory, log_start = self.log.directory, self.log.log_start_offset
        for snapshot in reversed(self.snapshots):
            try:
                found = read_snapshot(self._disk, directory, snapshot)
                break
            except SnapshotDamaged as error:
                damaged.append((snapshot, error))
        if log_start > (0 if found is None else found.id.offset):
            path, reason = (
                (damaged[0][1].path, damaged[0][1].reason) if damaged else (directory, "no snapshot is there")
            )
            what = f"{reason}. The log begins at offset {log_start}, so a snapshot that reaches it is needed: restore it from a copy"  # noqa: E501
            raise self._damaged(path, None, what, Offset(0 if found is None else found.id.offset), log_start)
        for snapshot, damage in damaged:
            kept = set_damaged_aside(self._disk, directory, snapshot)
            self.snapshots.remove(snapshot)
            self._trace(
                "metadata-snapshot-damaged", path=kept, position=damage.position, reason=damage.reason
            )
        return found

    def halt(self, error: StorageError) -> None:
        """Stop for good: the disk of the metadata log is unreliable."""
        self._trace("metadata-log-failed", path=error.path, call=error.call, reason=error.reason)
        self._is_syncing = self._is_voting = False
        self.retry_at_us = None
        self._become(Role.HALTED)
        self._continuations.effects.append(
            Halt(f"the metadata log cannot be kept: {error}" + (f" ({error.remedy})" if error.remedy else ""))
        )

    def close(self, now: Instant) -> None:
        """Close the log; cleanly unless the node was halted or the disk refuses, in which case the next start
        recovers it.
        """
        is_halted = self.role is Role.HALTED
        self._become(Role.CLOSED)
        try:
            self.log.close(None if is_halted else now)
            self.recovery.stop()
            if not is_halted:
                write_recovery_point(
                    self._disk, self.log.directory, METADATA_PARTITION, self.log.log_end_offset
                )
                leave_mark(self._disk, self.log.directory, METADATA_PARTITION, self.log.log_end_offset)
        except StorageError as error:
            self._trace(
                "metadata-log-not-closed-cleanly", path=error.path, call=error.call, reason=error.reason
            )
            self.log.close()

    def _lead(self, now: Instant) -> None:
        """Append the first record of the epoch, without which no older record can be committed."""
        start = self.log_end_offset
        granted = [voter for voter in self._voters.listed() if voter.voter_id == self._node_id]
        # Version 0 while kraft.version is 0: Kafka's own tools cannot read version 1.
        change = LeaderChange(
            version=0, leader_id=self._node_id, voters=self._voters.listed(), granting_voters=granted
        )
        try:
            self._written(
                lambda: self.log.append_own(build_control(change, timestamp_ms=now.wall_ms), self.epoch, now)
            )
        except StorageError as error:
            self._refused(error, now)
            return
        self._become(Role.LEADER)
        self._leading = Leading(self.epoch, start, self._voters, high_watermark=Offset(0))

    def _written(self, write: Callable[[], _Result]) -> _Result:
        """The result of `write`; on a full disk, half the ballast is freed for it. Raises StorageError, and
        then nothing has changed.
        """
        return ballast.written(
            self._disk, self._log_dir, write, lambda: self._trace("disk-ballast-halved", path=self._log_dir)
        )

    def _refused(self, error: StorageError, now: Instant) -> None:
        """The disk refused a write: retry later if it is full, else halt."""
        if not error.is_full:
            self.halt(error)
            return
        if not self._is_full:
            self._is_full = True
            self._trace("metadata-log-awaits-room", path=error.path, call=error.call, reason=error.reason)
        self.retry_at_us = Micros(now.mono_us + _RETRY_US)

    def _become(self, role: Role) -> None:
        assert role in LEGAL[self.role], f"{self.role.name} → {role.name}"
        self.role = role
        self._trace("raft-role", node=self._node_id, role=role.value, epoch=self.epoch)


def _open_log(
    disk: Disk, directory: str, settings: LogConfig, now: Instant, newest: OffsetAndEpoch | None, cuts: Cuts
) -> PartitionLog:
    """Open the log as its last stop left it; after an unclean stop, scan it from its recovery point.

    Raises StorageError, and LogDamaged if durable records are missing; the mark of a clean stop then stays.
    """
    end_offset = read_mark(disk, directory, METADATA_PARTITION)
    snapshot_end = Offset(0) if newest is None else newest.offset
    is_begun = any(name.endswith(LOG_SUFFIX) for name in disk.list(directory))
    open_as = partial(
        PartitionLog.open,
        disk,
        directory,
        METADATA_PARTITION,
        METADATA_TOPIC_ID,
        settings,
        now=now,
        recovery_point=max(
            end_offset or Offset(0), snapshot_end, read_recovery_point(disk, directory, METADATA_PARTITION)
        ),
        log_start_offset=Offset(0) if is_begun else snapshot_end,
        is_metadata=True,
        cuts=cuts,
    )
    log = open_as(was_clean=end_offset is not None)
    if end_offset is not None and log.log_end_offset != end_offset:
        # The log does not end at the marked offset (other files, or a later append): recover from the lower
        # one.
        log.close()
        log = open_as(was_clean=False)
    disk.remove(*log.leftovers)  # the snapshots define the log start
    remove_mark(disk, directory)
    return log


def _end_at(position: int, header: BatchHeader) -> int:
    """The end of the batch at `position`."""
    return position + header.size
