"""The requests of transactional producers and of administrators of transactions: checked here, decided by the
shard of the transactional id.

Clients before the version in `_FENCED_SINCE` do not know PRODUCER_FENCED: they get INVALID_PRODUCER_EPOCH in
its place.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from sparklog.errors import ErrorCode
from sparklog.model import Instant, TopicPartition
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.coordinators.coordinator_requests import Refusal, ask_shard, gather
from sparklog_server.broker.coordinators.transaction_coordinator_service import is_there
from sparklog_server.broker.handlers.administration import names_too_many
from sparklog_server.broker.handlers.coordinators import make_topic
from sparklog_server.broker.handlers.patterns import with_pattern
from sparklog_server.broker.session import Answer, AnsweredInSteps, Call, InSteps, Parked
from sparklog_server.coordinator.placement import INTERNAL_TOPICS, OFFSETS_TOPIC
from sparklog_server.coordinator.txn.answers import listed, partitions_of, refused_add, told
from sparklog_server.coordinator.txn.events import AddOffsets
from sparklog_server.outcome import Refused

if TYPE_CHECKING:
    from sparklog_server.broker.ports import TransactionPort


_BROKERS_SINCE = 4
"""The version of AddPartitionsToTxn from which brokers send many transactions (KIP-890)."""
_FENCED_SINCE = 2


def add_partitions_to_txn(
    context: "TransactionPort", call: Call, request: AddPartitionsToTxnRequest, now: Instant
) -> AnsweredInSteps:
    """Add partitions to a transaction, or verify them; all of a transaction's, or none."""
    is_from_broker = call.version >= _BROKERS_SINCE
    if is_from_broker and not context.allow(call, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    transactions = request.transactions if is_from_broker else [_of_client(request)]
    if names_too_many(context, call, (topic.partitions for one in transactions for topic in one.topics)):
        return Parked.SILENT
    refused: list[Message] = []
    asked: list[tuple[int | None, Message, Refusal]] = []
    for one in transactions:
        now = yield
        refusal = yield from _why_not(context, call, one, is_from_broker=is_from_broker)
        if refusal is not None:
            refused.append(refusal)
        else:
            command = AddPartitionsToTxnRequest(transactions=[one])
            asked.append(
                (context.transactions.shards.shard_of(one.transactional_id), command, _refusal_of(one))
            )

    def whole(parts: list[Message]) -> Message:
        results = [
            result
            for part in (*refused, *parts)
            for result in cast(AddPartitionsToTxnResponse, part).results_by_transaction
        ]
        if call.version < _FENCED_SINCE:
            for topic in (topic for result in results for topic in result.topic_results):
                for partition in topic.results_by_partition:
                    partition.partition_error_code = _known(call, partition.partition_error_code)
        if is_from_broker:
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=results[0].topic_results if results else []
        )

    return gather(context, call, asked, whole, now, context.transactions.shards)


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _refusal_of(asked: AddPartitionsToTxnTransaction) -> Refusal:
    return lambda code: refused_add(asked, code)


def _why_not(
    context: "TransactionPort", call: Call, asked: AddPartitionsToTxnTransaction, *, is_from_broker: bool
) -> InSteps[Message | None]:
    """The response for a transaction with an unauthorized or unknown partition: that refuses all its
    partitions.
    """
    transactional_id = asked.transactional_id
    if not is_from_broker and not context.allow(
        call, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id
    ):
        return refused_add(asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    codes: dict[TopicPartition, ErrorCode] = {}
    for partition in sorted(partitions_of(asked)):
        yield
        topic = partition.topic
        is_clients_own = topic not in INTERNAL_TOPICS and context.allow(
            call, Operation.WRITE, Resource.TOPIC, topic
        )
        if (topic in INTERNAL_TOPICS and topic != OFFSETS_TOPIC) or not (is_from_broker or is_clients_own):
            codes[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not is_there(context.image, partition):
            codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if codes:
        return told(asked, lambda one: codes.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED))
    return None if transactional_id else refused_add(asked, ErrorCode.INVALID_REQUEST)


def add_offsets_to_txn(
    context: "TransactionPort", call: Call, request: AddOffsetsToTxnRequest, now: Instant
) -> Message | Parked:
    """Add the partition of a group's offsets to a transaction."""

    def refusal(code: int) -> Message:
        return AddOffsetsToTxnResponse(error_code=_known(call, code))

    if not context.allow(call, Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.allow(call, Operation.READ, Resource.GROUP, request.group_id):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.transactional_id:
        return refusal(ErrorCode.INVALID_REQUEST)
    groups = context.groups
    shard = groups.shard_of(request.group_id)
    if shard is None:
        # As in Kafka, the partition is known before the topic exists; clients look for the group afterwards.
        make_topic(context, groups, now)
        shard = groups.shard_wanted(request.group_id)
    partition = TopicPartition(groups.topic, shard)
    command = AddOffsets(request.transactional_id, request.producer_id, request.producer_epoch, partition)
    shards = context.transactions.shards
    return ask_shard(
        shards,
        call,
        request.transactional_id,
        command,
        refusal,
        now,
        lambda reply: refusal(cast(AddOffsetsToTxnResponse, reply).error_code),
    )


def end_txn(context: "TransactionPort", call: Call, request: EndTxnRequest, now: Instant) -> Message | Parked:
    """Commit or abort; the response leaves when the decision is committed, and the markers follow."""

    def refusal(code: ErrorCode) -> Message:
        return EndTxnResponse(error_code=_known(call, code))

    if not context.allow(call, Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not request.transactional_id:
        return refusal(ErrorCode.INVALID_REQUEST)

    def known(reply: Message) -> Message:
        reply = cast(EndTxnResponse, reply)
        reply.error_code = _known(call, reply.error_code)
        return reply

    return ask_shard(
        context.transactions.shards, call, request.transactional_id, request, refusal, now, known
    )


def _known(call: Call, code: int) -> int:
    """An error code in a form that the client's version knows."""
    is_too_new = code == ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_too_new else code


def describe_transactions(
    context: "TransactionPort", call: Call, request: DescribeTransactionsRequest, now: Instant
) -> AnsweredInSteps:
    """State and partitions of transactions, without topics that the caller may not see (KIP-664)."""
    refused: list[TransactionState] = []
    asked: list[tuple[int | None, Message, Refusal]] = []
    for one in dict.fromkeys(request.transactional_ids):
        now = yield
        if not context.allow(call, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, one):
            refused.append(
                TransactionState(
                    error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id=one
                )
            )
        else:
            command = DescribeTransactionsRequest(transactional_ids=[one])
            asked.append((context.transactions.shards.shard_of(one), command, _undescribed(one)))

    def whole(parts: list[Message]) -> InSteps[Message]:
        states = [
            *refused,
            *(
                state
                for part in parts
                for state in cast(DescribeTransactionsResponse, part).transaction_states
            ),
        ]
        for state in states:
            seen = []
            for one in state.topics:
                if context.may(call, Operation.DESCRIBE, Resource.TOPIC, one.topic):
                    seen.append(one)
                yield
            state.topics = seen
            yield
        return DescribeTransactionsResponse(transaction_states=states)

    return gather(context, call, asked, whole, now, context.transactions.shards)


def _undescribed(transactional_id: str) -> Callable[[ErrorCode], Message]:
    def refusal(code: ErrorCode) -> Message:
        state = TransactionState(error_code=code, transactional_id=transactional_id)
        return DescribeTransactionsResponse(transaction_states=[state])

    return refusal


def list_transactions(
    context: "TransactionPort", call: Call, request: ListTransactionsRequest, now: Instant
) -> Answer:
    """Every transaction that passes the filters and that the caller may see (KIP-664, KIP-994, KIP-1152)."""

    def refused(reason: Refused) -> Message:
        return ListTransactionsResponse(error_code=reason.code)

    pattern = request.transactional_id_pattern
    return with_pattern(context.jobs, call, pattern, partial(_listed, context, call, request), refused, now)


def _listed(context: "TransactionPort", call: Call, request: ListTransactionsRequest, now: Instant) -> Answer:
    try:
        nothing = listed(request, {}, now)
    except Refused as refused:
        return ListTransactionsResponse(error_code=refused.code)
    shards = context.transactions.shards

    def whole(parts: list[Message]) -> InSteps[Message]:
        # Transactions of a shard that moved to another broker are left out: that broker lists them.
        codes = [part.error_code for part in cast(list[ListTransactionsResponse], parts)]
        error = next((code for code in codes if code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)), 0)
        found = [
            state for part in cast(list[ListTransactionsResponse], parts) for state in part.transaction_states
        ]
        seen = []
        for one in found:
            if context.may(call, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, one.transactional_id):
                seen.append(one)
            yield
        return ListTransactionsResponse(
            error_code=error,
            unknown_state_filters=nothing.unknown_state_filters,
            transaction_states=[] if error else seen,
        )

    asked: list[tuple[int | None, Message, Refusal]] = [
        (index, request, lambda code: ListTransactionsResponse(error_code=code)) for index in shards.shards()
    ]
    return gather(context, call, asked, whole, now, shards)
