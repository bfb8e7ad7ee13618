"""TxnOffsetCommit: offsets that take effect when their transaction commits (KIP-98, KIP-447).

The partition of the group's offsets must be part of the transaction: a producer of transaction version 1 has
added it by AddOffsetsToTxn; one of version 2 adds it by this request (KIP-890).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.coordinators.coordinator_requests import ask_shard
from sparklog_server.broker.coordinators.transaction_verification import (
    Codes,
    TransactionVerification,
    VerificationRequest,
)
from sparklog_server.broker.handlers.committed_topics import CommittedTopics
from sparklog_server.broker.session import AnsweredInSteps, Call, Parked
from sparklog_server.coordinator.group.offsets import refused_txn_commit
from sparklog_server.log.producers.producer_state import NO_SEQUENCE
from sparklog_server.log.producers.validate import RecordsRefused
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.transactional import begin_verification

if TYPE_CHECKING:
    from sparklog_server.broker.ports import TransactionPort


_LOADING_SINCE = 2
"""Earlier clients fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
_ABORTABLE_SINCE = 4
_ADDING_SINCE = 5
_AS_UNAVAILABLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
)


def txn_offset_commit(
    context: "TransactionPort", call: Call, request: TxnOffsetCommitRequest, now: Instant
) -> AnsweredInSteps:
    """Store offsets of a group within a transaction; unknown and unauthorized topics are refused each by
    itself.
    """
    refusal = _refusal_of_whole(context, call, request)
    topics: CommittedTopics[TxnOffsetCommitRequestTopic, TxnOffsetCommitResponseTopic] = CommittedTopics()
    now = yield from topics.sort_out(
        now,
        context.image,
        request.topics,
        check=lambda topic: refusal or _topic_error(context, call, topic.name),
        keep=lambda topic, kept: TxnOffsetCommitRequestTopic(name=topic.name, partitions=kept),
        refuse=_refused_topic,
    )
    if not topics.accepted:
        return TxnOffsetCommitResponse(topics=topics.answer([]))

    def finish(reply: Message) -> Message:
        return TxnOffsetCommitResponse(topics=topics.answer(cast(TxnOffsetCommitResponse, reply).topics))

    part = TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=list(topics.accepted.values()),
    )
    return _Commit(context, call, part, finish).begin(now)


def _refusal_of_whole(context: "TransactionPort", call: Call, request: TxnOffsetCommitRequest) -> ErrorCode:
    """The error of every partition; NONE if the caller may commit offsets of this group."""
    if not context.allow(call, Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.allow(call, Operation.READ, Resource.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _refused_topic(
    topic: TxnOffsetCommitRequestTopic, gone: list[tuple[int, ErrorCode]]
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        topic.name, [TxnOffsetCommitResponsePartition(index, code) for index, code in gone]
    )


def _topic_error(context: "TransactionPort", call: Call, name: str) -> ErrorCode:
    if not context.allow(call, Operation.READ, Resource.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if name in context.image.topics_by_name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _Commit:
    """The accepted offsets of one request, on their way to the group's shard; `finish` adds the
    refused ones.
    """

    __slots__ = ("_call", "_context", "_finish", "_request")

    def __init__(
        self,
        context: "TransactionPort",
        call: Call,
        request: TxnOffsetCommitRequest,
        finish: Callable[[Message], Message],
    ) -> None:
        self._context = context
        self._call = call
        self._request = request
        self._finish = finish

    def begin(self, now: Instant) -> Message | Parked:
        """Verify with the coordinator of the transaction first, unless it is open in the group's
        partition.
        """
        context, call, request = self._context, self._call, self._request
        if not request.group_id:
            return self._refused(ErrorCode.INVALID_GROUP_ID)
        index = context.groups.shard_of(request.group_id)
        partition = None if index is None else context.partitions.find(context.groups.topic, index)
        if partition is None:
            return self._refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE if index is None else ErrorCode.NOT_COORDINATOR
            )
        adds = call.version >= _ADDING_SINCE
        if not adds and not context.settings.transactions.partition_verification_enable:
            return self._commit(None, now)
        producer_id, epoch = request.producer_id, request.producer_epoch
        try:
            proof = begin_verification(
                partition, producer_id, epoch, NO_SEQUENCE, adds_partitions=adds, now=now
            )
        except PartitionUnavailable:
            return self._refused(ErrorCode.NOT_COORDINATOR)
        except RecordsRefused as refused:
            return self._refused(refused.code)
        if proof is None:
            return self._commit(None, now)
        asking = VerificationRequest(
            transactional_id=request.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            partitions=(partition.topic_partition,),
            adds_partitions=adds,
            knows_abortable=call.version >= _ABORTABLE_SINCE,
            is_retried=False,
        )

        def told(codes: Codes, then: Instant) -> Message | Parked:
            code = codes.get(partition.topic_partition, ErrorCode.NONE)
            if code is ErrorCode.NONE:
                return self._commit(proof, then)
            return self._refused(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code is ErrorCode.NETWORK_EXCEPTION else code
            )

        TransactionVerification(context, call, asking, told, (), now).ask(now)
        return Parked.MUTING

    def _commit(self, proof: object, now: Instant) -> Message | Parked:
        groups, group_id = self._context.groups, self._request.group_id
        return ask_shard(
            groups, self._call, group_id, self._request, self._refusal, now, self._finish, proof=proof
        )

    def _refused(self, code: ErrorCode) -> Message:
        return self._finish(self._refusal(code))

    def _refusal(self, code: ErrorCode) -> Message:
        if code in _AS_UNAVAILABLE:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            code = ErrorCode.NOT_COORDINATOR
        elif code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._call.version < _LOADING_SINCE:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return refused_txn_commit(self._request, code)
