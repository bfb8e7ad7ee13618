"""Connects the transaction coordinator, which decides when markers are due, to the writer of markers, and to
the brokers that lead the other partitions.
"""

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId, TopicPartition
from sparklog_server.broker.context import Context
from sparklog_server.broker.coordinators.transaction_coordinator_service import MarkersDone, WriteMarkers
from sparklog_server.coordinator.txn.events import MarkersDue
from sparklog_server.metadata.entries import NO_NODE

if TYPE_CHECKING:
    from sparklog_server.broker.coordinators.txn_marker import Outcomes


def marker_writer(context: Context) -> WriteMarkers:
    """The port through which the coordinator ends transactions in the partitions of this node."""
    return partial(_write, context)


def _write(
    context: Context,
    due: MarkersDue,
    coordinator_epoch: int,
    done: MarkersDone,
    now: Instant,
) -> None:
    # At their only use: a start ends no transaction.
    from sparklog_server.broker.coordinators.markers import Markers
    from sparklog_server.broker.coordinators.txn_marker import TxnMarker

    markers = Markers()
    marker = TxnMarker(
        producer_id=due.producer_id,
        producer_epoch=due.producer_epoch,
        is_commit=due.is_commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=due.transaction_version,
        partitions=due.partitions,
    )
    own = NodeId(context.settings.node_id)
    by_leader: dict[NodeId, list[TopicPartition]] = {}
    for topic_partition in due.partitions:
        by_leader.setdefault(_leader_of(context, topic_partition, own), []).append(topic_partition)
    if by_leader.keys() <= {own}:
        markers.write(context, marker, done, now)
        return
    gathering = _Gathering(len(by_leader), done)
    for node, partitions in by_leader.items():
        part = msgspec.structs.replace(marker, partitions=tuple(partitions))
        if node == own:
            markers.write(context, part, gathering.written, now)
        else:
            context.transaction_peers().mark(node, part, gathering.written, now)


def _leader_of(context: Context, topic_partition: TopicPartition, own: NodeId) -> NodeId:
    """The leader of a partition; this broker for one without, because it tells the error."""
    placement = context.image.partition(topic_partition)
    return own if placement is None or placement.leader == NO_NODE else placement.leader


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
