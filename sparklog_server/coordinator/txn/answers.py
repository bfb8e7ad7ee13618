"""The answers to AddPartitionsToTxn, DescribeTransactions and ListTransactions."""

from collections.abc import Callable, Mapping

from sparklog.errors import ErrorCode
from sparklog.model import Instant, TopicPartition
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from sparklog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from sparklog.wire.messages.list_transactions import TransactionState as ListedState
from sparklog_server.coordinator.group.subscriptions import compiled

from .states import ENDING, NAMES, Transaction
from .waits import Completions


def partitions_of(asked: AddPartitionsToTxnTransaction) -> frozenset[TopicPartition]:
    """The partitions of a request."""
    return frozenset(
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    )


def told(
    asked: AddPartitionsToTxnTransaction, code_for: Callable[[TopicPartition], ErrorCode]
) -> AddPartitionsToTxnResponse:
    """The answer for one transaction, in the form of the newer versions."""
    topics = [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, code_for(TopicPartition(topic.name, index)))
                for index in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    return AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult(asked.transactional_id, topics)]
    )


def refused_add(asked: AddPartitionsToTxnTransaction, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """An answer with one code for every partition."""
    return told(asked, lambda _: code)


def added(asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResponse:
    """The answer if every partition is added."""
    return refused_add(asked, ErrorCode.NONE)


def verified(
    asked: AddPartitionsToTxnTransaction, partitions: frozenset[TopicPartition]
) -> AddPartitionsToTxnResponse:
    """The answer of a verification; a missing partition gets TRANSACTION_ABORTABLE (KIP-1050)."""
    return told(asked, lambda one: ErrorCode.NONE if one in partitions else ErrorCode.TRANSACTION_ABORTABLE)


def described(
    request: DescribeTransactionsRequest, transactions: Mapping[str, Transaction], completions: Completions
) -> DescribeTransactionsResponse:
    """The state and partitions of each id; of an ending transaction, the partitions without a marker
    (KIP-664).
    """
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(one, transactions.get(one), completions) for one in request.transactional_ids
        ]
    )


def _described(
    transactional_id: str, transaction: Transaction | None, completions: Completions
) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    if transaction is None:
        return TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
        )
    partitions = sorted(transaction.partitions)
    completing = completions.of(transactional_id) if transaction.state in ENDING else None
    topics: dict[str, list[int]] = {}
    for topic, index in partitions if completing is None else completing.missing:
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=NAMES[transaction.state],
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic, indexes) for topic, indexes in topics.items()],
    )


def listed(
    request: ListTransactionsRequest, transactions: Mapping[str, Transaction], now: Instant
) -> ListTransactionsResponse:
    """The transactions that pass every filter; an empty filter passes all (KIP-664, KIP-994, KIP-1152).

    Raises Refused with INVALID_REGULAR_EXPRESSION.
    """
    known = {name: state for state, name in NAMES.items()}
    states = [known[name] for name in request.state_filters if name in known]
    pattern = compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None
    producer_ids = frozenset(request.producer_id_filters)
    found = [
        ListedState(transactional_id, transaction.producer_id, NAMES[transaction.state])
        for transactional_id, transaction in transactions.items()
        if (not producer_ids or transaction.producer_id in producer_ids)
        and (not request.state_filters or transaction.state in states)
        and (request.duration_filter < 0 or now.wall_ms - transaction.start_ms > request.duration_filter)
        and (pattern is None or pattern.matches(transactional_id))
    ]
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in known]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)
