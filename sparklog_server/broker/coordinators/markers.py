"""Markers: the control batches that end a transaction in each partition it wrote to, COMMIT or ABORT.

    Markers.write ─┬─► partition of records ─► appended ─► waits until the high watermark passes it ─┐
                   └─► partition of offsets ─► its group shard, in the order of its own batches ─────┤
                                                                                                     ▼
                                                                       `done`, once, with all partitions

The transaction coordinator of this broker writes through the same method as WriteTxnMarkers, which another
broker or an administrator sends. No marker is written to another internal topic: its coordinator is the only
writer there, and no transaction has records in it.
"""

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Offset, TopicPartition
from sparklog.record.control import ControlType, Marker
from sparklog.wire.schema import Message
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards
from sparklog_server.broker.coordinators.txn_marker import Done, TxnMarker
from sparklog_server.broker.session import Wakeable
from sparklog_server.coordinator.placement import INTERNAL_TOPICS, OFFSETS_TOPIC
from sparklog_server.log.producers.validate import RecordsRefused
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.replica_manager import ReplicaManager
from sparklog_server.replica.transactional import append_marker

_BUMPED_SINCE = 2
_NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
"""What a group shard that is not up to date says; a transaction coordinator knows NOT_LEADER_OR_FOLLOWER,
and tries again.
"""


class Markers:
    """Writes markers to the partitions that this node leads."""

    def __init__(
        self, partitions: ReplicaManager, groups: CoordinatorShards, woken: dict[Wakeable, None]
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._woken = woken

    def write(self, marker: TxnMarker, done: Done, now: Instant) -> None:
        """Append the marker to each of its partitions, and call `done` with the result of each.

        NONE: the marker is committed. NOT_LEADER_OR_FOLLOWER and other retriable codes: retry.
        UNKNOWN_TOPIC_OR_PARTITION: the partition is not on this node. INVALID_TOPIC_EXCEPTION: it holds no
        transactions. INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED: a newer transaction or
        coordinator has written there.
        """
        writing = _Writing(marker.partitions, done, self._woken)
        for topic_partition in dict.fromkeys(marker.partitions):
            partition = self._partitions.find(*topic_partition)
            if partition is None:
                writing.known(topic_partition, self._partitions.absence(*topic_partition), now)
            elif topic_partition.topic == OFFSETS_TOPIC:
                share = _OffsetsShare(writing, topic_partition)
                code = self._groups.runtime.end_transaction(
                    topic_partition.partition,
                    _control(marker),
                    (marker.producer_id, marker.producer_epoch),
                    is_bumped=marker.transaction_version >= _BUMPED_SINCE,
                    token=share,
                    now=now,
                )
                if self._groups.runtime.has_failed(topic_partition.partition):
                    # The transaction is ended in the log, so that the producer goes on.
                    _append(writing, partition, marker, now)
                elif code is not ErrorCode.NONE:
                    share.refused(code)
            elif topic_partition.topic in INTERNAL_TOPICS:
                writing.known(topic_partition, ErrorCode.INVALID_TOPIC_EXCEPTION, now)
            else:
                _append(writing, partition, marker, now)
        writing.begun(now)


def _control(marker: TxnMarker) -> Marker:
    return Marker(ControlType.COMMIT if marker.is_commit else ControlType.ABORT, marker.coordinator_epoch)


def _append(writing: "_Writing", partition: Partition, marker: TxnMarker, now: Instant) -> None:
    """Append to a partition of records."""
    code = ErrorCode.NONE
    try:
        if not partition.has_enough_in_sync:
            raise PartitionUnavailable(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = append_marker(
            partition,
            _control(marker),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            is_bumped=marker.transaction_version >= _BUMPED_SINCE,
            now=now,
        )
    except (PartitionUnavailable, RecordsRefused) as refused:
        code = refused.code
    else:
        if partition.high_watermark <= result.last_offset:
            # Ours: clients that wait here in great numbers shall not keep transactions from their ends. A
            # marker each is all there is.
            until = Offset(result.last_offset + 1)
            partition.park(until, _Share(writing, partition), is_ours=True)
            return
    writing.known(partition.topic_partition, code, now)


class _Writing:
    """One marker on its way; invariant: `done` is told once, after the last outcome."""

    __slots__ = ("_done", "_is_begun", "_missing", "_outcomes", "woken")

    def __init__(
        self, partitions: tuple[TopicPartition, ...], done: Done, woken: dict[Wakeable, None]
    ) -> None:
        self.woken = woken
        self._missing = dict.fromkeys(partitions)
        self._outcomes: dict[TopicPartition, ErrorCode] = {}
        self._done = done
        self._is_begun = False

    def known(self, topic_partition: TopicPartition, code: ErrorCode, now: Instant) -> None:
        """The result of the marker in one partition."""
        del self._missing[topic_partition]
        self._outcomes[topic_partition] = code
        if self._is_begun and not self._missing:
            self._done(self._outcomes, now)

    def begun(self, now: Instant) -> None:
        """Every partition was asked."""
        self._is_begun = True
        if not self._missing:
            self._done(self._outcomes, now)


class _Share:
    """A marker in one partition of records, parked until the high watermark has passed it."""

    __slots__ = ("_leader", "_partition", "_writing")

    call = None

    def __init__(self, writing: _Writing, partition: Partition) -> None:
        self._writing = writing
        self._partition = partition
        self._leader = partition.leader

    def released(self) -> None:
        self._writing.woken[self] = None

    def woken(self, now: Instant) -> None:
        """The marker is committed, or the leadership has ended."""
        self._writing.known(self._partition.topic_partition, self._partition.loss_of(self._leader), now)


class _OffsetsShare:
    """A marker in one partition of offsets, as a token of its group shard, which replies when the marker
    is committed.
    """

    __slots__ = ("_code", "_topic_partition", "_writing")

    call = None

    def __init__(self, writing: _Writing, topic_partition: TopicPartition) -> None:
        self._writing = writing
        self._topic_partition = topic_partition
        self._code = ErrorCode.NONE

    def answered(self, reply: Message) -> None:
        """It is committed."""
        self._writing.woken[self] = None

    def refused(self, code: ErrorCode) -> None:
        """The marker was not written, or its commit is uncertain."""
        self._code = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_READY else code
        self._writing.woken[self] = None

    def woken(self, now: Instant) -> None:
        self._writing.known(self._topic_partition, self._code, now)
