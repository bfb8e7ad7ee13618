"""The log of one partition: append, read, look up, sync, truncate.

    log start offset ≤ recovery point ≤ log end offset          segments: sealed … sealed, active
         |  durable       |  written, not synced |

Single-threaded. No method waits for a sync: `begin_sync` returns the files to sync, and the caller reports
the result to `synced`. A failed write changes nothing, so the same append may be tried again.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from sparklog.effects import FileSlice
from sparklog.errors import ErrorCode
from sparklog.kernels import scan
from sparklog.model import Instant, LeaderEpoch, Millis, Offset, OffsetAndEpoch, TopicPartition, Uuid
from sparklog.record.batch import NO_TIMESTAMP, TRANSACTIONAL_BIT, BatchHeader
from sparklog_server.disk.door import Disk, DiskFile, StorageError, discard
from sparklog_server.disk.removal import Removal
from sparklog_server.log.cleaning.retention import count_deletable, set_aside
from sparklog_server.log.producers.ongoing_transactions import NONE_ENDED, OngoingTransactions
from sparklog_server.log.producers.producer_state import MANY, FrozenProducers, ProducerState, Verification
from sparklog_server.log.producers.validate import (
    RecordsRefused,
    Sent,
    admitted,
    check_leaders_batches,
    stamp_own_batches,
)
from sparklog_server.log.recovery.cuts import Cuts
from sparklog_server.log.recovery.log_loader import Checkpointed, Recovered, recover
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE, LeaderEpochCache
from sparklog_server.log.segment.segment import RELATIVE_OFFSET_MAX, SNAPSHOT_SUFFIX, Segment, file_name
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX, AbortedTxn

from .log_config import LogConfig
from .segments import (
    NO_CUT,
    NOT_KNOWN,
    Segments,
    Unsynced,
    must_roll,
    remove_stale_snapshots,
    rolls_after_ms,
    whole_that_fit,
)
from .truncation import Restart, Truncation

if TYPE_CHECKING:
    from sparklog_server.log.lookup.time_lookup import TimeSearch

__all__ = ["AppendResult", "LogConfig", "OffsetOutOfRange", "PartitionLog", "RecordsRefused"]

_ANY_EPOCH = LeaderEpoch((1 << 31) - 1)
_TAIL_BYTES_MAX = 512
"""The last batch is kept in memory up to here: the codec kernel copies as much into a response."""
_SWEPT_BY_RETENTION = 20_000
"""The number of producers that one check of retention examines: two milliseconds."""
_NO_SNAPSHOT = Offset(-1)
_NOTHING_CHECKPOINTED: Final = Checkpointed()


class AppendResult(msgspec.Struct, gc=False, frozen=True):
    """The offsets of an appended batch, `[base_offset, last_offset]`, closed. `log_append_time_ms` is -1
    where producers set the time.
    """

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    is_duplicate: bool


class OffsetOutOfRange(Exception):
    """The requested offset is below the log start offset or beyond the log end offset."""


class PartitionLog:
    """The batches of one partition.

    Invariants: the active segment has its indexes in memory; offsets below `recovery_point` are durable.

    One class, as Kafka's UnifiedLog is: each append, sync and truncation moves the log start offset, the
    recovery point, the log end offset, the epochs and the producers together, or none of them. What needs
    fewer of these is elsewhere: segments and their files, producers, transactions, searches and the jobs.
    """

    __slots__ = (
        "_disk",
        "_index_entries_near_full",
        "_is_rendering",
        "_opened_ms",
        "_producers",
        "_rolls_after_ms",
        "_settings",
        "_snapshot_offset",
        "_tail",
        "_transactions",
        "_unsynced",
        "directory",
        "epochs",
        "first_dirty_offset",
        "frozen",
        "holes",
        "is_closed",
        "leftovers",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        settings: LogConfig,
        found: Recovered,
        now: Instant,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.log_start_offset = found.log_start_offset
        self.log_end_offset = found.log_end_offset
        self.recovery_point = found.recovery_point
        self.epochs: LeaderEpochCache = found.epochs
        self.holes = found.holes
        self.leftovers = found.leftovers
        self.is_closed = False
        self.first_dirty_offset = found.log_start_offset
        self._disk = disk
        self._opened_ms = now.wall_ms
        self.segments = Segments(disk, found.segments)
        self._producers: ProducerState = found.producers
        self._transactions = OngoingTransactions(found.producers, found.unreplicated)
        self._snapshot_offset = found.snapshot_offset
        self.frozen: tuple[Offset, FrozenProducers] | None = None  # for the snapshot of the next roll
        self._is_rendering = False
        self._tail: tuple[Offset, bytes] | None = None  # the last batch, if it is small
        self._unsynced = Unsynced([file for file in found.unsynced if file is not self.segments.active.file])
        self.settings = settings

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        settings: LogConfig,
        known: Checkpointed = _NOTHING_CHECKPOINTED,
        *,
        now: Instant,
        cuts: Cuts | None = None,
    ) -> "PartitionLog":
        """Open the log in an existing directory, or create one there; recovers it after a crash (`recover`).

        Raises StorageError, and LogDamaged if durable records are missing.
        """
        found = recover(disk, directory, settings, known, now_ms=now.wall_ms, cuts=cuts)
        return cls(disk, directory, topic_partition, topic_id, settings, found, now)

    @property
    def settings(self) -> LogConfig:
        """The settings of the log: may be replaced at any time, and apply from the next append on."""
        return self._settings

    @settings.setter
    def settings(self, settings: LogConfig) -> None:
        self._settings = settings
        # The number of offset index entries bounds both indexes; a time index entry takes 12 bytes, and Kafka
        # keeps one in reserve.
        self._index_entries_near_full = settings.segment_index_bytes // 12 - 1
        self._rolls_after_ms = NOT_KNOWN

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return sum(segment.file.size for segment in self.segments.all)

    # -- append

    def append(
        self, records: Sent, leader_epoch: LeaderEpoch, now: Instant, proof: Verification | None = None
    ) -> AppendResult:
        """Validate a client's batch, stamp its offset and epoch in place, and append it; `proof` belongs to
        the first batch of a transaction.

        Raises RecordsRefused and StorageError.
        """
        assert not self.segments.is_cutting
        settings = self._settings
        batch, header, max_timestamp = admitted(records, settings, now.wall_ms)
        has_producer = header.producer_id >= 0
        append_time = now.wall_ms if settings.timestamp_type == "LogAppendTime" else NO_TIMESTAMP
        if has_producer:
            known = self._producers.check(header, proof, settings.verifies_transactions)
            if known is not None:
                append_time = known[4] if append_time >= 0 else NO_TIMESTAMP
                return AppendResult(
                    Offset(known[2]), Offset(known[3]), append_time, self.log_start_offset, True
                )
        base_offset = self.log_end_offset
        last_offset: Offset = base_offset + header.last_offset_delta  # type: ignore[assignment]  # a call of `Offset` takes as long as any other
        active = self._segment_for(len(batch), base_offset, last_offset, max_timestamp, now)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        scan.stamp(batch, base_offset, leader_epoch)
        active.append(batch, last_offset, max_timestamp, settings.index_interval_bytes)
        self.log_end_offset = last_offset + 1  # type: ignore[assignment]
        self._tail = (base_offset, bytes(batch)) if len(batch) <= _TAIL_BYTES_MAX else None
        if has_producer:
            self._producers.appended(header, base_offset, max_timestamp, now.wall_ms)
            if header.attributes & TRANSACTIONAL_BIT:
                self._transactions.began(header.producer_id, base_offset)
            if len(self._producers.producers) >= MANY:
                self._producers.expire_some(now.wall_ms, settings.producer_id_expiration_ms)
        return AppendResult(base_offset, last_offset, append_time, self.log_start_offset, False)

    def append_own(self, batches: bytearray, leader_epoch: LeaderEpoch, now: Instant) -> AppendResult:
        """Append batches of this broker: offsets and epoch are stamped in place, without validation. Appends
        all or none.
        """
        view = memoryview(batches)
        base_offset = self.log_end_offset
        found = stamp_own_batches(view, base_offset, leader_epoch)
        self._append_whole(view, found, now)
        return AppendResult(
            base_offset, Offset(self.log_end_offset - 1), NO_TIMESTAMP, self.log_start_offset, False
        )

    def append_as_follower(
        self,
        records: memoryview | bytearray | bytes,
        now: Instant,
        *,
        epoch_max: LeaderEpoch = _ANY_EPOCH,
    ) -> AppendResult | None:
        """Append batches of a leader with their offsets and epochs; an incomplete last batch is left out, and
        so are a batch above `epoch_max` and all behind it (KAFKA-18723). None if no batch is left.

        Raises RecordsRefused (CORRUPT_MESSAGE) for a CRC that does not match, or for offsets below the log
        end offset.
        """
        view = memoryview(records)
        found = check_leaders_batches(view, self.log_end_offset, epoch_max)
        if not found:
            return None
        self._append_whole(view, found, now)
        return AppendResult(
            Offset(found[0][1].base_offset),
            Offset(self.log_end_offset - 1),
            NO_TIMESTAMP,
            self.log_start_offset,
            False,
        )

    def _append_whole(self, view: memoryview, found: list[tuple[int, BatchHeader]], now: Instant) -> None:
        """Write batches with their offsets set, in one write per segment. Writes all of them or changes
        nothing.
        """
        assert not self.segments.is_cutting
        settings = self._settings
        while found:
            begin, first = found[0]
            size, count, max_timestamp = whole_that_fit(found, settings.segment_bytes)
            batches, found = found[:count], found[count:]
            last = batches[-1][1]
            last_offset = last.base_offset + last.last_offset_delta
            active = self._segment_for(size, Offset(first.base_offset), last_offset, max_timestamp, now)
            ended = self._transactions.judge(view, batches)
            at, files = self.segments.write(view[begin : begin + size], first.base_offset, ended.aborted)
            self._tail = None
            self._unsynced.files += files
            if count > 1:  # the age of a new segment is that of its first batch, not of all
                self._rolls_after_ms = NOT_KNOWN
            for position, header in batches:
                if header.leader_epoch > self.epochs.latest:
                    self.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
                active.index_batch(at + position - begin, header, settings.index_interval_bytes)
                if header.producer_id >= 0:
                    self._producers.appended(header, header.base_offset, header.max_timestamp, now.wall_ms)
            if ended is not NONE_ENDED:
                self._transactions.ended(ended, self._producers)
            self.log_end_offset = Offset(last_offset + 1)

    def _segment_for(
        self, size: int, base_offset: Offset, last_offset: int, max_timestamp: int, now: Instant
    ) -> Segment:
        """The active segment, after a roll if Kafka would roll before these bytes."""
        active, settings = self.segments.active, self._settings
        if (
            active.file.size + size <= settings.segment_bytes
            and last_offset - active.base_offset <= RELATIVE_OFFSET_MAX
            and max_timestamp <= self._rolls_after_ms
            and len(active.index.offsets) < self._index_entries_near_full  # type: ignore[union-attr]
        ):
            return active
        if size > settings.segment_bytes:
            message = f"The batch of {size} bytes exceeds segment.bytes = {settings.segment_bytes}."
            raise RecordsRefused(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        if must_roll(
            active, settings, size, last_offset, max_timestamp, opened_ms=self._opened_ms, now_ms=now.wall_ms
        ):
            self._roll(base_offset, now)
        self._rolls_after_ms = rolls_after_ms(self.segments.active, settings, max_timestamp)
        return self.segments.active

    def _roll(self, base_offset: Offset, now: Instant) -> None:
        """Seal the active segment and begin a new one at `base_offset`. Raises StorageError, and then nothing
        has changed.
        """
        segments = self.segments
        sealed = segments.active
        if base_offset == sealed.base_offset:
            return
        files = sealed.save_indexes()
        is_saved = len(self._producers.producers) < MANY
        try:
            if is_saved:
                files.append(self._save_producers(base_offset, now))
            segments.roll(self.directory, base_offset, now)
        except StorageError:
            discard(self._disk, files)
            raise
        segments.places.forget(self.log_end_offset)
        self._unsynced.files += [sealed.file, *files]
        self._rolls_after_ms = NOT_KNOWN
        if is_saved:
            self._snapshot_offset = base_offset
        elif self.frozen is None:  # Otherwise this roll has no snapshot: recovery begins with an older one.
            self.frozen = base_offset, self._producers.freeze()

    def producers_to_render(self) -> FrozenProducers | None:
        """The producers as of the last roll, to be rendered by a job for `producers_rendered`. Each roll is
        returned once, one at a time.
        """
        if self.frozen is None or self._is_rendering:
            return None
        self._is_rendering = True
        return self.frozen[1]

    def producers_rendered(self, frozen: FrozenProducers, content: bytes) -> DiskFile | None:
        """Write the snapshot of those producers if the log still needs it; returns the file to sync. Raises
        StorageError.
        """
        self._is_rendering = False
        if self.frozen is None or self.frozen[1] is not frozen or self.is_closed:
            return None
        offset, self.frozen = self.frozen[0], None
        file = self._disk.replace(f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}", content)
        self._unsynced.files.append(file)
        self._snapshot_offset = max(self._snapshot_offset, offset)
        return file

    def _save_producers(self, offset: Offset, now: Instant) -> DiskFile:
        """Write the snapshot of the producers before `offset` to a temporary file."""
        self._producers.expire(now.wall_ms, self._settings.producer_id_expiration_ms)
        return self._disk.replace(
            f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}", self._producers.render()
        )

    # -- read

    def read(self, start: Offset, limit: Offset, max_bytes: int, *, at_least_one: bool) -> FileSlice | None:
        """The whole batches of `[start, limit)`, from the one that holds `start`, in one segment and in at
        most `max_bytes`.

        With `at_least_one` the first batch is returned even if it is larger. None if no batch fits or exists.
        Raises OffsetOutOfRange.
        """
        end_offset = self.log_end_offset
        if limit > end_offset:
            limit = end_offset
        if start >= limit or start < self.log_start_offset:
            if start < self.log_start_offset or start > end_offset:
                raise OffsetOutOfRange(
                    f"{self.topic_partition}: {start} is not in [{self.log_start_offset}, {end_offset}]"
                )
            return None
        return self.segments.places.slice(start, limit, end_offset, max_bytes, at_least_one=at_least_one)

    def tail(self, start: Offset) -> bytes | None:
        """The last batch, if it begins at `start` and was small when it was appended: a follower that waits
        for it needs no read of the file. None: see `read`.
        """
        tail = self._tail
        return tail[1] if tail is not None and tail[0] == start else None

    def holds_beyond(self, part: FileSlice, limit: Offset) -> bool:
        """Whether batches below `limit` follow a slice that `read` returned for that limit."""
        return self.segments.places.holds_beyond(part, limit)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The last stable offset. The high watermark must not decrease between two calls, except to the end
        of the log that a truncation leaves.
        """
        stable = self._transactions.last_stable_offset(high_watermark)
        return stable if stable >= high_watermark else max(stable, min(self.log_start_offset, high_watermark))

    def aborted_transactions(self, start: Offset, limit: Offset) -> list[AbortedTxn]:
        """The aborted transactions with records in `[start, limit)`, which must be stable. May read index
        files. Raises StorageError.
        """
        return self.segments.aborted_in(start, limit)

    def aborted_within(self, part: FileSlice, start: Offset, limit: Offset) -> list[AbortedTxn]:
        """The aborted transactions in a slice of `read`, for a reader from `start` on. Raises
        StorageError.
        """
        return self.segments.aborted_within(part, start, limit)

    # -- look up

    def time_search(self, timestamp: Millis | None, limit: Offset) -> "TimeSearch":
        """The search for the first record below `limit` at or after `timestamp`; with None, for the record
        with the latest timestamp. A job runs it.
        """
        from sparklog_server.log.lookup.time_lookup import TimeSearch

        return TimeSearch(self._disk, self.segments.all, timestamp, start=self.log_start_offset, limit=limit)

    # -- leader epochs

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest epoch assigned; -1 if there is none."""
        return self.epochs.latest

    def assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Let `epoch` begin at `start_offset`. The entry becomes durable with the next sync; no record of the
        epoch is acknowledged before.
        """
        self.epochs.assign(epoch, start_offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> OffsetAndEpoch:
        """The greatest epoch not above `epoch`, and its end offset; (-1, -1) if it is not known (KIP-101)."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    # -- sync

    @property
    def has_sealed_unsynced(self) -> bool:
        """Whether a segment was sealed since the last sync. It should be synced soon, even if no request
        waits: recovery scans unsynced segments.
        """
        return len(self.segments.sealed) > 0

    def sync_with_next(self, file: DiskFile) -> None:
        """Add `file` to the next sync."""
        self._unsynced.files.append(file)

    def begin_sync(self) -> tuple[list[DiskFile], Offset]:
        """The files to sync, in this order, and the log end offset that becomes durable. One sync at a time:
        call `synced` before the next.

        Raises StorageError, and then nothing has changed.
        """
        epoch_file = (
            None
            if self.epochs.is_saved
            else self._disk.replace(f"{self.directory}/{EPOCH_FILE}", self.epochs.render())
        )
        files = self._unsynced.begin()
        self.segments.begin_settling()
        active = self.segments.active
        files.append(active.file)
        if epoch_file is not None:
            # Last: if there are epochs, recovery takes the first segment that exists for the first of the
            # log.
            files.append(epoch_file)
            self.epochs.is_saved = True
        self.segments.places.remember(self.log_end_offset, active, active.file.size)
        return files, self.log_end_offset

    def synced(self, end_offset: Offset) -> None:
        """Note that the files of the last `begin_sync` are durable, and with them every record below
        `end_offset` that was not truncated since.

        Raises StorageError; the log then takes no more appends.
        """
        cut_to = self._unsynced.end()
        if not self.segments.is_restarting:  # else the files are still those of the old log
            self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset, cut_to))
        self.segments.settle()
        if cut_to != NO_CUT:
            remove_stale_snapshots(self._disk, self.directory, self.segments.all, self._snapshot_offset)

    # -- compaction

    @property
    def snapshot_offset(self) -> Offset:
        """The offset of the newest producer snapshot."""
        return self._snapshot_offset

    @property
    def producers(self) -> ProducerState:
        """The producer states, for reading and for checks of transactions."""
        return self._producers

    # -- moves between data directories

    @property
    def is_syncing(self) -> bool:
        """Whether a sync of the log's files is in progress."""
        return self._unsynced.is_syncing

    def move_active(self, directory: str, durable_end: Offset) -> None:
        """Continue in the copy in another directory, which is complete, and durable below `durable_end`; the
        sealed segments follow.

        Raises StorageError, and then nothing has changed.
        """
        assert not self._unsynced.is_syncing
        assert not self.is_truncating
        self.segments.move_active(directory)
        self.directory = directory
        active = self.segments.active
        self._unsynced.files = [self._disk.open(active.path(TXN_INDEX_SUFFIX))] if active.has_aborted else []
        self.recovery_point = min(self.recovery_point, durable_end)
        self.epochs.is_saved = False
        self._snapshot_offset = _NO_SNAPSHOT

    # -- retention

    def move_log_start(self, offset: Offset) -> bool:
        """Raise the log start offset to `offset`, which must not exceed the high watermark; retention removes
        segments that lie entirely below it.

        False if the log start offset is at `offset` or above already.
        """
        if offset <= self.log_start_offset:
            return False
        assert offset <= self.log_end_offset
        self.log_start_offset = offset
        self.epochs.truncate_start(offset)
        return True

    def retire(self, high_watermark: Offset, now: Instant) -> Callable[[], Removal] | None:
        """Remove the segments beyond retention from the log; returns the job of `set_aside`, or None.
        Raises StorageError.

        Only committed and durable segments are removed. An active segment beyond retention is rolled now,
        and removed by the first call after the next sync.
        """
        if self.is_closed or self.segments.is_swapping or self.is_truncating:
            return None
        self._producers.expire(now.wall_ms, self._settings.producer_id_expiration_ms, _SWEPT_BY_RETENTION)
        segments = self.segments.all
        count = count_deletable(
            segments,
            self._settings,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            limit=min(high_watermark, self.recovery_point),
            opened_ms=self._opened_ms,
            now_ms=now.wall_ms,
        )
        if count == len(segments):
            try:
                self._roll(self.log_end_offset, now)
            except StorageError as error:
                if not error.is_full:
                    raise  # otherwise only the sealed segments go, which frees space
        count = min(count, len(self.segments.settled))
        if count == 0:
            return None
        # The log start offset first: no reader may look for the removed segments.
        self.move_log_start(segments[count].base_offset)
        retired = self.segments.retire(count)
        return partial(set_aside, self._disk, self.directory, [segment.base_offset for segment in retired])

    # -- truncate and close

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation has begun whose `truncated` call is still to come: the log takes no
        appends.
        """
        return self.segments.is_cutting

    def batch_start(self, offset: Offset) -> Offset:
        """The base offset of the batch that has `offset`: a truncation removes it whole. `offset` itself if
        no batch has it. Raises StorageError.
        """
        return self.segments.batch_start(offset) if offset < self.log_end_offset else offset

    def begin_truncation(self, offset: Offset) -> Truncation | None:
        """Remove every batch with an offset of `offset` or above from the log. Returns the job that removes
        them from the disk, None if there are none; `truncated` follows. Raises StorageError.

        An epoch that begins at `offset` or above is removed even then: the leader would answer a fetch of
        that epoch as diverging each time. The next sync saves the epochs.
        """
        if offset >= self.log_end_offset:
            self.epochs.truncate_end(offset)
            return None
        truncation = self.segments.begin_cut(offset, self.log_start_offset)
        self._begin_truncation(truncation.cut_offset)
        self.log_start_offset = min(self.log_start_offset, truncation.cut_offset)
        return truncation

    def begin_restart(self, offset: Offset, now: Instant) -> Restart:
        """Remove every batch from the log, which becomes empty with `offset` as its start. Returns the job
        that does so on the disk; `truncated` follows. Raises StorageError.
        """
        restart = self.segments.begin_restart(self.directory, offset, now)
        self._begin_truncation(Offset(0))
        self.log_start_offset = self.log_end_offset = offset
        return restart

    def _begin_truncation(self, end_offset: Offset) -> None:
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        self.log_end_offset = end_offset
        self.recovery_point = min(self.recovery_point, end_offset)
        self.epochs.truncate_end(end_offset)
        self._unsynced.cut(end_offset, self.segments.active.base_offset)
        self._rolls_after_ms = NOT_KNOWN
        self._tail = self.frozen = None

    def truncated(self, truncation: Truncation | Restart) -> None:
        """Apply the result of the job of a truncation: the log takes appends again. Raises StorageError."""
        if self.is_closed:
            return
        known = self._producers
        if isinstance(truncation, Restart):
            self.segments.restarted(truncation)
            self._producers, self._snapshot_offset = ProducerState(), truncation.offset
            self.recovery_point = self.first_dirty_offset = truncation.offset
            self._opened_ms = Millis(self.segments.active.created_ms)
        else:
            self.log_end_offset = self.segments.cut(truncation)
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self._producers, self._snapshot_offset = truncation.producers, truncation.snapshot_offset
        self._producers.keep_times_of(known)
        unreplicated = (one for one in self._transactions.unreplicated if one[1] < self.log_end_offset)
        self._transactions = OngoingTransactions(self._producers, unreplicated)

    def begin_close(self, now: Instant) -> list[DiskFile]:
        """The files to sync before `close`, so that the next open needs no scan: data, indexes, epochs,
        producers.
        """
        assert not self.is_truncating
        files, _ = self.begin_sync()
        files += self.segments.active.save_indexes()
        if self.log_end_offset > self._snapshot_offset:
            files.append(self._save_producers(self.log_end_offset, now))
            self._snapshot_offset = self.log_end_offset
        return files

    def close(self, now: Instant | None = None) -> None:
        """Close the files. With `now` the stop is clean: everything is synced first, so that the next open
        needs no scan. Slices stay readable.
        """
        if self.is_closed:
            return
        if now is not None:
            files = self.begin_close(now)
            self._disk.sync(files)
            self.synced(self.log_end_offset)
        self.is_closed = True
        for segment in self.segments.all:
            segment.close()
