"""Produce: append each partition's batch, then answer at once (acks=1) or when the high watermark has passed it (acks=all)."""

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Offset
from sparklog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from sparklog_server.broker.authorization import Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.session import Call, Parked
from sparklog_server.log.validate import RecordsRefused
from sparklog_server.replica.partition import Partition, PartitionUnavailable
from sparklog_server.replica.purgatory import PurgatoryFull

_TOPIC_IDS_SINCE = 13
_ZSTD_SINCE = 7
_ZSTD = 4
_ATTRIBUTES_AT = 22  # the low byte of a batch's attributes: bits 0-2 are the codec
_TRANSACTIONAL = 0x10
_ACKS_ALL = -1


def produce(context: Context, call: Call, request: ProduceRequest, now: Instant) -> ProduceResponse | Parked:
    """Append what was sent; KIP-98 sequences are checked by the log. Errors are told per partition."""
    acks = request.acks
    response = ProduceResponse(responses=[])
    waiting: list[_Share] = []
    failed = False
    for topic in request.topic_data:
        name, refused = _topic_of(context, call, topic, request)
        parts: list[PartitionProduceResponse] = []
        response.responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
        for data in topic.partition_data:
            part = PartitionProduceResponse(index=data.index, base_offset=-1)
            parts.append(part)
            if refused is not ErrorCode.NONE:
                part.error_code = refused
                failed = True
                continue
            share = _append(context, call, name, data, part, acks, now)
            failed |= part.error_code != 0
            if share is not None:
                waiting.append(share)
    if acks == 0:
        if failed:
            context.disconnect(call.session, "a produce without acknowledgement failed")
        return Parked.SILENT
    if not waiting:
        return response
    return _park(context, call, response, waiting, request.timeout_ms, now)


def _topic_of(context: Context, call: Call, topic: TopicProduceData, request: ProduceRequest) -> tuple[str, ErrorCode]:
    """The topic's name, and why nothing may be written to it (or NONE)."""
    if request.acks not in (0, 1, _ACKS_ALL):
        return topic.name, ErrorCode.INVALID_REQUIRED_ACKS
    name = topic.name
    if call.version >= _TOPIC_IDS_SINCE:
        known = context.topic_of_id(topic.topic_id)
        if known is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = known.name
    if not context.allow(call, Operation.WRITE, Resource.TOPIC, name):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return name, ErrorCode.NONE


def _append(
    context: Context, call: Call, topic: str, data: PartitionProduceData, part: PartitionProduceResponse, acks: int, now: Instant
) -> "_Share | None":
    """Append one partition's batch and fill its part of the answer; the share that must wait, if acks=all is not yet satisfied."""
    partition = context.partitions.find(topic, data.index)
    if partition is None:
        part.error_code = context.partitions.absence(topic, data.index)
        return None
    records = data.records
    if not isinstance(records, memoryview) or not records:
        part.error_code = ErrorCode.INVALID_RECORD
        part.error_message = "a produce request needs exactly one record batch for each partition"
        return None
    try:
        if acks == _ACKS_ALL and not partition.has_enough_in_sync:
            raise PartitionUnavailable(ErrorCode.NOT_ENOUGH_REPLICAS)
        if call.version < _ZSTD_SINCE and len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & 0x07 == _ZSTD:
            raise RecordsRefused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later (KIP-110)")
        if len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
            raise RecordsRefused(ErrorCode.INVALID_TXN_STATE, "the batch is not part of an ongoing transaction: none can be begun here yet")
        result = partition.append(records, now)
    except PartitionUnavailable as unavailable:
        part.error_code = unavailable.code
        return None
    except RecordsRefused as refused:
        part.error_code = refused.code
        part.error_message = refused.message
        part.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message) for index, message in refused.record_errors
        ]
        return None
    if partition.is_congested:
        context.pause(call.session)
    part.base_offset = result.base_offset
    part.log_append_time_ms = result.log_append_time_ms
    part.log_start_offset = result.log_start_offset
    until = Offset(result.last_offset + 1)
    if acks == _ACKS_ALL and partition.high_watermark < until:
        return _Share(partition, part, until)
    return None


class _Share:
    """One partition's part of a parked produce: done when the high watermark reaches `until`."""

    __slots__ = ("call", "part", "partition", "until", "whole")

    call: Call
    whole: "_ParkedProduce"

    def __init__(self, partition: Partition, part: PartitionProduceResponse, until: Offset) -> None:
        self.partition = partition
        self.part = part
        self.until = until

    def woken(self, now: Instant) -> ProduceResponse | None:
        if self.partition.high_watermark < self.until:
            self.fail(self.partition.error if self.partition.error is not ErrorCode.NONE else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.whole.share_done()

    def fail(self, code: ErrorCode) -> None:
        self.part.error_code = code
        self.part.base_offset = -1
        self.part.log_append_time_ms = -1
        self.part.log_start_offset = -1


class _ParkedProduce:
    """A produce of which `remaining` partitions are not committed yet."""

    __slots__ = ("call", "remaining", "response", "shares")

    def __init__(self, call: Call, response: ProduceResponse, shares: list[_Share]) -> None:
        self.call = call
        self.response = response
        self.shares = shares
        self.remaining = len(shares)

    def share_done(self) -> ProduceResponse | None:
        self.remaining -= 1
        return self.response if self.remaining == 0 else None

    def expired(self, now: Instant) -> ProduceResponse:
        for share in self.shares:
            if share.part.error_code == 0 and share.partition.high_watermark < share.until:
                share.fail(ErrorCode.REQUEST_TIMED_OUT)
        return self.response

    def abandoned(self) -> None:
        """The shares stay parked until they are passed, and are dropped then."""


def _park(
    context: Context, call: Call, response: ProduceResponse, shares: list[_Share], timeout_ms: int, now: Instant
) -> ProduceResponse | Parked:
    whole = _ParkedProduce(call, response, shares)
    for share in shares:
        share.call = call
        share.whole = whole
        try:
            share.partition.park(share.until, share)
        except PurgatoryFull:
            # Appended, but its fate will not be known: as for a time-out, the client tries again and its sequence keeps the log exact.
            share.fail(ErrorCode.REQUEST_TIMED_OUT)
            whole.remaining -= 1
    if whole.remaining == 0:
        return response
    context.park(whole, timeout_ms, now)
    return Parked.FLOWING
