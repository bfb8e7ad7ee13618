"""One batch on its way to a leader, the request that carries it, its result, and the line of batches of one
partition.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import msgspec

from sparklog.client.failures import BatchRefused, DeliveryFailed
from sparklog.errors import BrokerError, ErrorCode, SparklogError
from sparklog.model import NO_EPOCH, LeaderEpoch, Micros, NodeId, ProducerEpoch, ProducerId, TopicPartition
from sparklog.record.batch import decode_records
from sparklog.wire.messages.produce import PartitionProduceResponse, ProduceRequest

NO_PRODUCER_ID: Final = ProducerId(-1)
SEQUENCE_MASK: Final = (1 << 31) - 1
NOT_SENT: Final = -1
_NO_EPOCH: Final = ProducerEpoch(-1)
_AT_ONCE: Final = Micros(0)


class OutboundBatch(msgspec.Struct):
    """A whole batch and its sending state; `context` belongs to the caller."""

    topic_partition: TopicPartition
    records: bytearray
    record_count: int
    deadline: Micros
    context: object = None
    sequence: int = NOT_SENT
    attempts: int = 0
    leader_epoch: LeaderEpoch = NO_EPOCH  # of the leader that it was last sent to
    last_error: SparklogError | None = None
    split: "Split | None" = None  # of the batch that this one is a part of
    first: int = 0  # the index of its first record there


class Done(msgspec.Struct):
    """A finished batch: acknowledged at `base_offset` (-1: not returned), or given up with an error. A batch
    sent in parts has the offset of its first part, the first error, and the result of each part.
    """

    batch: OutboundBatch
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: SparklogError | None = None
    parts: "tuple[Done, ...]" = ()

    def among(self, first: int, record_count: int) -> "list[tuple[Done, int, int]]":
        """The results of the records `[first, first + record_count)`: each with the index in its part of the
        first of them, and their number.
        """
        if not self.parts:
            return [(self, first, record_count)]
        found = []
        for part in self.parts:
            start = max(first - part.batch.first, 0)
            end = min(first + record_count - part.batch.first, part.batch.record_count)
            if start < end:
                found.append((part, start, end - start))
        return found

    def of(self, index: int) -> "Done":
        """The result of one record of the batch."""
        ((part, first, _),) = self.among(index, 1)
        offset = part.base_offset + first if part.base_offset >= 0 else -1
        return Done(part.batch, offset, part.log_append_time_ms, part.error)


class Split:
    """The results of the parts of one batch. Invariant: the parts together have each record of the batch
    once.
    """

    __slots__ = ("_ended", "_missing", "_whole")

    def __init__(self, whole: OutboundBatch) -> None:
        self._whole = whole
        self._missing = whole.record_count
        self._ended: list[Done] = []

    def ended(self, part: Done) -> Done | None:
        """Take the result of a part; returns that of the batch with the last one."""
        self._ended.append(part)
        self._missing -= part.batch.record_count
        if self._missing:
            return None
        parts = sorted(self._ended, key=lambda one: one.batch.first)
        error = next((one.error for one in parts if one.error is not None), None)
        return Done(self._whole, parts[0].base_offset, parts[0].log_append_time_ms, error, tuple(parts))


class Shipment(msgspec.Struct):
    """A request and its batches, to be passed to `replied` or `failed`."""

    node: NodeId
    request: ProduceRequest
    batches: list[OutboundBatch]
    version_max: int | None
    deadline: Micros


@dataclass(slots=True, eq=False)
class Line:
    """The batches of one partition. Invariants: those in `waiting` come after those in flight; `returned` is
    empty unless a batch is in flight.
    """

    topic_partition: TopicPartition
    waiting: deque[OutboundBatch] = field(default_factory=deque)
    in_flight: deque[OutboundBatch] = field(default_factory=deque)
    returned: list[OutboundBatch] = field(default_factory=list)
    not_before: Micros = _AT_ONCE
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = _NO_EPOCH
    sequence: int = 0  # of the next record that was never sent
    acknowledged: int = 0  # the sequence that the broker expects next
    is_lost: bool = False  # the broker has lost the producer's state
    is_known: bool = False  # the broker has acknowledged a batch of the producer id


def distance(start: int, sequence: int) -> int:
    """The distance of a sequence from `start`, with the wrap-around; sequences before `start` have the
    smallest.
    """
    distance = (sequence - start) & SEQUENCE_MASK
    return distance if distance < 1 << 30 else distance - (1 << 31)


def too_late(batch: OutboundBatch, trouble: SparklogError | None = None) -> SparklogError:
    """The error of a batch that is given up at its deadline; `trouble` is why no broker is connected now."""
    reason = f"{batch.record_count} records were not acknowledged within delivery_timeout_ms"
    last = batch.last_error if trouble is None else trouble
    if last is not None:
        reason += f"; last: {last}"
    return DeliveryFailed(batch.topic_partition, reason)


def error_of(batch: OutboundBatch, code: ErrorCode, answer: PartitionProduceResponse) -> BrokerError:
    """The error of a batch; that of a refused one has the first record that the broker names as the cause."""
    if code.is_retriable:
        return BrokerError(code, answer.error_message or "")
    causes = answer.record_errors
    record, cause = None, ""
    if causes and 0 <= (index := causes[0].batch_index) < batch.record_count:
        record = decode_records(batch.records, verify_crc=False)[index]
        more = f" (and {len(causes) - 1} more records)" if len(causes) > 1 else ""
        cause = f"record {batch.first + index}, with timestamp {record.timestamp}{more}"
        if said := causes[0].batch_index_error_message:
            cause += f": {said}"
    reason = "; ".join(filter(None, (answer.error_message, cause)))
    return BatchRefused(batch.topic_partition, code, reason, record)
