"""The batches of transactions that a leader appends: those of coordinators on this broker, and markers."""

from sparklog.model import Instant
from sparklog.record.batch import read_header
from sparklog.record.control import Marker, build_marker
from sparklog_server.log.partition_log import AppendResult
from sparklog_server.log.producers.producer_state import Verification
from sparklog_server.replica.partition import Partition


def append_in_transaction(
    partition: Partition, batch: bytearray, now: Instant, proof: Verification | None
) -> AppendResult:
    """Append a batch that a coordinator of this broker writes in a producer's transaction. Raises
    PartitionUnavailable or RecordsRefused.
    """
    leader, log = partition.leader_for(-1), partition.log
    log.producers.check_proof(read_header(batch), proof, is_verified=log.settings.verifies_transactions)
    return partition.append_own(batch, leader, now)


def append_marker(
    partition: Partition,
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    is_bumped: bool,
    now: Instant,
) -> AppendResult:
    """Append the end of a producer's transaction; with `is_bumped` its epoch is above the transaction's
    (KIP-890).

    Raises PartitionUnavailable, or RecordsRefused: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED.
    """
    leader = partition.leader_for(-1)
    partition.log.producers.check_marker(
        producer_id, producer_epoch, marker.coordinator_epoch, is_bumped=is_bumped
    )
    batch = build_marker(
        marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now.wall_ms
    )
    return partition.append_own(batch, leader, now)


def begin_verification(
    partition: Partition,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    *,
    adds_partitions: bool,
    now: Instant,
) -> Verification | None:
    """The verification that a batch of this transaction needs from the coordinator; None if the transaction
    is open here.

    Raises PartitionUnavailable, or RecordsRefused (INVALID_PRODUCER_EPOCH).
    """
    partition.leader_for(-1)
    return partition.log.producers.begin_verification(
        producer_id, producer_epoch, sequence, adds_partitions=adds_partitions, now_ms=now.wall_ms
    )
