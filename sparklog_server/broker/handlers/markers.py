"""WriteTxnMarkers: the transaction coordinator of another broker, or an administrator, ends transactions in
partitions that this node leads.

`__consumer_offsets` accepts no marker for a producer with an open transaction in this broker's coordinator,
which writes its own markers without this request. Where there is no other broker, the transaction must be
open in the partition too. See docs/decisions/0013.
"""

from collections.abc import Sequence
from functools import partial

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
from sparklog_server.broker.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.markers import Markers
from sparklog_server.broker.session import AnsweredInSteps, Call, Parked
from sparklog_server.broker.txn_marker import Outcomes, TxnMarker
from sparklog_server.coordinator.placement import OFFSETS_TOPIC

_WAIT_MS = 30_000  # Kafka's default request.timeout.ms, after which the sender has given up


def write_txn_markers(
    context: Context, call: Call, request: WriteTxnMarkersRequest, now: Instant
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
    markers = Markers()
    owned: frozenset[int] | None = frozenset()
    if any(topic.name == OFFSETS_TOPIC for asked in request.markers for topic in asked.topics):
        owned = context.transactions.open_producers()
    for index, asked in enumerate(request.markers):
        now = yield
        refused = _refused_offsets(context, asked, owned)
        marker = TxnMarker(
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            is_commit=asked.transaction_result,
            coordinator_epoch=asked.coordinator_epoch,
            transaction_version=asked.transaction_version,
            partitions=tuple(one for one in _partitions_of(asked) if one not in refused),
        )
        markers.write(context, marker, partial(waiting.written, index, refused), now)
    if waiting.is_done:
        return (yield from waiting.response())
    context.timers.park(waiting, _WAIT_MS, now)
    return Parked.FLOWING


def _partitions_of(marker: WritableTxnMarker) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes
    )


def _refused_offsets(
    context: Context, asked: WritableTxnMarker, owned: frozenset[int] | None
) -> dict[TopicPartition, ErrorCode]:
    """The offsets partitions that accept no marker from this sender, and the error; `owned` are the producers
    with an open transaction.
    """
    refused = {}
    for topic_partition in _partitions_of(asked):
        partition = (
            context.partitions.find(*topic_partition) if topic_partition.topic == OFFSETS_TOPIC else None
        )
        if partition is None:
            continue
        producer = partition.log.producers.producers.get(asked.producer_id)
        if owned is None:
            refused[topic_partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif asked.producer_id in owned:
            refused[topic_partition] = ErrorCode.CONCURRENT_TRANSACTIONS
        elif context.live.is_only_broker and (producer is None or producer.transaction_start < 0):
            refused[topic_partition] = ErrorCode.INVALID_TXN_STATE
    return refused


class _Writing:
    """A request whose markers are not all committed yet."""

    __slots__ = ("_context", "_missing", "_outcomes", "_request", "call")

    def __init__(self, context: Context, call: Call, request: WriteTxnMarkersRequest) -> None:
        self.call = call
        self._context = context
        self._request = request
        self._missing = len(request.markers)
        self._outcomes: list[Outcomes] = [{} for _ in request.markers]

    @property
    def is_done(self) -> bool:
        return self._missing == 0

    def written(self, index: int, refused: Outcomes, outcomes: Outcomes, now: Instant) -> None:
        """The results of one marker in the partitions that accepted it."""
        self._outcomes[index] = {**refused, **outcomes}
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
