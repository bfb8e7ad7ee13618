"""Produce: append each partition's batch, then respond at once (acks=1) or when the high watermark has passed
it (acks=all).

    opens a transaction ──► verified with its coordinator (produce_verified.py) ──┐
    otherwise ────────────────────────────────────────────────────────────────────┴─► checked:

    little or nothing to decompress ──────────────► appended ──► answered, or parked until committed
      └── much to decompress or compress: kept, checked in a job ──┘     (the session is muted meanwhile)
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from sparklog.errors import ErrorCode, without_frames
from sparklog.model import Instant, NodeId, Offset
from sparklog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import OWN_DISK_WAIT_MS, Context
from sparklog_server.broker.dynamic_config import INLINE_BYTES_MAX
from sparklog_server.broker.handlers.current_leader import WITH_LEADER, endpoints_of, leader_elsewhere
from sparklog_server.broker.handlers.produce_verified import (
    NO_PROOFS,
    Proofs,
    may_write_transactions,
    refuse_all,
    refused_produce,
    verify,
)
from sparklog_server.broker.session import Answer, AnsweredInSteps, Call, Parked
from sparklog_server.coordinator.placement import AUDIT_TOPIC, INTERNAL_TOPICS
from sparklog_server.disk.door import StorageError
from sparklog_server.log.producers.validate import Checked, NeedsJob, RecordsRefused, Sent, check_client_batch
from sparklog_server.log.producers.validate_steps import ValidationMemory, check_all
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.purgatory import PurgatoryFull

_FEW: Final = 128
"""The number of partitions that are appended in one turn; a request with more is served in steps."""
_FOUND_AT_ONCE: Final = 4
_ELSEWHERE: Final = 1
"""Another broker leads a partition."""
_NOT_AUTHORIZED: Final = 2
"""A transactional batch is in a request without a transactional id."""
_TO_CHECK: Final = 4
"""A batch must be decompressed or compressed; the append checks the others, so no check comes before."""
_TOPIC_IDS_SINCE = 13
_ZSTD_SINCE = 7
_ZSTD = 4
_ATTRIBUTES_AT = 22  # the low byte of a batch's attributes
_CODEC_BITS = 0x07
_TRANSACTIONAL = 0x10
_ACKS_ALL = -1
_LEGAL_ACKS = (0, 1, _ACKS_ALL)
# Access to an enum member takes as long as two calls.
_NONE: Final = ErrorCode.NONE
_WRITE: Final = Operation.WRITE
_TOPIC: Final = Resource.TOPIC

_UNAUTHORIZED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""The error of a transactional batch in a request without a transactional id, which refuses the whole
request.
"""

_NO_MEMORY: Final = RecordsRefused(
    ErrorCode.REQUEST_TIMED_OUT, "The broker has too little memory now to check the batch; try again."
)
"""Retriable, and nothing was appended."""

_Target = tuple[Partition, PartitionProduceResponse]
"""The target of one batch, and its part of the response."""


class _Served(msgspec.Struct):
    """One request that is being served. It refers to no batch: the receive buffer may be filled again before
    the answer.
    """

    context: Context
    call: Call
    acks: int
    timeout_ms: int
    response: ProduceResponse
    targets: list[_Target]
    proofs: Proofs = NO_PROOFS


def produce(context: Context, call: Call, request: ProduceRequest, now: Instant) -> Answer:
    """Append the batches; the log checks KIP-98 sequences. Errors are per partition."""
    if request.transactional_id is not None and not may_write_transactions(context, call, request):
        return refused_produce(context, call, request)
    count = 0
    for topic in request.topic_data:
        count += len(topic.partition_data)
    if count > _FEW or len(request.topic_data) > _FEW:
        steps = _produce_many(context, call, request)
        return context.slices.begin(call, steps, now, is_silent=not request.acks)
    response = ProduceResponse(responses=[])
    served = _Served(context, call, request.acks, request.timeout_ms, response, [])
    sent: list[memoryview] = []
    found = _find(served, request, request.topic_data, sent, response.responses)
    if found or request.transactional_id is not None:
        return _check(served, request, sent, found, now)
    return _append_all(served, sent, now)


def _produce_many(context: Context, call: Call, request: ProduceRequest) -> AnsweredInSteps:
    """Append the batches of many partitions in steps. They are copied first, because later frames are
    received where they are.
    """
    partitions = [data for topic in request.topic_data for data in topic.partition_data]
    batches = [data.records for data in partitions if isinstance(data.records, memoryview)]
    copies = context.jobs.kept(batches) if batches else ()
    rest = iter(copies)
    for data in partitions:
        if isinstance(data.records, memoryview):
            data.records = memoryview(next(rest))
    held_bytes = context.jobs.hold(copies)
    response = ProduceResponse(responses=[])
    served = _Served(context, call, request.acks, request.timeout_ms, response, [])
    sent: list[memoryview] = []
    found = 0
    try:
        for topic in request.topic_data:
            parts: list[PartitionProduceResponse] = []
            for begin in range(0, max(len(topic.partition_data), 1), _FOUND_AT_ONCE):
                some = topic.partition_data[begin : begin + _FOUND_AT_ONCE]
                piece = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=some)
                told: list[TopicProduceResponse] = []
                found |= _find(served, request, [piece], sent, told)
                parts += told[0].partition_responses
                now = yield
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)
            )
        if found or request.transactional_id is not None:
            return _check(served, request, sent, found, now)
        return (yield from _append_in_steps(served, sent))
    finally:
        context.jobs.let_go(held_bytes)


def _find(
    served: _Served,
    request: ProduceRequest,
    topics: list[TopicProduceData],
    sent: list[memoryview],
    told: list[TopicProduceResponse],
) -> int:
    """Find the targets of the batches and add these to `sent`, or refuse them in `told`. Returns what keeps
    the batches from being appended at once, as bits.
    """
    context, call = served.context, served.call
    found = 0
    for topic in topics:
        name, refused = _topic_of(context, call, topic, request)
        parts: list[PartitionProduceResponse] = []
        told.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
        for data in topic.partition_data:
            part = PartitionProduceResponse(index=data.index, base_offset=-1)
            parts.append(part)
            if refused:
                part.error_code, call.has_error = refused, True
                continue
            partition = _partition_for(context, call, name, data, part, request.transactional_id is not None)
            if partition is not None:
                served.targets.append((partition, part))
                records: memoryview = data.records  # type: ignore[assignment]  # else there were no partition for it
                sent.append(records)
                if not partition.keeps_codec or (
                    len(records) > _ATTRIBUTES_AT
                    and records[_ATTRIBUTES_AT] & _CODEC_BITS  # as `_is_compressed`
                ):
                    found |= _TO_CHECK
            else:
                call.has_error = True
                if part.error_code is _UNAUTHORIZED:
                    found |= _NOT_AUTHORIZED
                if part.current_leader is not None:
                    found |= _ELSEWHERE
    return found


def _check(
    served: _Served, request: ProduceRequest, sent: list[memoryview], found: int, now: Instant
) -> Answer:
    """Check the batches, then append them."""
    if found & _ELSEWHERE:
        _name_leaders(served.context, served.call, served.response, ())
    if request.transactional_id is not None:
        return _verify(served, request, sent, now)
    if found & _NOT_AUTHORIZED:
        refuse_all(served.response, _UNAUTHORIZED)
        served.targets, sent = [], []
    batches = _check_at_once(served.targets, sent, now) if found & _TO_CHECK else sent
    if batches is not None:
        return _append_all(served, batches, now)
    return _check_in_job(served, served.context.jobs.kept(sent), now)


def _name_leaders(
    context: Context, call: Call, response: ProduceResponse, targets: Iterable[_Target]
) -> None:
    """Name the leader of each target that this broker does not lead, and the addresses of all leaders that
    the response names (KIP-951).
    """
    for partition, part in targets:
        if part.error_code in WITH_LEADER:
            leader = leader_elsewhere(context, *partition.topic_partition)
            part.current_leader = None if leader is None else LeaderIdAndEpoch(*leader)
    leaders = {
        NodeId(part.current_leader.leader_id)
        for topic in response.responses
        for part in topic.partition_responses
        if part.current_leader is not None
    }
    response.node_endpoints = [
        NodeEndpoint(node, at.host, at.port, rack) for node, at, rack in endpoints_of(context, call, leaders)
    ]


def _verify(served: _Served, request: ProduceRequest, sent: list[memoryview], now: Instant) -> Answer:
    """Check and append, once the coordinator has verified the partitions where the batches open a
    transaction.
    """

    def go_on(
        targets: list[_Target], batches: Sequence[memoryview | bytearray], proofs: Proofs, now: Instant
    ) -> Answer:
        served.targets, served.proofs = targets, proofs
        checked = _check_at_once(targets, batches, now)
        if checked is not None:
            return _append_all(served, checked, now)
        copies = [records if isinstance(records, bytearray) else bytearray(records) for records in batches]
        return _check_in_job(served, copies, now)

    return verify(served.context, served.call, request, served.response, served.targets, sent, go_on, now)


def _is_compressed(records: memoryview | bytearray) -> bool:
    return len(records) > _ATTRIBUTES_AT and records[_ATTRIBUTES_AT] & _CODEC_BITS != 0


def _check_at_once(
    targets: list[_Target], sent: Sequence[memoryview | bytearray], now: Instant
) -> Sequence[Sent | RecordsRefused] | None:
    """Check the batches that must be decompressed or compressed; None if that takes too long for the loop."""
    if len(targets) > _FEW:
        return None
    left = INLINE_BYTES_MAX
    batches: list[Sent | RecordsRefused] | None = None
    for index, (partition, _) in enumerate(targets):
        records, settings = sent[index], partition.settings
        if settings.compression_type == "producer" and not _is_compressed(records):
            continue
        if batches is None:
            batches = list(sent)
        try:
            checked = check_client_batch(records, settings, now.wall_ms, inline_bytes_max=left)
        except (NeedsJob, MemoryError):
            return None
        except RecordsRefused as refused:
            if len(targets) > 1:
                return None  # this batch may have taken long, and so may the next
            batches[index] = without_frames(refused)
        else:
            batches[index] = checked
            left -= checked.decompressed_bytes
    return sent if batches is None else batches


def _topic_of(
    context: Context, call: Call, topic: TopicProduceData, request: ProduceRequest
) -> tuple[str, ErrorCode]:
    """The topic's name, and the error that forbids writing to it (or NONE)."""
    if request.acks not in _LEGAL_ACKS:
        return topic.name, ErrorCode.INVALID_REQUIRED_ACKS
    name = topic.name
    if call.version >= _TOPIC_IDS_SINCE:
        known = context.topic_of_id(topic.topic_id)
        if known is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = known.name
    if not context.allow(call, _WRITE, _TOPIC, name):
        return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name in INTERNAL_TOPICS and not _is_audit_of_node(context, call, name):
        return name, ErrorCode.INVALID_TOPIC_EXCEPTION
    return name, _NONE


def _is_audit_of_node(context: Context, call: Call, name: str) -> bool:
    """Whether another node may send this, a batch of its audit log."""
    return name == AUDIT_TOPIC and context.may(call, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)


def _partition_for(
    context: Context,
    call: Call,
    topic: str,
    data: PartitionProduceData,
    part: PartitionProduceResponse,
    is_transactional: bool,
) -> Partition | None:
    """The partition of a batch; None if it is refused, with the error in `part`."""
    partition = context.partitions.find(topic, data.index)
    if partition is None:
        part.error_code = context.partitions.absence(topic, data.index)
        if part.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = leader_elsewhere(context, topic, data.index)
            part.current_leader = None if leader is None else LeaderIdAndEpoch(*leader)
        return None
    records = data.records
    if not isinstance(records, memoryview) or not records:
        part.error_code = ErrorCode.INVALID_RECORD
        part.error_message = "a produce request needs exactly one record batch for each partition"
        return None
    attributes = records[_ATTRIBUTES_AT] if len(records) > _ATTRIBUTES_AT else 0
    if not attributes:
        return partition
    if attributes & _CODEC_BITS == _ZSTD and call.version < _ZSTD_SINCE:
        part.error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        part.error_message = "zstd needs Produce version 7 or later (KIP-110)"
        return None
    if attributes & _TRANSACTIONAL and not is_transactional:
        part.error_code = _UNAUTHORIZED
        return None
    return partition


def _check_in_job(served: _Served, copies: Sequence[bytearray | memoryview], now: Instant) -> Parked:
    """Check in a job, and append when it is done."""

    def checked(batches: list[Checked | RecordsRefused] | StorageError, then: Instant) -> Answer:
        assert not isinstance(batches, StorageError), "validation reads no disk"
        return _append_all(served, batches, then)

    targets = served.targets
    batches = tuple((copy, partition.settings) for copy, (partition, _) in zip(copies, targets, strict=True))
    room = ValidationMemory(batches)
    job = partial(check_all, batches, room, now.wall_ms)
    refused: list[Checked | RecordsRefused] = [_NO_MEMORY] * len(targets)
    served.context.jobs.run_in_steps(
        served.call,
        job,
        checked,
        copies=copies,
        memory_bytes=room.total_bytes,
        without_memory=refused,
    )
    return Parked.MUTING if served.acks else Parked.MUTING_SILENT


def _append_all(
    served: _Served,
    batches: Sequence[Sent | RecordsRefused],
    now: Instant,
    begin: int = 0,
    waiting: "Iterable[_Share]" = (),
) -> Answer:
    """Append each batch that is not refused, from that of index `begin` on; those before it are appended, and
    their shares are `waiting`.
    """
    context, call, response, targets = served.context, served.call, served.response, served.targets
    if len(targets) - begin > _FEW:
        return context.slices.begin(call, _append_in_steps(served, batches), now, is_silent=not served.acks)
    shares = list(waiting)
    may_have_failed = len(shares) < begin
    for index in range(begin, len(targets)):
        share = _append(served, index, batches[index], now)
        if share is not None:
            shares.append(share)
        elif targets[index][1].error_code:
            may_have_failed = True
    if may_have_failed and any(part.error_code for _, part in targets):
        call.has_error = True
        _name_leaders(context, call, response, targets)
    if served.acks == 0:
        if any(part.error_code for topic in response.responses for part in topic.partition_responses):
            context.disconnect(call.session, "a produce without acknowledgement failed")
        return Parked.SILENT
    if not shares:
        return response
    return _park(served, shares, now)


def _append_in_steps(served: _Served, batches: Sequence[Sent | RecordsRefused]) -> AnsweredInSteps:
    """As `_append_all`, for many partitions."""
    shares: list[_Share] = []
    for index, batch in enumerate(batches):
        now = yield
        share = _append(served, index, batch, now)
        if share is not None:
            shares.append(share)
    now = yield
    return _append_all(served, batches, now, len(batches), shares)


def _append(served: _Served, index: int, batch: Sent | RecordsRefused, now: Instant) -> "_Share | None":
    """Append the batch of one partition and fill its part of the response; returns the share that must wait
    if acks=all is not yet satisfied.
    """
    partition, part = served.targets[index]
    acks = served.acks
    try:
        if acks == _ACKS_ALL and not partition.has_enough_in_sync:
            raise PartitionUnavailable(ErrorCode.NOT_ENOUGH_REPLICAS)
        if isinstance(batch, RecordsRefused):
            _refuse(part, batch)
            partition.disk.traffic.produce_refused()
            return None
        room = partition.home.room
        if not room.takes(len(batch), now):
            raise PartitionUnavailable(ErrorCode.KAFKA_STORAGE_ERROR, room.refusal)
        result = partition.append(batch, now, served.proofs.get(index) if served.proofs else None)
    except PartitionUnavailable as unavailable:
        part.error_code = unavailable.code
        part.error_message = unavailable.message
        partition.disk.traffic.produce_refused()
        return None
    except RecordsRefused as refused:
        _refuse(part, refused)
        partition.disk.traffic.produce_refused(0 if isinstance(batch, RecordsRefused) else len(batch))
        return None
    if partition.home.is_congested:
        served.context.pause(served.call.session)
    part.base_offset = result.base_offset
    part.log_append_time_ms = result.log_append_time_ms
    part.log_start_offset = result.log_start_offset
    if acks == _ACKS_ALL and partition.high_watermark <= result.last_offset:
        return _Share(partition, part, Offset(result.last_offset + 1))
    return None


def _refuse(part: PartitionProduceResponse, refused: RecordsRefused) -> None:
    part.error_code = refused.code
    part.error_message = refused.message
    part.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in refused.record_errors
    ]


class _Share:
    """One partition's part of a parked produce: complete when the high watermark reaches `until`."""

    __slots__ = ("call", "leader", "part", "partition", "until", "whole")

    call: Call
    whole: "_ParkedProduce"

    def __init__(self, partition: Partition, part: PartitionProduceResponse, until: Offset) -> None:
        self.partition = partition
        self.leader = partition.leader
        self.part = part
        self.until = until

    def released(self) -> None:
        self.whole.context.woken[self] = None

    def woken(self, now: Instant) -> ProduceResponse | None:
        code = self.partition.loss_of(self.leader)
        if code is not ErrorCode.NONE:
            self.fail(code)
            whole = self.whole
            _name_leaders(whole.context, whole.call, whole.response, ((self.partition, self.part),))
        elif not self.partition.has_enough_in_sync:
            # Held by the replicas that are in sync, of which there are too few by now.
            self.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return self.whole.share_done()

    def fail(self, code: ErrorCode) -> None:
        self.part.error_code = code
        self.part.base_offset = -1
        self.part.log_append_time_ms = -1
        self.part.log_start_offset = -1


class _ParkedProduce:
    """A produce whose `remaining` partitions are not committed yet."""

    __slots__ = ("call", "context", "remaining", "response", "shares")

    def __init__(self, context: Context, call: Call, response: ProduceResponse, shares: list[_Share]) -> None:
        self.context = context
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
        """The shares stay parked until the high watermark passes them, and are dropped then."""


def _park(served: _Served, shares: list[_Share], now: Instant) -> Answer:
    context, call, timeout_ms = served.context, served.call, served.timeout_ms
    whole = _ParkedProduce(context, call, served.response, shares)
    is_alone = True
    for share in shares:
        is_alone = is_alone and share.leader is not None and share.leader.is_alone
        share.call = call
        share.whole = whole
        try:
            share.partition.park(share.until, share)
        except PurgatoryFull:
            # Appended, but it is unknown whether it will be committed: as after a timeout, the client
            # retries, and its sequence prevents a duplicate.
            share.fail(ErrorCode.REQUEST_TIMED_OUT)
            call.has_error = True
            whole.remaining -= 1
    if whole.remaining == 0:
        return served.response
    context.timers.park(whole, max(timeout_ms, OWN_DISK_WAIT_MS) if is_alone else timeout_ms, now)
    return Parked.FLOWING
