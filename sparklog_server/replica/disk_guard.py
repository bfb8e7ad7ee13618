"""The disk under one partition: each StorageError of its log is caught here, each append counted.

    call      error            effect                               the request gets KAFKA_STORAGE_ERROR
    append    disk full        none: earlier records stay served    with the message of the disk
    read      any              the partition goes offline           without a message
    other     any              its log directory goes offline       without a message

As in Kafka, a write or sync that fails takes the whole log directory offline. A read that fails takes only
this partition offline.
"""

from collections.abc import Callable
from typing import Protocol

from sparklog.effects import FileSlice
from sparklog.errors import ErrorCode
from sparklog.model import Instant, LeaderEpoch, Offset, TopicPartition
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.removal import Removal
from sparklog_server.log.lookup.aborted import IndexReading
from sparklog_server.log.lookup.places import BrokenFrame
from sparklog_server.log.partition_log import AppendResult, PartitionLog
from sparklog_server.log.producers.producer_state import Verification
from sparklog_server.log.producers.validate import Sent
from sparklog_server.log.segment.txn_index import AbortedTxn
from sparklog_server.replica.disk_reserve import DiskReserve
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.traffic import TopicTraffic


class DirectoryDisk(Protocol):
    """The log directory of a partition, for errors of its disk."""

    room: DiskReserve

    def storage_failed(self, error: StorageError) -> None:
        """Take every partition of the directory offline, including the caller's."""

    def frame_broken(self, topic_partition: TopicPartition, broken: BrokenFrame) -> None:
        """Report bytes that are no batch; the partition stays online."""


class DiskGuard:
    """Access to the log of one partition; raises PartitionUnavailable in place of StorageError.

    `directory` follows the partition when it moves to another log directory. `unreadable` takes the
    partition offline alone.
    """

    __slots__ = ("_log", "_take_offline", "directory", "traffic")

    def __init__(
        self,
        log: PartitionLog,
        directory: DirectoryDisk,
        unreadable: Callable[[StorageError], None],
        traffic: TopicTraffic,
    ) -> None:
        self._log = log
        self.traffic = traffic
        self.directory = directory
        self._take_offline = unreadable

    def append(
        self, records: Sent, leader_epoch: LeaderEpoch, now: Instant, proof: Verification | None
    ) -> AppendResult:
        """Append a client's batch. Raises PartitionUnavailable or RecordsRefused."""
        try:
            result = self._log.append(records, leader_epoch, now, proof)
        except StorageError as error:
            raise self._not_appended(error, now) from error
        traffic = self.traffic
        traffic.produce_requests += 1
        if not result.is_duplicate:
            traffic.bytes_in += len(records)
            traffic.records_in += result.last_offset - result.base_offset + 1
        return result

    def append_own(self, batch: bytearray, leader_epoch: LeaderEpoch, now: Instant) -> AppendResult:
        """Append a batch that this broker built. Raises PartitionUnavailable."""
        try:
            result = self._log.append_own(batch, leader_epoch, now)
        except StorageError as error:
            raise self._not_appended(error, now) from error
        self.traffic.bytes_in += len(batch)
        self.traffic.records_in += result.last_offset - result.base_offset + 1
        return result

    def append_as_follower(
        self, records: memoryview | bytearray | bytes, leader_epoch: LeaderEpoch, now: Instant
    ) -> AppendResult | None:
        """Append the batches that the leader of `leader_epoch` has sent; None if no batch is complete. Raises
        PartitionUnavailable or RecordsRefused.
        """
        try:
            result = self._log.append_as_follower(records, now, epoch_max=leader_epoch)
        except StorageError as error:
            raise self._not_appended(error, now) from error
        if result is not None:
            self.traffic.replication_bytes_in += len(records)
        return result

    def read(self, start: Offset, limit: Offset, bytes_max: int, *, at_least_one: bool) -> FileSlice | None:
        """Whole batches of `[start, limit)`; None if there are none. Raises PartitionUnavailable,
        OffsetOutOfRange or BrokenFrame.
        """
        try:
            return self._log.read(start, limit, bytes_max, at_least_one=at_least_one)
        except BrokenFrame as broken:
            # The damage is in one file: the other segments of the log stay readable.
            self.directory.frame_broken(self._log.topic_partition, broken)
            raise
        except StorageError as error:
            raise self.unreadable(error) from error

    def holds_beyond(self, part: FileSlice, limit: Offset) -> bool:
        """Whether the log has batches below `limit` after those that `read` returned. Raises
        PartitionUnavailable.
        """
        try:
            return self._log.holds_beyond(part, limit)
        except StorageError as error:
            raise self.unreadable(error) from error

    def aborted_within(self, part: FileSlice, start: Offset, limit: Offset) -> list[AbortedTxn]:
        """The aborted transactions that overlap the batches that `read` returned. Raises
        PartitionUnavailable.
        """
        try:
            return self._log.aborted_within(part, start, limit)
        except StorageError as error:
            raise self.unreadable(error) from error

    def learn(self, reading: IndexReading) -> None:
        """Keep the transaction index that a job has read, unless the log was closed meanwhile: its paths may
        belong to another log. Raises PartitionUnavailable.
        """
        if self._log.is_closed:
            return
        try:
            reading.learn()
        except StorageError as error:
            raise self.unreadable(error) from error

    def retire(self, high_watermark: Offset, now: Instant) -> Callable[[], Removal] | None:
        """Remove the segments beyond retention from the log; returns the job that renames their files.
        Raises PartitionUnavailable.
        """
        try:
            return self._log.retire(high_watermark, now)
        except StorageError as error:
            raise self._failed(error) from error

    def synced(self, end_offset: Offset) -> None:
        """Mark the records below `end_offset` durable. Raises PartitionUnavailable."""
        try:
            self._log.synced(end_offset)
        except StorageError as error:
            raise self._failed(error) from error

    def unreadable(self, error: StorageError) -> PartitionUnavailable:
        """Take this partition offline, because a file of its log cannot be read; returns the exception to
        raise.
        """
        self._take_offline(error)
        return PartitionUnavailable(ErrorCode.KAFKA_STORAGE_ERROR)

    def storage_failed(self, error: StorageError) -> None:
        """Take this partition offline if a read failed, else its log directory."""
        if error.call == "read":
            self._take_offline(error)
        else:
            self.directory.storage_failed(error)

    def _failed(self, error: StorageError) -> PartitionUnavailable:
        self.storage_failed(error)
        return PartitionUnavailable(ErrorCode.KAFKA_STORAGE_ERROR)

    def _not_appended(self, error: StorageError, now: Instant) -> PartitionUnavailable:
        """The exception for a failed append. An append that a full disk refused has written nothing."""
        if not error.is_full:
            return self._failed(error)
        room = self.directory.room
        room.ran_out(error, now)
        return PartitionUnavailable(
            ErrorCode.KAFKA_STORAGE_ERROR, room.refusal if room.is_full else f"{error}."
        )
