"""Brokers with one rule of transactions switched off each, to test that the history checker finds the fault.

A broker is altered in its composition: other handlers, another transaction shard, another port to the writer
of markers.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import structs

from sparklog.effects import Effect, FileSlice
from sparklog.errors import ErrorCode
from sparklog.model import Instant, Offset, Ticket, TopicPartition
from sparklog.wire.messages.end_txn import EndTxnRequest
from sparklog.wire.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse, PartitionData
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.messages.offset_fetch import OffsetFetchRequest
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.broker import Broker
from sparklog_server.broker.context import Context
from sparklog_server.broker.coordinators.coordinator_requests import ask_shard
from sparklog_server.broker.coordinators.transaction_coordinator_service import (
    MarkersDone,
    TransactionCoordinator,
    WriteMarkers,
)
from sparklog_server.broker.dispatch import HANDLERS
from sparklog_server.broker.handlers.fetch import fetch
from sparklog_server.broker.handlers.group_offsets import offset_fetch
from sparklog_server.broker.session import Call, Parked
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.group.offsets import refused_txn_commit
from sparklog_server.coordinator.shard import Answer, Decision
from sparklog_server.coordinator.txn.events import MarkersDue
from sparklog_server.coordinator.txn.records import decode_record
from sparklog_server.coordinator.txn.shard import TxnShard
from sparklog_server.coordinator.txn.states import ENDING
from sparklog_server.simulation.transaction_history import TOPIC

FETCH, OFFSET_FETCH, TXN_OFFSET_COMMIT = 1, 9, 28


# -- readers


def _fetch_at_once(context: Context, call: Call, request: FetchRequest, now: Instant) -> FetchResponse:
    request.max_wait_ms = 0
    answer = fetch(context, call, request, now)
    assert isinstance(answer, FetchResponse)
    return answer


def _parts(answer: FetchResponse) -> Iterator[tuple[str, PartitionData]]:
    for topic in answer.responses:
        for part in topic.partitions:
            yield topic.topic, part


def fetch_beyond_the_last_stable_offset(
    context: Context, call: Call, request: FetchRequest, now: Instant
) -> FetchResponse:
    """A read_committed reader gets all records, and the list of aborted transactions so far."""
    is_committed, request.isolation_level = request.isolation_level, 0
    answer = _fetch_at_once(context, call, request, now)
    starts = {
        (topic.topic, part.partition): part.fetch_offset
        for topic in request.topics
        for part in topic.partitions
    }
    for name, part in _parts(answer) if is_committed else ():
        partition = context.partitions.find(name, part.partition_index)
        if partition is not None and isinstance(part.records, FileSlice):
            start = Offset(starts[name, part.partition_index])
            found = partition.disk.aborted_within(part.records, start, partition.high_watermark)
            part.aborted_transactions = [
                AbortedTransaction(one.producer_id, one.first_offset) for one in found
            ]
    return answer


def fetch_without_aborted_transactions(
    context: Context, call: Call, request: FetchRequest, now: Instant
) -> FetchResponse:
    """A read_committed reader gets an empty list of aborted transactions."""
    answer = _fetch_at_once(context, call, request, now)
    for _, part in _parts(answer):
        part.aborted_transactions = []
    return answer


def offsets_never_unstable(
    context: Context, call: Call, request: OffsetFetchRequest, now: Instant
) -> Message | Parked:
    """A request for stable offsets gets undecided ones."""
    request.require_stable = False
    return offset_fetch(context, call, request, now)


def offsets_at_once(
    context: Context, call: Call, request: TxnOffsetCommitRequest, now: Instant
) -> Message | Parked:
    """Offsets of a transaction take effect before its marker: they are committed without the transaction."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic.name,
            partitions=[
                OffsetCommitRequestPartition(
                    one.partition_index, one.committed_offset, committed_metadata=one.committed_metadata
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]

    def told(reply: Message) -> Message:
        assert isinstance(reply, OffsetCommitResponse)
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic.name,
                    [
                        TxnOffsetCommitResponsePartition(one.partition_index, one.error_code)
                        for one in topic.partitions
                    ],
                )
                for topic in reply.topics
            ]
        )

    refusal = partial(refused_txn_commit, request)
    plain = OffsetCommitRequest(request.group_id, topics=topics)
    return ask_shard(context.groups, call, request.group_id, plain, refusal, now, told)


class NoLastStableOffset(Broker):
    handlers = HANDLERS | {FETCH: (fetch_beyond_the_last_stable_offset, FetchRequest)}


class NoAbortedList(Broker):
    handlers = HANDLERS | {FETCH: (fetch_without_aborted_transactions, FetchRequest)}


class OffsetsNeverUnstable(Broker):
    handlers = HANDLERS | {OFFSET_FETCH: (offsets_never_unstable, OffsetFetchRequest)}


class OffsetsAtOnce(Broker):
    handlers = HANDLERS | {TXN_OFFSET_COMMIT: (offsets_at_once, TxnOffsetCommitRequest)}


# -- fencing and recovery of transactions


class EpochBlindShard(TxnShard):
    """Treats every producer of an id as the newest."""

    def decide(self, command: Command, token: object, now: Instant) -> Decision:
        request = command.request
        if (
            isinstance(request, EndTxnRequest)
            and (known := self.transactions.get(request.transactional_id)) is not None
        ):
            request.producer_epoch = known.producer_epoch
        return super().decide(command, token, now)


class FencelessShard(TxnShard):
    """Gives a new producer of an id the producer id and epoch of the older one, and leaves open transactions
    open.
    """

    def decide(self, command: Command, token: object, now: Instant) -> Decision:
        request = command.request
        if (
            isinstance(request, InitProducerIdRequest)
            and (known := self.transactions.get(request.transactional_id or "")) is not None
        ):
            reply = InitProducerIdResponse(producer_id=known.producer_id, producer_epoch=known.producer_epoch)
            return Decision((), (Answer(token, reply),))
        return super().decide(command, token, now)


class ForgetfulShard(TxnShard):
    """Does not resume, after a crash, a transaction that was about to end."""

    def replay(self, key: bytes, value: bytes | None, offset: Offset) -> None:
        _, transaction = decode_record(key, value)
        if transaction is None or transaction.state not in ENDING:
            super().replay(key, value, offset)


class EpochBlindTransactions(TransactionCoordinator):
    shard_class = staticmethod(lambda: EpochBlindShard)


class FencelessTransactions(TransactionCoordinator):
    shard_class = staticmethod(lambda: FencelessShard)


class ForgetfulTransactions(TransactionCoordinator):
    shard_class = staticmethod(lambda: ForgetfulShard)


class EpochNotChecked(Broker):
    transactions = EpochBlindTransactions


class NobodyFenced(Broker):
    transactions = FencelessTransactions


class PrepareNotReplayed(Broker):
    transactions = ForgetfulTransactions


# -- markers


def lose_one(
    write: WriteMarkers, due: MarkersDue, coordinator_epoch: int, done: MarkersDone, now: Instant
) -> None:
    """All but the last partition get their marker, and all are reported as done."""
    *kept, lost = due.partitions

    def told(outcomes: Mapping[TopicPartition, ErrorCode], now: Instant) -> None:
        done({**outcomes, lost: ErrorCode.NONE}, now)

    if kept:
        write(structs.replace(due, partitions=tuple(kept)), coordinator_epoch, told, now)
    else:
        write(due, coordinator_epoch, done, now)


def always_commit(
    write: WriteMarkers, due: MarkersDue, coordinator_epoch: int, done: MarkersDone, now: Instant
) -> None:
    """Every transaction is committed in its partitions."""
    wrong = structs.replace(due, is_commit=True)
    write(wrong, coordinator_epoch, done, now)


class MarkerLost(Broker):
    def start(self, now: Instant) -> list[Effect]:
        effects = super().start(now)
        self._context.transactions._write = partial(lose_one, self._context.transactions._write)
        return effects


class MarkerWrong(Broker):
    def start(self, now: Instant) -> list[Effect]:
        effects = super().start(now)
        self._context.transactions._write = partial(always_commit, self._context.transactions._write)
        return effects


# -- partitions


class ProducersForgotten(Broker):
    """Recovery drops the producer state: sequences and epochs."""

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]:
        if not self._were_forgotten:
            for partition in self._partitions:
                if partition.topic_partition.topic == TOPIC:
                    self._were_forgotten = True
                    partition.log.producers.producers.clear()
        return super().finished(ticket, result, now)

    _were_forgotten = False


class Planted(NamedTuple):
    """A broker with a fault, and its settings."""

    broker_class: type[Broker] = Broker
    settings: dict[str, str] = {}


PLANTED = {
    "read-committed does not stop at the last stable offset": Planted(NoLastStableOffset),
    "the list of aborted transactions is empty": Planted(NoAbortedList),
    "offsets of a transaction count before it is committed": Planted(OffsetsAtOnce),
    "undecided offsets are told as stable": Planted(OffsetsNeverUnstable),
    "EndTxn is taken from any epoch": Planted(EpochNotChecked),
    "InitProducerId fences nobody": Planted(NobodyFenced),
    "a decision to end is not replayed after a crash": Planted(PrepareNotReplayed),
    "a marker is lost in one partition": Planted(MarkerLost),
    "markers commit what was aborted": Planted(MarkerWrong),
    "producers are forgotten by a crash": Planted(ProducersForgotten),
    "partitions are not verified": Planted(settings={"transaction.partition.verification.enable": "false"}),
    "what is acknowledged is not durable": Planted(settings={"sparklog.ack.flush": "never"}),
}
