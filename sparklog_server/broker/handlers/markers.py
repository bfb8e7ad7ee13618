"""WriteTxnMarkers: the transaction coordinator of another broker, or an administrator, ends transactions in
partitions that this node leads.

`__consumer_offsets` accepts no marker for a producer with an open transaction in this broker's coordinator,
which writes its own markers without this request. Where there is no other broker, the transaction must be
open in the partition too. See docs/decisions/0013.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from sparklog.errors import ErrorCode
from sparklog.model import Instant, TopicPartition
from sparklog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.coordinators.markers import Markers
from sparklog_server.broker.coordinators.txn_marker import Outcomes, TxnMarker
from sparklog_server.broker.session import AnsweredInSteps, Call, Parked
from sparklog_server.coordinator.placement import OFFSETS_TOPIC

if TYPE_CHECKING:
    from sparklog_server.broker.ports import TransactionPort


_WRITTEN_TOGETHER: Final = 16
"""The number of partitions that get their marker in one step."""
_WAIT_MS = 30_000  # Kafka's default request.timeout.ms, after which the sender has given up


def write_txn_markers(
    context: "TransactionPort", call: Call, request: WriteTxnMarkersRequest, now: Instant
) -> AnsweredInSteps:
    """Write each marker to its partitions; the response leaves when all appended markers are committed.
    Errors are per partition.
    """
    if not (
        context.may(call, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME)
        or context.allow(call, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
    ):
        refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return (yield from _response(request, [{}] * len(request.markers), otherwise=refusal))
    waiting = _Writing(context, call, request)
    markers = Markers(context.partitions, context.groups, context.woken)
    owned: frozenset[int] | None = frozenset()
    owned_at: Instant | None = None
    for index, asked in enumerate(request.markers):
        written = partial(waiting.written, index)
        seen: dict[TopicPartition, None] = {}
        few: list[TopicPartition] = []
        for topic_partition in _partitions_of(asked):
            if topic_partition in seen:
                continue
            seen[topic_partition] = None
            if topic_partition.topic == OFFSETS_TOPIC:
                if owned_at is not now:  # transactions begin between two turns
                    owned, owned_at = context.transactions.open_producers(), now
                code = _refusal_of_offsets(context, topic_partition, asked.producer_id, owned)
                if code is not ErrorCode.NONE:
                    waiting.refused(index, topic_partition, code)
                    continue
            few.append(topic_partition)
            if len(few) == _WRITTEN_TOGETHER:
                waiting.begun()
                markers.write(_marker(asked, few), written, now)
                few = []
                now = yield
        if few:
            waiting.begun()
            markers.write(_marker(asked, few), written, now)
        now = yield
    if waiting.is_done:
        return (yield from waiting.response())
    context.timers.park(waiting, _WAIT_MS, now)
    return Parked.FLOWING


def _partitions_of(marker: WritableTxnMarker) -> Iterator[TopicPartition]:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index)


def _marker(asked: WritableTxnMarker, partitions: list[TopicPartition]) -> TxnMarker:
    return TxnMarker(
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        is_commit=asked.transaction_result,
        coordinator_epoch=asked.coordinator_epoch,
        transaction_version=asked.transaction_version,
        partitions=tuple(partitions),
    )


def _refusal_of_offsets(
    context: "TransactionPort", offsets: TopicPartition, producer_id: int, owned: frozenset[int] | None
) -> ErrorCode:
    """The error of an offsets partition that accepts no marker from this sender, or NONE; `owned` are the
    producers with an open transaction.
    """
    partition = context.partitions.find(*offsets)
    if partition is None:
        return ErrorCode.NONE
    if owned is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if producer_id in owned:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    producer = partition.log.producers.producers.get(producer_id)
    if context.live.is_only_broker and (producer is None or producer.transaction_start < 0):
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.NONE


class _Writing:
    """A request whose markers are not all committed yet.

    Invariant: `_missing` counts the calls of `written` that are outstanding.
    """

    __slots__ = ("_context", "_missing", "_outcomes", "_request", "call")

    def __init__(self, context: "TransactionPort", call: Call, request: WriteTxnMarkersRequest) -> None:
        self.call = call
        self._context = context
        self._request = request
        self._missing = 0
        self._outcomes: list[dict[TopicPartition, ErrorCode]] = [{} for _ in request.markers]

    @property
    def is_done(self) -> bool:
        return self._missing == 0

    def refused(self, index: int, topic_partition: TopicPartition, code: ErrorCode) -> None:
        """A partition accepts no marker from the sender."""
        self._outcomes[index][topic_partition] = code

    def begun(self) -> None:
        """A marker is being written to some partitions; `written` will be called for them."""
        self._missing += 1

    def written(self, index: int, outcomes: Outcomes, now: Instant) -> None:
        """The results of one marker in some partitions."""
        self._outcomes[index].update(outcomes)
        self._missing -= 1
        if not self._missing and self.call.waiting is self:
            self._context.woken[self] = None

    def woken(self, now: Instant) -> Message | None:
        return self._context.slices.answered(self.call, self.response(), now)

    def expired(self, now: Instant) -> Message | None:
        return self.woken(now)

    def response(self) -> AnsweredInSteps:
        """The results so far; the others get a retriable error."""
        return _response(self._request, self._outcomes)

    def abandoned(self) -> None:
        """The session has ended; the markers are written nevertheless."""


def _response(
    request: WriteTxnMarkersRequest,
    outcomes: Sequence[Outcomes],
    *,
    otherwise: ErrorCode = ErrorCode.REQUEST_TIMED_OUT,
) -> AnsweredInSteps:
    """The result of each partition: its outcome, or else this error."""
    response = WriteTxnMarkersResponse(markers=[])
    for marker, codes in zip(request.markers, outcomes, strict=True):
        result = WritableTxnMarkerResult(marker.producer_id, [])
        response.markers.append(result)
        for topic in marker.topics:
            told = WritableTxnMarkerTopicResult(topic.name, [])
            result.topics.append(told)
            for index in topic.partition_indexes:
                code = codes.get(TopicPartition(topic.name, index), otherwise)
                told.partitions.append(WritableTxnMarkerPartitionResult(index, code))
                yield
            yield
        yield
    return response
