"""Connects the transaction coordinator, which decides when markers are due, to the writer of markers, and to
the brokers that lead the other partitions.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId, TopicPartition
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards
from sparklog_server.broker.coordinators.transaction_coordinator_service import MarkersDone
from sparklog_server.broker.session import Wakeable
from sparklog_server.coordinator.txn.events import MarkersDue
from sparklog_server.metadata.entries import NO_NODE
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from sparklog_server.broker.coordinators.transaction_peers import TransactionPeers
    from sparklog_server.broker.coordinators.txn_marker import Outcomes


class MarkerChannels:
    """Implements `transaction_coordinator_service.WriteMarkers`: `write` ends transactions in partitions of
    this broker and of others.
    """

    def __init__(
        self,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        partitions: ReplicaManager,
        groups: CoordinatorShards,
        woken: dict[Wakeable, None],
        peers: "Callable[[], TransactionPeers]",
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._groups = groups
        self._woken = woken
        self._peers = peers

    def write(self, due: MarkersDue, coordinator_epoch: int, done: MarkersDone, now: Instant) -> None:
        """See `transaction_coordinator_service.WriteMarkers`."""
        # At their only use: a start ends no transaction.
        from sparklog_server.broker.coordinators.markers import Markers
        from sparklog_server.broker.coordinators.txn_marker import TxnMarker

        markers = Markers(self._partitions, self._groups, self._woken)
        marker = TxnMarker(
            producer_id=due.producer_id,
            producer_epoch=due.producer_epoch,
            is_commit=due.is_commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=due.transaction_version,
            partitions=due.partitions,
        )
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        for topic_partition in due.partitions:
            by_leader.setdefault(self._leader_of(topic_partition), []).append(topic_partition)
        if by_leader.keys() <= {self._node_id}:
            markers.write(marker, done, now)
            return
        gathering = _Gathering(len(by_leader), done)
        for node, partitions in by_leader.items():
            part = msgspec.structs.replace(marker, partitions=tuple(partitions))
            if node == self._node_id:
                markers.write(part, gathering.written, now)
            else:
                self._peers().mark(node, part, gathering.written, now)

    def _leader_of(self, topic_partition: TopicPartition) -> NodeId:
        """The leader of a partition; this broker for one without, because it tells the error."""
        placement = self._image().partition(topic_partition)
        return self._node_id if placement is None or placement.leader == NO_NODE else placement.leader


class _Gathering:
    """The results of one marker on several brokers. Invariant: `done` is called once, after the last."""

    __slots__ = ("_done", "_missing", "_outcomes")

    def __init__(self, missing: int, done: MarkersDone) -> None:
        self._missing = missing
        self._done = done
        self._outcomes: dict[TopicPartition, ErrorCode] = {}

    def written(self, outcomes: "Outcomes", now: Instant) -> None:
        """The results of one broker."""
        self._outcomes.update(outcomes)
        self._missing -= 1
        if not self._missing:
            self._done(self._outcomes, now)
