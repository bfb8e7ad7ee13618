"""One partition on this node: its log, its leadership, and who waits for it.

    online ── a file that cannot be read, or its log directory failed ──► offline      (final until the process starts again)
       └──── deleted by the metadata ────► closed

This is the one place where the disk's fault is caught, and every waiting request learns of it. A write or
sync that fails takes the whole directory offline, as in Kafka; a read that fails, only this partition. A
full disk takes nothing offline.
"""  # noqa: E501

from collections.abc import Callable
from typing import Protocol

from sparklog.effects import FileSlice
from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, Millis, NodeId, Offset, TopicPartition
from sparklog.record.batch import read_header
from sparklog.record.control import Marker, build_marker
from sparklog_server.disk.door import DiskFile, StorageError
from sparklog_server.log.aborted import IndexReading
from sparklog_server.log.answers import BrokenFrame
from sparklog_server.log.log_config import INT64_MAX, LogConfig
from sparklog_server.log.partition_log import AppendResult, PartitionLog
from sparklog_server.log.removal import Removal
from sparklog_server.log.time_lookup import Found, TimeSearch
from sparklog_server.log.txn_index import AbortedTxn
from sparklog_server.log.validate import RecordsRefused, Sent
from sparklog_server.log.verification import Verification
from sparklog_server.replica.disk_reserve import DiskReserve
from sparklog_server.replica.leader import LeaderReplica
from sparklog_server.replica.purgatory import Purgatory

HIGH_WATERMARK = -1
"""The offset by which DeleteRecords asks for all that is committed."""
LINGER_US = 10_000
"""How long appended records may stay unsynced while nobody waits for them."""


class PartitionUnavailable(Exception):
    """The partition cannot serve: `code` says why (offline, not the leader, gone, no room), and `message`
    more, if there is more to say.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name)
        self.code = code
        self.message = message


class Home(Protocol):
    """What a partition needs of the directory it lives in."""

    is_congested: bool  # producers wait: too many bytes are not synced
    room: DiskReserve

    def mark_dirty(
        self, partition: "Partition", size: int, now: Instant, *, within_us: int = LINGER_US
    ) -> None:
        """`partition` has `size` more bytes of records that are not durable yet, and should be `within_us`
        from now.
        """

    def hurry(self) -> None:
        """Somebody waits for what is dirty now."""

    def log_start_moved(self, now: Instant, *, is_awaited: bool) -> None:
        """A log start is to be written down: at once if somebody waits for it."""

    def storage_failed(self, error: StorageError) -> None:
        """The disk refused: every partition of the directory goes offline, the caller's too."""

    def partition_failed(self, partition: "Partition", error: StorageError) -> None:
        """A file of the partition cannot be read: it goes offline alone."""

    def frame_broken(self, topic_partition: TopicPartition, broken: BrokenFrame) -> None:
        """A read met bytes that no batch can begin with; the partition stays online."""


class Partition:
    """Log, leadership and purgatory of one partition.

    Invariants: log start ≤ high watermark ≤ log end; a record below the high watermark is committed by the
    rule of `sparklog.ack.flush`; an offline partition has no leader and parks nobody.
    """

    __slots__ = (
        "_awaits_log_start",
        "_flush_messages",
        "_flush_us",
        "_is_held",
        "_released",
        "_syncing_start",
        "_waits_for_sync",
        "durable_epochs_start",
        "durable_log_start",
        "error",
        "home",
        "in_sync_min",
        "keeps_codec",
        "leader",
        "log",
        "purgatory",
        "room",
        "topic_partition",
    )

    def __init__(self, log: PartitionLog, home: Home, *, parked_max: int, released: list[object]) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.log = log
        self.leader: LeaderReplica | None = None
        self.purgatory = Purgatory(parked_max)
        self.error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._released = released
        self.home = home
        self.room = home.room
        self._waits_for_sync = True
        self._is_held = False  # the high watermark stands still
        self.in_sync_min = 1
        self.durable_log_start = log.log_start_offset
        self.durable_epochs_start = self._syncing_start = Offset(
            0
        )  # on disk the leader epochs begin there or later
        self._awaits_log_start: list[tuple[Offset, object]] = []
        self.settings = log.settings

    @property
    def settings(self) -> LogConfig:
        """The settings of the log, and when it is synced though nobody waits."""
        return self.log.settings

    @settings.setter
    def settings(self, settings: LogConfig) -> None:
        self.log.settings = settings
        self._flush_messages = settings.flush_messages
        self.keeps_codec = settings.compression_type == "producer"  # what a client sent is stored as it is
        self._flush_us = settings.flush_ms * 1000 if settings.flush_ms < INT64_MAX else None

    # -- leadership

    def lead(
        self,
        leader_epoch: LeaderEpoch,
        *,
        followers: tuple[NodeId, ...],
        isr: tuple[NodeId, ...],
        high_watermark: Offset,
        waits_for_sync: bool,
        now: Instant,
    ) -> None:
        """Become the leader in `leader_epoch`, starting from the high watermark known to be safe."""
        if self.error is ErrorCode.KAFKA_STORAGE_ERROR:
            return
        log = self.log
        self._waits_for_sync = waits_for_sync
        # Of a former life only what is durable is shown, where that is the rule; what this life has shown it
        # takes not back.
        safe = min(high_watermark, log.recovery_point if waits_for_sync else log.log_end_offset)
        start = min(max(safe, self.high_watermark), log.log_end_offset)
        self.leader = LeaderReplica(leader_epoch, followers=followers, isr=isr, high_watermark=start, now=now)
        self.error = ErrorCode.NONE
        log.assign_epoch(leader_epoch, log.log_end_offset)
        self._own_end_moved(log.recovery_point if waits_for_sync else log.log_end_offset)
        if waits_for_sync and log.recovery_point < log.log_end_offset:
            self.home.mark_dirty(self, 0, now)

    def wait_for_sync(self, is_wanted: bool, now: Instant) -> None:
        """Whether a record counts as committed only once it is synced, from now on; what was committed
        before stays so.
        """
        if self.leader is None or self._waits_for_sync == is_wanted:
            return
        self._waits_for_sync = is_wanted
        if not is_wanted:
            self._own_end_moved(self.log.log_end_offset)
        elif self.log.recovery_point < self.log.log_end_offset:
            self.home.mark_dirty(self, 0, now)

    def leader_for(self, claimed_epoch: int) -> LeaderReplica:
        """The leadership, if a peer that believes in `claimed_epoch` (-1: none claimed) may use it. Raises
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

    # -- watermarks

    @property
    def high_watermark(self) -> Offset:
        """The end of what is committed; the log start while there is no leader."""
        return self.leader.high_watermark if self.leader is not None else self.log.log_start_offset

    @property
    def is_alone(self) -> bool:
        """Whether what is committed depends on this node's disk alone: no follower is in sync."""
        return self.leader is not None and not self.leader.in_sync_followers

    @property
    def promised_end(self) -> Offset:
        """The high watermark as Kafka has it: it does not wait for the disk, so where no follower is in
        sync it is the log end.
        """
        return self.log.log_end_offset if self.is_alone else self.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The end of what a read-committed reader may see."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be promised: the ISR, this leader included, has `min.insync.replicas`
        members.
        """
        return self.leader is None or 1 + len(self.leader.in_sync_followers) >= self.in_sync_min

    # -- waiting

    def park(self, until: Offset, token: object, *, is_ours: bool = False) -> None:
        """Hand `token` back when the high watermark reaches `until`. Raises PurgatoryFull, but not for
        what the broker itself waits for.
        """
        self.purgatory.park(until, token, is_ours=is_ours)
        self._hurry()

    def watch(self, token: object) -> int:
        """Hand `token` back at the next move of the high watermark, once. Returns the key for `unwatch`.
        Raises PurgatoryFull.
        """
        key = self.purgatory.watch(token)
        self._hurry()
        return key

    def _hurry(self) -> None:
        if self._waits_for_sync and self.log.recovery_point < self.log.log_end_offset:
            self.home.hurry()

    # -- append, read and sync

    def append(self, records: Sent, now: Instant, proof: Verification | None = None) -> AppendResult:
        """Append a client's batch as leader; `proof` is for what opens a transaction. Raises
        PartitionUnavailable or RecordsRefused.
        """
        leader = self.leader
        if leader is None:
            raise PartitionUnavailable(self.error)
        try:
            result = self.log.append(records, leader.leader_epoch, now, proof)
        except StorageError as error:
            raise self._not_written(error, now) from error
        self._appended(len(records), now)
        return result

    def append_in_transaction(
        self, batch: bytearray, now: Instant, proof: Verification | None
    ) -> AppendResult:
        """Append as leader what a coordinator of this broker writes in a producer's transaction. Raises as
        `append` does.
        """
        leader = self.leader_for(-1)
        log = self.log
        log.producers.check_own(read_header(batch), proof, is_verified=log.settings.verifies_transactions)
        return self._append_own(batch, leader, now)

    def append_marker(
        self, marker: Marker, *, producer_id: int, producer_epoch: int, is_bumped: bool, now: Instant
    ) -> AppendResult:
        """Append as leader the end of a producer's transaction; `is_bumped` tells that its epoch is above
        the transaction's (KIP-890).

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
        try:
            result = self.log.append_own(batch, leader.leader_epoch, now)
        except StorageError as error:
            raise self._not_written(error, now) from error
        self._appended(len(batch), now)
        return result

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, adds_partitions: bool, now: Instant
    ) -> Verification | None:
        """What a coordinator must prove before a batch of this transaction is appended; None if nothing:
        it is open here.

        Raises PartitionUnavailable, or RecordsRefused (INVALID_PRODUCER_EPOCH).
        """
        self.leader_for(-1)
        producers = self.log.producers
        return producers.begin_verification(
            producer_id, producer_epoch, sequence, adds_partitions=adds_partitions, now_ms=now.wall_ms
        )

    def aborted_within(self, part: FileSlice, start: Offset, limit: Offset) -> list[AbortedTxn]:
        """The aborted transactions that a reader from `start` on may meet in what `read` gave. Raises
        PartitionUnavailable.
        """
        try:
            return self.log.aborted_within(part, start, limit)
        except StorageError as error:
            raise self._unreadable(error) from error

    def index_reading(self, part: FileSlice, start: Offset, limit: Offset) -> IndexReading | None:
        """What is to be read beside the loop before `aborted_within` is asked the same; None if it answers
        from memory.
        """
        return self.log.segments.index_reading(part, start, limit)

    def learn(self, reading: IndexReading) -> None:
        """Keep what was read beside the loop. Raises PartitionUnavailable."""
        try:
            reading.learn()
        except StorageError as error:
            raise self._unreadable(error) from error

    def _appended(self, size: int, now: Instant) -> None:
        """`size` more bytes are in the log: have them synced in time, or count them as committed."""
        log = self.log
        if self._waits_for_sync:
            self.home.mark_dirty(self, size, now)
            if self.purgatory:
                self.home.hurry()
        else:
            if log.segments.sealed:
                self.home.mark_dirty(self, 0, now)  # no reply waits; this bounds what recovery scans
            elif self._flush_us is not None:
                self.home.mark_dirty(self, 0, now, within_us=self._flush_us)
            if log.log_end_offset - log.recovery_point >= self._flush_messages:
                self.home.mark_dirty(self, 0, now, within_us=0)
            self._own_end_moved(log.log_end_offset)

    def read(self, start: Offset, limit: Offset, bytes_max: int, *, at_least_one: bool) -> FileSlice | None:
        """Whole batches of `[start, limit)`; None if there are none. Raises PartitionUnavailable,
        OffsetOutOfRange or BrokenFrame.
        """
        try:
            return self.log.read(start, limit, bytes_max, at_least_one=at_least_one)
        except BrokenFrame as broken:
            # One file of one log: what can be found beside it is served on.
            self.home.frame_broken(self.topic_partition, broken)
            raise
        except StorageError as error:
            raise self._unreadable(error) from error

    def holds_beyond(self, part: FileSlice, limit: Offset) -> bool:
        """Whether batches below `limit` follow behind what `read` gave. Raises PartitionUnavailable."""
        try:
            return self.log.holds_beyond(part, limit)
        except StorageError as error:
            raise self._unreadable(error) from error

    def time_search(self, timestamp_ms: Millis | None, limit: Offset) -> TimeSearch:
        """The search for the first record below `limit` at or after `timestamp_ms`; with None, for the
        greatest timestamp (KIP-734).
        """
        return self.log.time_search(timestamp_ms, limit)

    def searched(
        self, search: TimeSearch, outcome: Found | RecordsRefused | StorageError | None
    ) -> Found | None:
        """What a search found that ran beside the loop and is current. Raises PartitionUnavailable."""
        self.leader_for(-1)
        if isinstance(outcome, StorageError):
            raise self._unreadable(outcome) from outcome
        if isinstance(outcome, RecordsRefused):
            raise PartitionUnavailable(outcome.code) from outcome
        search.learn()
        return outcome

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch in which the record at `offset` was written; -1 if unknown."""
        return self.log.epochs.epoch_at(offset)

    def begin_sync(self) -> tuple[list[DiskFile], Offset]:
        """The files to sync and the log end they will make durable. Raises StorageError."""
        syncing = self.log.begin_sync()
        self._syncing_start = self.log.log_start_offset
        return syncing

    def synced(self, end_offset: Offset) -> None:
        """Every record below `end_offset` is durable, but those that were cut and written anew meanwhile."""
        if self.error is ErrorCode.KAFKA_STORAGE_ERROR:
            return
        try:
            self.log.synced(end_offset)
        except StorageError as error:
            self.storage_failed(error)
            return
        self.durable_epochs_start = self._syncing_start
        if self._waits_for_sync:
            self._own_end_moved(self.log.recovery_point)

    # -- the log start

    def deletion_end(self, offset: int) -> Offset:
        """Where DeleteRecords of `offset` (-1: all that is promised) moves the log start, once that is
        committed.

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
        """Move the log start to `end`, which is committed. Raises PartitionUnavailable."""
        if end > self.leader_for(-1).high_watermark:
            raise PartitionUnavailable(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.move_log_start(end)

    def park_until_durable(self, log_start: Offset, token: object, now: Instant) -> None:
        """Hand `token` back when the log starts at `log_start` or beyond also after a crash, or the
        partition is gone.
        """
        self._awaits_log_start.append((log_start, token))
        self.home.log_start_moved(now, is_awaited=True)

    def log_start_written(self, log_start: Offset) -> None:
        """The checkpoint says that the log starts at `log_start`."""
        self.durable_log_start = max(self.durable_log_start, log_start)
        waiting, self._awaits_log_start = self._awaits_log_start, []
        for until, token in waiting:
            if until <= self.durable_log_start:
                self._released.append(token)
            else:
                self._awaits_log_start.append((until, token))

    def retire(self, now: Instant) -> Callable[[], Removal] | None:
        """Take what retention no longer keeps out of the log; gives the job that renames the files, which
        gives the one to remove them.
        """
        if self.error is ErrorCode.KAFKA_STORAGE_ERROR:
            return None
        log = self.log
        log_start = log.log_start_offset
        try:
            job = log.retire(self.high_watermark, now)
        except StorageError as error:
            self.storage_failed(error)
            return None
        if log.has_sealed_unsynced or job is not None:
            self.home.mark_dirty(
                self, 0, now
            )  # the files leave once the epochs on disk begin at the log start too
        if log.log_start_offset > log_start:
            self.home.log_start_moved(
                now, is_awaited=self.room.is_full
            )  # the files leave once it is written down
        return job

    def _own_end_moved(self, end_offset: Offset) -> None:
        leader = self.leader
        if leader is not None and not self._is_held and leader.own_end_moved(end_offset):
            self.purgatory.release(leader.high_watermark, self._released)

    def storage_failed(self, error: StorageError) -> None:
        """The disk refused: the directory goes offline; where it was a file of this log that cannot be
        read, this partition alone.
        """
        if error.call == "read":
            self.home.partition_failed(self, error)
        else:
            self.home.storage_failed(error)

    def _not_written(self, error: StorageError, now: Instant) -> PartitionUnavailable:
        """The disk refused an append; what to raise. For want of room nothing was written, and all that
        was before is served on.
        """
        if not error.is_full:
            return self._failed(error)
        self.room.ran_out(error, now)
        return PartitionUnavailable(
            ErrorCode.KAFKA_STORAGE_ERROR, self.room.refusal if self.room.is_full else f"{error}."
        )

    def _unreadable(self, error: StorageError) -> PartitionUnavailable:
        """A file of the log cannot be read: its neighbours serve on. What to raise."""
        self.home.partition_failed(self, error)
        return PartitionUnavailable(ErrorCode.KAFKA_STORAGE_ERROR)

    def _failed(self, error: StorageError) -> PartitionUnavailable:
        """The disk refused; what to raise to whoever asked."""
        self.storage_failed(error)
        return PartitionUnavailable(ErrorCode.KAFKA_STORAGE_ERROR)

    # -- moves between log directories

    def move_to(self, home: Home, now: Instant) -> None:
        """The log lies in another directory now. Until `moved` nothing more counts as committed: a crash
        could bring the old one back.
        """
        self.home = home
        self.room = home.room
        self._is_held = True
        home.mark_dirty(self, 0, now, within_us=0)
        home.hurry()
        home.log_start_moved(now, is_awaited=bool(self._awaits_log_start))

    def moved(self) -> None:
        """No crash brings the old log back."""
        self._is_held = False
        self._own_end_moved(self.log.recovery_point if self._waits_for_sync else self.log.log_end_offset)

    # -- endings

    def go_offline(self) -> None:
        """The disk failed: serve nothing more, and let everyone who waits know."""
        self._stop_leading(ErrorCode.KAFKA_STORAGE_ERROR)

    def close(self) -> None:
        """The partition is deleted from this node."""
        self._stop_leading(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.log.close()

    def _stop_leading(self, error: ErrorCode) -> None:
        self.leader = None
        self.error = error
        self.purgatory.release_all(self._released)
        self._released.extend(token for _, token in self._awaits_log_start)
        self._awaits_log_start.clear()
