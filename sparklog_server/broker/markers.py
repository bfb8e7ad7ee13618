"""Markers: the control batches that end a transaction in each partition it wrote to, COMMIT or ABORT.

    Markers.write ─┬─► a partition of records ─► appended ─► parked until the high watermark has passed it ─┐
                   └─► a partition of offsets ─► its group shard, in the order of its own batches ──────────┴─► `done`, once, with all

The transaction coordinator of this broker writes by the same door as WriteTxnMarkers, which another broker or an administrator sends.
"""

from collections.abc import Callable, Mapping

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant, TopicPartition
from sparklog_server.broker.context import Context

Outcomes = Mapping[TopicPartition, ErrorCode]
Done = Callable[[Outcomes, Instant], None]
"""Told once, within a turn, when the fate of the marker is known in every partition; it may be told before `write` returns."""


class TxnMarker(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one transaction. `transaction_version` 2 and above says that the epoch is one above the transaction's (KIP-890)."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


class Markers:
    """Writes markers to the partitions that this node leads."""

    def write(self, context: Context, marker: TxnMarker, done: Done, now: Instant) -> None:
        """Append the marker to each of its partitions, and tell `done` what became of it there.

        NONE tells that it is committed; NOT_LEADER_OR_FOLLOWER and the other codes that may be tried again, that it must be;
        UNKNOWN_TOPIC_OR_PARTITION that the partition is not here; INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED that a newer
        transaction, or coordinator, was there before.
        """
        done(dict.fromkeys(marker.partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER), now)
