"""One replica on this node: its log, high watermark, log start offset and purgatory, which outlive its roles.

    IDLE ── placed: another broker leads ──► FOLLOWING ◄── placed ──► LEADING (one leader epoch)
      ▲                                          │                        │
      └─────────── no leader, offline, deleted ──┴────────────────────────┘

A role that ends releases every waiter. `disk` catches the errors of the disk, `durability` tracks the
offsets that survive a crash, and `role` and `leader` tell whether this replica serves clients. An offline
partition stays offline until the process restarts.
"""

from collections.abc import Callable
from typing import Protocol

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId, Offset, TopicPartition
from sparklog.record.batch import read_header
from sparklog.record.control import Marker, build_marker
from sparklog_server.disk.door import StorageError
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import AppendResult, PartitionLog
from sparklog_server.log.removal import Removal
from sparklog_server.log.time_lookup import Found, TimeSearch
from sparklog_server.log.validate import RecordsRefused, Sent
from sparklog_server.log.verification import Verification
from sparklog_server.metadata.entries import NO_NODE, PartitionImage
from sparklog_server.replica.disk_guard import DirectoryDisk, DiskGuard
from sparklog_server.replica.durability import LINGER_US, Durability
from sparklog_server.replica.leader import Following, LeaderReplica, Role
from sparklog_server.replica.purgatory import Purgatory, Waiter
from sparklog_server.replica.unavailable import PartitionUnavailable

HIGH_WATERMARK = -1
"""The offset by which DeleteRecords requests the deletion of all committed records."""
_ENDED = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The errors of a partition that takes no further role: it is offline, or deleted."""


class Home(DirectoryDisk, Protocol):
    """The log directory of a partition."""

    is_congested: bool  # too many bytes are unsynced: producers are paused

    def mark_dirty(
        self, partition: "Partition", size: int, now: Instant, *, within_us: int = LINGER_US
    ) -> None:
        """Sync `partition`, which has `size` more unsynced bytes, at most `within_us` from now."""

    def hurry(self) -> None:
        """Begin the next sync at once, since a request waits for it."""

    def log_start_moved(self, now: Instant, *, is_awaited: bool) -> None:
        """Write a checkpoint of the log starts: at once if a request waits for it."""

    def partition_failed(self, partition: "Partition", error: StorageError) -> None:
        """Take `partition` alone offline: a file of its log cannot be read."""


class Partition:
    """Log, high watermark, role and purgatory of one partition.

    Invariants: log start offset ≤ high watermark ≤ log end offset; the high watermark never moves back; a
    record below it is committed by the rule of `sparklog.ack.flush`; `leader` is `role` if this broker
    leads, else None, and `error` is NONE only then.
    """

    __slots__ = (
        "_is_held",
        "_node_id",
        "disk",
        "durability",
        "error",
        "high_watermark",
        "home",
        "in_sync_min",
        "keeps_codec",
        "leader",
        "log",
        "purgatory",
        "role",
        "topic_partition",
    )

    def __init__(
        self,
        log: PartitionLog,
        home: Home,
        *,
        node_id: NodeId,
        high_watermark: Offset,
        waits_for_sync: bool,
        parked_max: int,
    ) -> None:
        """`high_watermark` is the checkpointed one: of the records of an earlier process, only those
        acknowledged count as committed.
        """
        self.topic_partition: TopicPartition = log.topic_partition
        self.log = log
        self.home = home
        self.disk = DiskGuard(log, home, self._unreadable)
        self.durability = Durability(log, waits_for_sync=waits_for_sync)
        self.high_watermark = max(log.log_start_offset, min(high_watermark, self.durability.acknowledged_end))
        self.role: Role = None
        self.leader: LeaderReplica | None = None
        self.error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.purgatory = Purgatory(parked_max)
        self.in_sync_min = 1
        self._node_id = node_id
        self._is_held = False  # the high watermark does not move
        self.settings = log.settings

    @property
    def settings(self) -> LogConfig:
        """The settings of the log; flush.messages and flush.ms apply to its syncs."""
        return self.log.settings

    @settings.setter
    def settings(self, settings: LogConfig) -> None:
        self.log.settings = settings
        self.durability.configure(settings)
        self.keeps_codec = settings.compression_type == "producer"  # batches are stored as they are received

    # -- roles

    def placed(self, placement: PartitionImage, now: Instant) -> bool:
        """Take the role that the image assigns to this replica. Returns whether a leadership begins."""
        if self.error in _ENDED:
            return False
        if placement.leader != self._node_id:
            role: Following | None = None
            if placement.leader != NO_NODE:
                role = Following(placement.leader, placement.leader_epoch)
            if role != self.role:
                self._resign(ErrorCode.NOT_LEADER_OR_FOLLOWER, role)
            return False
        if self.leader is not None and self.leader.leader_epoch == placement.leader_epoch:
            return False
        self._resign(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        self._lead(placement, now)
        return True

    def _lead(self, placement: PartitionImage, now: Instant) -> None:
        self.role = self.leader = LeaderReplica(
            placement.leader_epoch,
            followers=tuple(replica for replica in placement.replicas if replica != self._node_id),
            isr=placement.isr,
            acknowledged_end=self.high_watermark,
            now=now,
        )
        self.error = ErrorCode.NONE
        self.log.assign_epoch(placement.leader_epoch, self.log.log_end_offset)
        self._own_end_moved()
        if self.durability.is_sync_awaited:
            self.home.mark_dirty(self, 0, now)

    def go_offline(self) -> None:
        """Serve no requests until the process restarts: the disk has failed."""
        self._resign(ErrorCode.KAFKA_STORAGE_ERROR, None)

    def close(self) -> None:
        """End the replica: the partition is deleted from this node."""
        self._resign(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        self.log.close()

    def _resign(self, error: ErrorCode, role: Following | None) -> None:
        """End the role, and release every waiter: each finds `error`, or another leadership."""
        self.role, self.leader, self.error = role, None, error
        self.purgatory.release_all()
        self.durability.release_all()

    def leader_for(self, claimed_epoch: int) -> LeaderReplica:
        """The leadership, for a peer that claims the leader epoch `claimed_epoch` (-1: none). Raises
        PartitionUnavailable.
        """
        leader = self.leader
        if leader is None:
            raise PartitionUnavailable(self.error)
        if claimed_epoch >= 0 and claimed_epoch != leader.leader_epoch:
            raise PartitionUnavailable(
                ErrorCode.FENCED_LEADER_EPOCH
                if claimed_epoch < leader.leader_epoch
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        return leader

    def loss_of(self, leader: LeaderReplica | None) -> ErrorCode:
        """The error of a request that began under `leader`; NONE while that leadership lasts.

        The high watermark outlives the leadership: after its end, an offset below it may name another record
        than the request means.
        """
        if leader is not None and self.leader is leader:
            return ErrorCode.NONE
        return self.error if self.leader is None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # -- watermarks

    @property
    def promised_end(self) -> Offset:
        """The high watermark as Kafka defines it, which does not wait for the disk: the log end offset if
        no follower is in sync.
        """
        is_alone = self.leader is not None and self.leader.is_alone
        return self.log.log_end_offset if is_alone else self.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The end of the records that read_committed consumers may see."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether the ISR, the leader included, has `min.insync.replicas` members, as acks=all requires."""
        return self.leader is None or 1 + len(self.leader.in_sync_followers) >= self.in_sync_min

    def wait_for_sync(self, waits_for_sync: bool, now: Instant) -> None:
        """Set whether a record is acknowledged only once it is synced; committed records stay committed."""
        durability = self.durability
        if durability.waits_for_sync == waits_for_sync:
            return
        durability.waits_for_sync = waits_for_sync
        self._own_end_moved()
        if durability.is_sync_awaited:
            self.home.mark_dirty(self, 0, now)

    def _own_end_moved(self) -> None:
        leader = self.leader
        if leader is None or self._is_held:
            return
        committed_end = leader.own_end_moved(self.durability.acknowledged_end)
        if committed_end > self.high_watermark:
            self.high_watermark = committed_end
            self.purgatory.release(committed_end)

    # -- waiting

    def park(self, until: Offset, waiter: Waiter, *, is_ours: bool = False) -> None:
        """Release `waiter` when the high watermark reaches `until`, or when the leadership ends: at once, if
        it has ended since the append. Raises PurgatoryFull, except where `is_ours` says that the broker
        itself waits.
        """
        if self.leader is None:
            waiter.released()
            return
        self.purgatory.park(until, waiter, is_ours=is_ours)
        if self.durability.is_sync_awaited:
            self.home.hurry()

    def watch(self, waiter: Waiter) -> int:
        """Release `waiter` at the next move of the high watermark, once, or when the role ends. Returns the
        key for `unwatch`. Raises PurgatoryFull.
        """
        key = self.purgatory.watch(waiter)
        if self.durability.is_sync_awaited:
            self.home.hurry()
        return key

    def park_until_durable(self, log_start: Offset, waiter: Waiter, now: Instant) -> None:
        """Release `waiter` when `log_start` survives a crash, or the role ends."""
        self.durability.park(log_start, waiter)
        self.home.log_start_moved(now, is_awaited=True)

    # -- append and sync

    def append(self, records: Sent, now: Instant, proof: Verification | None = None) -> AppendResult:
        """Append a client's batch as leader; `proof` is for a batch that opens a transaction. Raises
        PartitionUnavailable or RecordsRefused.
        """
        leader = self.leader
        if leader is None:
            raise PartitionUnavailable(self.error)
        result = self.disk.append(records, leader.leader_epoch, now, proof)
        self._appended(len(records), now)
        return result

    def append_in_transaction(
        self, batch: bytearray, now: Instant, proof: Verification | None
    ) -> AppendResult:
        """Append a batch that a coordinator of this broker writes in a producer's transaction. Raises
        PartitionUnavailable or RecordsRefused.
        """
        leader = self.leader_for(-1)
        log = self.log
        log.producers.check_own(read_header(batch), proof, is_verified=log.settings.verifies_transactions)
        return self._append_own(batch, leader, now)

    def append_marker(
        self, marker: Marker, *, producer_id: int, producer_epoch: int, is_bumped: bool, now: Instant
    ) -> AppendResult:
        """Append the end of a producer's transaction; with `is_bumped` its epoch is above the transaction's
        (KIP-890).

        Raises PartitionUnavailable, or RecordsRefused: INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED.
        """
        leader = self.leader_for(-1)
        self.log.producers.check_marker(
            producer_id, producer_epoch, marker.coordinator_epoch, is_bumped=is_bumped
        )
        batch = build_marker(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now.wall_ms
        )
        return self._append_own(batch, leader, now)

    def _append_own(self, batch: bytearray, leader: LeaderReplica, now: Instant) -> AppendResult:
        result = self.disk.append_own(batch, leader.leader_epoch, now)
        self._appended(len(batch), now)
        return result

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, adds_partitions: bool, now: Instant
    ) -> Verification | None:
        """The verification that a batch of this transaction needs from the coordinator; None if the
        transaction is open here.

        Raises PartitionUnavailable, or RecordsRefused (INVALID_PRODUCER_EPOCH).
        """
        self.leader_for(-1)
        return self.log.producers.begin_verification(
            producer_id, producer_epoch, sequence, adds_partitions=adds_partitions, now_ms=now.wall_ms
        )

    def _appended(self, size: int, now: Instant) -> None:
        """Have `size` appended bytes synced in time, and acknowledge them if that needs no sync."""
        durability = self.durability
        if durability.waits_for_sync:
            self.home.mark_dirty(self, size, now)
            if self.purgatory.heap or self.purgatory.watchers:
                self.home.hurry()
            return
        within_us = durability.sync_within_us()
        if within_us is not None:
            self.home.mark_dirty(self, 0, now, within_us=within_us)  # 0: no reply waits for this sync
        self._own_end_moved()

    def synced(self, end_offset: Offset) -> None:
        """A sync has made every record below `end_offset` durable, except those truncated since it began."""
        if self.error is ErrorCode.KAFKA_STORAGE_ERROR:
            return
        try:
            self.disk.synced(end_offset)
        except PartitionUnavailable:
            return
        self.durability.synced()
        if self.durability.waits_for_sync:
            self._own_end_moved()

    def searched(
        self, search: TimeSearch, outcome: Found | RecordsRefused | StorageError | None
    ) -> Found | None:
        """The result of a search by time that a job has run and that is still current. Raises
        PartitionUnavailable.
        """
        self.leader_for(-1)
        if isinstance(outcome, StorageError):
            raise self.disk.unreadable(outcome) from outcome
        if isinstance(outcome, RecordsRefused):
            raise PartitionUnavailable(outcome.code) from outcome
        search.learn()
        return outcome

    # -- the log start

    def deletion_end(self, offset: int) -> Offset:
        """The log start offset that DeleteRecords requests with `offset` (-1: the high watermark).

        Raises PartitionUnavailable: POLICY_VIOLATION for a compacted topic, OFFSET_OUT_OF_RANGE.
        """
        self.leader_for(-1)
        settings = self.log.settings
        if settings.is_compacted and not settings.is_deleted:
            raise PartitionUnavailable(ErrorCode.POLICY_VIOLATION)
        end = self.promised_end if offset == HIGH_WATERMARK else Offset(offset)
        if not 0 <= end <= self.promised_end:
            raise PartitionUnavailable(ErrorCode.OFFSET_OUT_OF_RANGE)
        return end

    def delete_records(self, end: Offset) -> None:
        """Raise the log start offset to `end`. Raises PartitionUnavailable, also if `end` is above the high
        watermark.
        """
        self.leader_for(-1)
        if end > self.high_watermark:
            raise PartitionUnavailable(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.move_log_start(end)

    def retire(self, now: Instant) -> Callable[[], Removal] | None:
        """Remove the segments beyond retention from the log; returns the job that renames their files,
        which returns the removal of those.
        """
        if self.error is ErrorCode.KAFKA_STORAGE_ERROR:
            return None
        log = self.log
        log_start = log.log_start_offset
        try:
            job = self.disk.retire(self.high_watermark, now)
        except PartitionUnavailable:
            return None
        if log.has_sealed_unsynced or job is not None:
            # The files are removed once the epochs on disk begin at the log start too.
            self.home.mark_dirty(self, 0, now)
        if log.log_start_offset > log_start:
            # The files are removed once the checkpoint has the log start.
            self.home.log_start_moved(now, is_awaited=self.home.room.is_full)
        return job

    # -- the log directory

    def _unreadable(self, error: StorageError) -> None:
        self.home.partition_failed(self, error)

    def move_to(self, home: Home, now: Instant) -> None:
        """Use the log in its new log directory. The high watermark does not move until `moved`, because a
        crash could restore the old log.
        """
        self.home = self.disk.directory = home
        self._is_held = True
        home.mark_dirty(self, 0, now, within_us=0)
        home.hurry()
        home.log_start_moved(now, is_awaited=self.durability.is_log_start_awaited)

    def moved(self) -> None:
        """Let the high watermark move again: a crash can no longer restore the old log."""
        self._is_held = False
        self._own_end_moved()
