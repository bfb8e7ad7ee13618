"""Connects the transaction coordinator, which decides when markers are due, to the writer of markers."""

from functools import partial

from sparklog.model import Instant
from sparklog_server.broker.context import Context
from sparklog_server.broker.markers import Markers, TxnMarker
from sparklog_server.broker.transaction_coordinator import MarkersDone, WriteMarkers
from sparklog_server.coordinator.txn.events import MarkersDue


def marker_writer(context: Context) -> WriteMarkers:
    """The port through which the coordinator ends transactions in the partitions of this node."""
    return partial(_write, context, Markers())


def _write(
    context: Context,
    markers: Markers,
    due: MarkersDue,
    coordinator_epoch: int,
    done: MarkersDone,
    now: Instant,
) -> None:
    marker = TxnMarker(
        producer_id=due.producer_id,
        producer_epoch=due.producer_epoch,
        is_commit=due.is_commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=due.transaction_version,
        partitions=due.partitions,
    )
    markers.write(context, marker, done, now)
