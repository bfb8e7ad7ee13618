"""Administration of transactions, also for another process of the same writer: find them, end them, fence
their producers.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeVar

from msgspec import Struct, structs

from sparklog.client.admin.calls import (
    TRANSACTION_KEY,
    Caller,
    ItemsFailed,
    is_passing,
    refusal,
    settle,
)
from sparklog.client.admin.fan_out import of_coordinating_brokers
from sparklog.client.admin.storage import ActiveProducer, describe_producers
from sparklog.client.admin.topics import topics_by_name
from sparklog.client.clock import instant, now_us
from sparklog.client.failures import UnknownTopic
from sparklog.client.producer.transaction_states import END_BEFORE_V2, ProducerIdentity, follows_v2
from sparklog.client.transport.network import wait_for_topic
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout, SettingsError
from sparklog.model import Micros, NodeId, ProducerEpoch, ProducerId, TopicPartition
from sparklog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from sparklog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

T = TypeVar("T")

_TRANSACTIONS_TOPIC: Final = "__transaction_state"
PARTITIONS_AT_ONCE: Final = 500
"""The partitions in one DescribeProducers request, as in Kafka's tool."""


class TransactionListing(Struct, frozen=True, order=True):
    """A transactional id and the state of its transaction: Empty, Ongoing, PrepareCommit, CompleteAbort …"""

    transactional_id: str
    producer_id: ProducerId
    state: str
    coordinator: NodeId


class TransactionDescription(Struct, frozen=True):
    """A transaction in the state of its coordinator; `start_time_ms` is -1 if none is open, `partitions` are
    those without a marker.
    """

    transactional_id: str
    coordinator: NodeId
    state: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(Struct, frozen=True):
    """A transaction that is open in a partition, and its producer in the state of the partition's leader."""

    partition: TopicPartition
    producer: ActiveProducer


def list_transactions(
    caller: Caller,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
    prefix: str = "",
) -> list[TransactionListing]:
    """See Admin.list_transactions."""
    if prefix and pattern is not None:
        raise SettingsError(
            f"transactions are listed by prefix={prefix} or by pattern={pattern}: leave one out"
        )
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=_quoted(prefix) + ".*" if prefix else pattern,
    )
    # Before v2 the response has all of them.
    without_prefix = structs.replace(request, transactional_id_pattern=None) if prefix else None
    replies, errors = of_coordinating_brokers(
        caller,
        _TRANSACTIONS_TOPIC,
        request,
        ListTransactionsResponse,
        lambda reply: [reply.error_code],
        otherwise=without_prefix,
    )
    for reply in replies.values():
        if reply.unknown_state_filters:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"no transaction is in state {', '.join(reply.unknown_state_filters)}",
            )
    found = {
        node: [
            TransactionListing(
                transaction.transactional_id,
                ProducerId(transaction.producer_id),
                transaction.transaction_state,
                node,
            )
            for transaction in reply.transaction_states
            if transaction.transactional_id.startswith(prefix)
        ]
        for node, reply in replies.items()
    }
    # An id that moved meanwhile is listed by two brokers.
    by_id = {one.transactional_id: one for one in chain(*settle(found, errors).values())}
    return [by_id[name] for name in sorted(by_id)]


def describe_transactions(
    caller: Caller, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription]:
    """See Admin.describe_transactions."""
    deadline = caller.deadline()

    def describe(node: NodeId, names: list[str]) -> dict[str, TransactionDescription | BrokerError]:
        reply = caller.call(
            DescribeTransactionsRequest(names), DescribeTransactionsResponse, deadline, node=node
        )
        return {
            transaction.transactional_id: refusal(
                transaction.error_code, f"transactional id {transaction.transactional_id!r}"
            )
            or TransactionDescription(
                transaction.transactional_id,
                node,
                transaction.transaction_state,
                ProducerId(transaction.producer_id),
                ProducerEpoch(transaction.producer_epoch),
                transaction.transaction_timeout_ms,
                transaction.transaction_start_time_ms,
                tuple(
                    sorted(
                        TopicPartition(topic.topic, number)
                        for topic in transaction.topics
                        for number in topic.partitions
                    )
                ),
            )
            for transaction in reply.transaction_states
        }

    return caller.of_coordinators(transactional_ids, describe, deadline, key_type=TRANSACTION_KEY)


def fence_producers(
    caller: Caller, transactional_ids: Iterable[str], *, transaction_timeout_ms: int | None = None
) -> dict[str, ProducerIdentity]:
    """See Admin.fence_producers."""
    deadline = caller.deadline()
    timeout_ms = (
        caller.settings.request_timeout_ms if transaction_timeout_ms is None else transaction_timeout_ms
    )

    def fence(node: NodeId, names: list[str]) -> dict[str, ProducerIdentity | BrokerError]:
        results: dict[str, ProducerIdentity | BrokerError] = {}
        for name in names:
            reply = caller.call(
                InitProducerIdRequest(name, timeout_ms), InitProducerIdResponse, deadline, node=node
            )
            identity = ProducerIdentity(
                name, ProducerId(reply.producer_id), ProducerEpoch(reply.producer_epoch)
            )
            results[name] = refusal(reply.error_code, f"transactional id {name!r}") or identity
        return results

    return caller.of_coordinators(transactional_ids, fence, deadline, key_type=TRANSACTION_KEY)


def end_transaction(caller: Caller, identity: ProducerIdentity, *, is_commit: bool) -> ProducerIdentity:
    """See Admin.end_transaction."""
    try:
        return end_transactions(caller, [identity], is_commit=is_commit)[identity.transactional_id]
    except ItemsFailed as failed:
        raise failed.errors[identity.transactional_id] from None


def end_transactions(
    caller: Caller, identities: Iterable[ProducerIdentity], *, is_commit: bool
) -> dict[str, ProducerIdentity]:
    """See Admin.end_transactions."""
    deadline = caller.deadline()
    by_id = {identity.transactional_id: identity for identity in identities}

    def end(node: NodeId, names: list[str]) -> dict[str, ProducerIdentity | BrokerError]:
        return _ended(caller, node, [by_id[name] for name in names], deadline, is_commit=is_commit)

    # The request is idempotent, so it may be repeated after a lost response.
    return caller.of_coordinators(by_id, end, deadline, key_type=TRANSACTION_KEY)


def _ended(
    caller: Caller, node: NodeId, identities: Sequence[ProducerIdentity], deadline: Micros, *, is_commit: bool
) -> dict[str, ProducerIdentity | BrokerError]:
    """The results of one coordinator, for the responses that arrived; several requests are in flight at a
    time.
    """
    network = caller.network
    results: dict[str, ProducerIdentity | BrokerError] = {}
    asked: list[
        tuple[ProducerIdentity]
    ] = []  # each request has its own token, so that a late response belongs to no other call
    waiting, is_broken = list(reversed(identities)), False
    while (waiting and not is_broken) or asked:
        while waiting and not is_broken and network.is_ready(node):
            version_max = None if follows_v2(network.cluster.features) else END_BEFORE_V2
            token = (waiting.pop(),)
            network.send(node, EndTxnRequest(*token[0], committed=is_commit), token, version_max=version_max)
            asked.append(token)
        if now_us() >= deadline:
            raise RequestTimeout("the coordinator of transactions did not answer in time")
        for answer in network.poll(deadline):
            token_at = next((place for place, token in enumerate(asked) if token is answer.token), None)
            if token_at is None:
                continue
            (identity,), reply = asked.pop(token_at), answer.message
            if not isinstance(reply, EndTxnResponse):
                is_broken = True  # requests without a response are repeated
                continue
            ended = identity
            if reply.producer_id >= 0:
                ended = ProducerIdentity(
                    identity.transactional_id,
                    ProducerId(reply.producer_id),
                    ProducerEpoch(reply.producer_epoch),
                )
            results[identity.transactional_id] = (
                refusal(reply.error_code, f"transactional id {identity.transactional_id!r}") or ended
            )
    return results


def abort_transaction(
    caller: Caller,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """See Admin.abort_transaction."""
    deadline = caller.deadline()
    topics = [WritableTxnMarkerTopic(partition.topic, [partition.partition])]
    # A producer that never ended a transaction has no coordinator epoch; 0 is not above that of any
    # coordinator.
    marker = WritableTxnMarker(producer_id, producer_epoch, False, topics, max(0, coordinator_epoch))
    wait_for_topic(caller.network, partition.topic, deadline, is_patient=False)
    if caller.network.cluster.partition(partition) is None:
        raise UnknownTopic(f"topic {partition.topic!r} has no partition {partition.partition}")
    while True:
        error = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        node = caller.network.cluster.leader(partition)
        if node >= 0:
            try:
                reply = caller.call(
                    WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse, deadline, node=node
                )
            except (ConnectionFailed, RequestTimeout):
                caller.network.cluster.refresh_soon()
                caller.pause(deadline)
                continue
            codes = [
                result.error_code
                for one in reply.markers
                for topic in one.topics
                for result in topic.partitions
            ]
            refused = refusal(
                codes[0] if codes else ErrorCode.UNKNOWN_SERVER_ERROR, f"{partition}, producer {producer_id}"
            )
            if refused is None:
                return
            error = refused
        if not is_passing(error.code):
            raise error
        caller.network.cluster.refresh_soon()
        caller.pause(deadline)


def open_transactions(caller: Caller, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
    """The open transactions of partitions, in the order of the partitions and of their first offsets."""
    found: list[OpenTransaction] = []
    for some in _in_lots(sorted(partitions)):
        for partition, producers in describe_producers(caller, some).items():
            begun = [producer for producer in producers if producer.transaction_start_offset >= 0]
            found += [
                OpenTransaction(partition, one)
                for one in sorted(begun, key=lambda one: one.transaction_start_offset)
            ]
    return found


def find_hanging_transactions(
    caller: Caller,
    *,
    topics: Sequence[str] | None,
    partitions: Iterable[TopicPartition],
    node: int | None,
    longer_than_ms: int,
) -> list[OpenTransaction]:
    """See Admin.find_hanging_transactions."""
    deadline = caller.deadline()
    wanted = list(partitions) or _partitions(caller, topics, node, deadline)
    latest_ms = instant().wall_ms - longer_than_ms
    candidates = [
        one for one in open_transactions(caller, wanted) if one.producer.last_timestamp_ms < latest_ms
    ]
    if not candidates:
        return []
    producer_ids = dict.fromkeys(one.producer.producer_id for one in candidates)
    names = {
        one.producer_id: one.transactional_id for one in list_transactions(caller, producer_ids=producer_ids)
    }
    described = _described(caller, names.values())
    return [
        one for one in candidates if _is_hanging(one, described.get(names.get(one.producer.producer_id, "")))
    ]


def _is_hanging(one: OpenTransaction, described: TransactionDescription | None) -> bool:
    """Whether no coordinator will ever write a marker: the transactional id is unknown, or its transaction
    does not include the partition.
    """
    return described is None or one.partition not in described.partitions


def _described(caller: Caller, transactional_ids: Iterable[str]) -> Mapping[str, TransactionDescription]:
    try:
        return describe_transactions(caller, transactional_ids)
    except ItemsFailed as failed:
        if any(error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND for error in failed.errors.values()):
            raise
        described: Mapping[str, TransactionDescription] = failed.results
        return described


def _partitions(
    caller: Caller, topics: Sequence[str] | None, node: int | None, deadline: Micros
) -> list[TopicPartition]:
    found = topics_by_name(caller, None if topics is None else list(topics), deadline)
    for name in topics or ():
        if name not in found:
            raise UnknownTopic(f"there is no topic {name!r}")
    return [
        TopicPartition(name, partition.partition)
        for name, topic in found.items()
        for partition in topic.partitions
        if node is None or node in partition.replicas
    ]


def _in_lots(given: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(given), PARTITIONS_AT_ONCE):
        yield given[start : start + PARTITIONS_AT_ONCE]


def _quoted(text: str) -> str:
    """The text as an RE2 pattern; RE2, unlike Python, does not allow an escaped blank."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
