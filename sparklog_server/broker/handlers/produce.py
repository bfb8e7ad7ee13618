"""Produce: append each partition's batch, then respond at once (acks=1) or when the high watermark has passed
it (acks=all).

    opens a transaction ──► verified with its coordinator (produce_verified.py) ──┐
    otherwise ────────────────────────────────────────────────────────────────────┴─► checked:

    little or nothing to decompress ──────────────► appended ──► answered, or parked until committed
      └── much to decompress or compress: kept, checked in a job ──┘     (the session is muted meanwhile)
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

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
from sparklog_server.broker.dynamic_config import INLINE_BYTES_MAX
from sparklog_server.broker.handlers.current_leader import WITH_LEADER, endpoints_of, leader_elsewhere
from sparklog_server.broker.handlers.produce_verified import (
    Target,
    may_write_transactions,
    refused_produce,
    verify,
)
from sparklog_server.broker.request_timers import OWN_DISK_WAIT_MS
from sparklog_server.broker.session import Answer, AnsweredInSteps, Call, Parked
from sparklog_server.coordinator.placement import AUDIT_TOPIC, INTERNAL_TOPICS
from sparklog_server.disk.door import StorageError
from sparklog_server.log.producers.validate import Checked, NeedsJob, RecordsRefused, Sent, check_client_batch
from sparklog_server.log.producers.validate_steps import ValidationMemory, check_all
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.purgatory import PurgatoryFull

if TYPE_CHECKING:
    from sparklog_server.broker.ports import ProducePort


_FEW: Final = 128
"""The number of partitions that are appended in one turn; a request with more is served in steps."""
_FOUND_AT_ONCE: Final = 4
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


class _Served(msgspec.Struct, eq=False):
    """One request that is being served. It refers to no batch: the receive buffer may be filled again before
    the answer. `must_check` says whether a target has a batch to check.
    """

    context: "ProducePort"
    call: Call
    acks: int
    timeout_ms: int
    response: ProduceResponse
    targets: list[Target] = []
    must_check: bool = False


def produce(context: "ProducePort", call: Call, request: ProduceRequest, now: Instant) -> Answer:
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
    served = _Served(context, call, request.acks, request.timeout_ms, response)
    sent: list[memoryview] = []
    if not _find(served, request, request.topic_data, sent, response.responses):
        return refused_produce(context, call, request)
    if request.transactional_id is not None:
        return _verify(served, request, sent, now)
    return _check(served, sent, now) if served.must_check else _append_all(served, sent, now)


def _produce_many(context: "ProducePort", call: Call, request: ProduceRequest) -> AnsweredInSteps:
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
    served = _Served(context, call, request.acks, request.timeout_ms, response)
    sent: list[memoryview] = []
    try:
        for topic in request.topic_data:
            parts: list[PartitionProduceResponse] = []
            for begin in range(0, max(len(topic.partition_data), 1), _FOUND_AT_ONCE):
                some = topic.partition_data[begin : begin + _FOUND_AT_ONCE]
                piece = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=some)
                responses: list[TopicProduceResponse] = []
                if not _find(served, request, [piece], sent, responses):
                    return refused_produce(context, call, request)
                parts += responses[0].partition_responses
                now = yield
            response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)
            )
        if request.transactional_id is not None:
            return _verify(served, request, sent, now)
        if served.must_check:
            return _check(served, sent, now)
        return (yield from _append_in_steps(served, sent))
    finally:
        context.jobs.let_go(held_bytes)


def _find(
    served: _Served,
    request: ProduceRequest,
    topics: list[TopicProduceData],
    sent: list[memoryview],
    responses: list[TopicProduceResponse],
) -> bool:
    """Find the targets of the batches and add these to `sent`, or refuse them in `responses`. False if the
    whole request is to be refused: it has a transactional batch, and no transactional id.
    """
    context, call = served.context, served.call
    for topic in topics:
        name, refusal = _topic_of(context, call, topic, request)
        parts: list[PartitionProduceResponse] = []
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)
        )
        for data in topic.partition_data:
            part = PartitionProduceResponse(index=data.index, base_offset=-1, error_code=refusal)
            parts.append(part)
            target = None if refusal else _target_of(served, request, name, data, part)
            if target is not None:
                served.targets.append(target)
                sent.append(data.records)  # type: ignore[arg-type]  # else there were no target for it
                continue
            call.has_error = True
            if part.error_code is _UNAUTHORIZED:
                return False
    return True


def _topic_of(
    context: "ProducePort", call: Call, topic: TopicProduceData, request: ProduceRequest
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


def _is_audit_of_node(context: "ProducePort", call: Call, name: str) -> bool:
    """Whether another node may send this, a batch of its audit log."""
    return name == AUDIT_TOPIC and context.may(call, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)


def _target_of(
    served: _Served,
    request: ProduceRequest,
    topic: str,
    data: PartitionProduceData,
    part: PartitionProduceResponse,
) -> Target | None:
    """The target of a batch; None if it is refused, with the error in `part`."""
    partitions = served.context.partitions
    partition = partitions.find(topic, data.index)
    if partition is None:
        part.error_code = partitions.absence(topic, data.index)
        if part.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = leader_elsewhere(served.context, topic, data.index)
            part.current_leader = None if leader is None else LeaderIdAndEpoch(*leader)
        return None
    records = data.records
    if not isinstance(records, memoryview) or not records:
        part.error_code = ErrorCode.INVALID_RECORD
        part.error_message = "a produce request needs exactly one record batch for each partition"
        return None
    target = Target(partition, part)
    attributes = records[_ATTRIBUTES_AT] if len(records) > _ATTRIBUTES_AT else 0
    if attributes & _CODEC_BITS == _ZSTD and served.call.version < _ZSTD_SINCE:
        part.error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        part.error_message = "zstd needs Produce version 7 or later (KIP-110)"
        return None
    if attributes & _TRANSACTIONAL and request.transactional_id is None:
        part.error_code = _UNAUTHORIZED
        return None
    if attributes & _CODEC_BITS or not partition.keeps_codec:
        target.must_check = served.must_check = True
    return target


def _verify(served: _Served, request: ProduceRequest, sent: list[memoryview], now: Instant) -> Answer:
    """Check and append, once the coordinator has verified the partitions where the batches open a
    transaction.
    """

    def go_on(targets: list[Target], batches: Sequence[memoryview | bytearray], now: Instant) -> Answer:
        served.targets = targets
        return _check(served, batches, now)

    return verify(served.context, served.call, request, served.response, served.targets, sent, go_on, now)


def _check(served: _Served, sent: Sequence[memoryview | bytearray], now: Instant) -> Answer:
    """Check the batches that must be decompressed or compressed, at once or in a job, then append all."""
    batches = _check_at_once(served.targets, sent, now)
    return _check_in_job(served, sent, now) if batches is None else _append_all(served, batches, now)


def _check_at_once(
    targets: list[Target], sent: Sequence[memoryview | bytearray], now: Instant
) -> Sequence[Sent | RecordsRefused] | None:
    """The checked batches, and those that need no check; None if that takes too long for the loop."""
    if len(targets) > _FEW:
        return None
    left = INLINE_BYTES_MAX
    batches: list[Sent | RecordsRefused] = list(sent)
    for index, target in enumerate(targets):
        if not target.must_check:
            continue
        try:
            checked = check_client_batch(
                sent[index], target.partition.settings, now.wall_ms, inline_bytes_max=left
            )
        except (NeedsJob, MemoryError):
            return None
        except RecordsRefused as refused:
            if len(targets) > 1:
                return None  # this batch may have taken long, and so may the next
            batches[index] = without_frames(refused)
        else:
            batches[index] = checked
            left -= checked.decompressed_bytes
    return batches


def _check_in_job(served: _Served, sent: Sequence[memoryview | bytearray], now: Instant) -> Parked:
    """Check in a job, and append when it is done."""

    def checked(batches: list[Checked | RecordsRefused] | StorageError, then: Instant) -> Answer:
        assert not isinstance(batches, StorageError), "validation reads no disk"
        return _append_all(served, batches, then)

    targets, jobs = served.targets, served.context.jobs
    copies = jobs.kept(sent)
    batches = tuple((copy, target.partition.settings) for copy, target in zip(copies, targets, strict=True))
    room = ValidationMemory(batches)
    job = partial(check_all, batches, room, now.wall_ms)
    refused: list[Checked | RecordsRefused] = [_NO_MEMORY] * len(targets)
    jobs.run_in_steps(
        served.call,
        job,
        checked,
        copies=copies,
        memory_bytes=room.total_bytes,
        without_memory=refused,
    )
    return Parked.MUTING if served.acks else Parked.MUTING_SILENT


def _append_all(served: _Served, batches: Sequence[Sent | RecordsRefused], now: Instant) -> Answer:
    """Append each batch that is not refused, then respond."""
    targets = served.targets
    if len(targets) > _FEW:
        steps = _append_in_steps(served, batches)
        return served.context.slices.begin(served.call, steps, now, is_silent=not served.acks)
    shares: list[_Share] = []
    for index, target in enumerate(targets):
        share = _append(served, target, batches[index], now)
        if share is not None:
            shares.append(share)
    if served.call.has_error or not served.acks:
        return _respond(served, shares, now)
    return _park(served, shares, now) if shares else served.response


def _append_in_steps(served: _Served, batches: Sequence[Sent | RecordsRefused]) -> AnsweredInSteps:
    """As `_append_all`, for many partitions."""
    shares: list[_Share] = []
    for index, batch in enumerate(batches):
        now = yield
        share = _append(served, served.targets[index], batch, now)
        if share is not None:
            shares.append(share)
    now = yield
    return _respond(served, shares, now)


def _append(served: _Served, target: Target, batch: Sent | RecordsRefused, now: Instant) -> "_Share | None":
    """Append the batch of one partition and fill its part of the response; returns the share that must wait
    if acks=all is not yet satisfied.
    """
    call, partition, part = served.call, target.partition, target.part
    is_acks_all = served.acks == _ACKS_ALL
    try:
        if is_acks_all and not partition.has_enough_in_sync:
            raise PartitionUnavailable(ErrorCode.NOT_ENOUGH_REPLICAS)
        if isinstance(batch, RecordsRefused):
            _refuse(call, target, batch)
            return None
        size = len(batch)
        room = partition.home.room
        if not room.takes(size, now):
            raise PartitionUnavailable(ErrorCode.KAFKA_STORAGE_ERROR, room.refusal)
        result = partition.append(batch, now, target.proof)
    except PartitionUnavailable as unavailable:
        _refuse(call, target, unavailable)
        return None
    except RecordsRefused as refused:
        _refuse(call, target, refused, rejected_bytes=size)
        return None
    if partition.home.is_congested:
        served.context.pause(call.session)
    part.base_offset = result.base_offset
    part.log_append_time_ms = result.log_append_time_ms
    part.log_start_offset = result.log_start_offset
    if is_acks_all and partition.high_watermark <= result.last_offset:
        return _Share(target, Offset(result.last_offset + 1))
    return None


def _refuse(
    call: Call, target: Target, refused: PartitionUnavailable | RecordsRefused, rejected_bytes: int = 0
) -> None:
    """Say in the response why the batch is not appended, and count it."""
    call.has_error = True
    part = target.part
    part.error_code = refused.code
    part.error_message = refused.message
    if isinstance(refused, RecordsRefused):
        part.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in refused.record_errors
        ]
    target.partition.disk.traffic.produce_refused(rejected_bytes)


def _respond(served: _Served, shares: "list[_Share]", now: Instant) -> Answer:
    """Respond, unless shares wait; a client that wants no response learns of an error by the end of its
    connection.
    """
    context, call = served.context, served.call
    if call.has_error:
        _name_leaders(context, call, served.response, served.targets)
    if served.acks == 0:
        if call.has_error:
            context.disconnect(call.session, "a produce without acknowledgement failed")
        return Parked.SILENT
    return _park(served, shares, now) if shares else served.response


def _name_leaders(
    context: "ProducePort", call: Call, response: ProduceResponse, targets: Iterable[Target]
) -> None:
    """Name the leader of each target that this broker does not lead, and the addresses of all leaders that
    the response names (KIP-951).
    """
    for target in targets:
        part = target.part
        if part.error_code in WITH_LEADER:
            leader = leader_elsewhere(context, *target.partition.topic_partition)
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


class _Share:
    """One partition's part of a parked produce: complete when the high watermark reaches `until`."""

    __slots__ = ("call", "leader", "partition", "target", "until", "whole")

    call: Call
    whole: "_ParkedProduce"

    def __init__(self, target: Target, until: Offset) -> None:
        self.target = target
        self.partition = target.partition
        self.leader = target.partition.leader
        self.until = until

    def released(self) -> None:
        self.whole.context.woken[self] = None

    def woken(self, now: Instant) -> ProduceResponse | None:
        code = self.partition.loss_of(self.leader)
        if code is not ErrorCode.NONE:
            self.fail(code)
            whole = self.whole
            _name_leaders(whole.context, whole.call, whole.response, (self.target,))
        elif not self.partition.has_enough_in_sync:
            # Held by the replicas that are in sync, of which there are too few by now.
            self.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return self.whole.share_done()

    def fail(self, code: ErrorCode) -> None:
        part = self.target.part
        part.error_code = code
        part.base_offset = part.log_append_time_ms = part.log_start_offset = -1


class _ParkedProduce:
    """A produce whose `remaining` partitions are not committed yet."""

    __slots__ = ("call", "context", "remaining", "response", "shares")

    def __init__(
        self, context: "ProducePort", call: Call, response: ProduceResponse, shares: list[_Share]
    ) -> None:
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
            if share.target.part.error_code == 0 and share.partition.high_watermark < share.until:
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
