"""Verification of a transaction's partitions with its coordinator before records are appended (KIP-890), and
the waiting requests.

    ask ─► the shard of the transactional id ─► told ─┬─► finish(codes) within the turn: a response or Parked
     ▲                                                └─► CONCURRENT_TRANSACTIONS, for a producer that adds
     │                                                    its partitions by writing ─┐
     └─────────────── add.partitions.to.txn.retry.backoff(.max).ms ◄─────────────────┘

A producer of transaction version 1 has added its partitions before, and they are only verified; one of
version 2 adds them by writing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, TopicPartition
from sparklog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.schema import Message
from sparklog_server.broker.coordinators.transaction_coordinator_service import TransactionCoordinator
from sparklog_server.broker.request_jobs import RequestJobs
from sparklog_server.broker.request_timers import RequestTimers
from sparklog_server.broker.session import Call, Parked, Wakeable
from sparklog_server.config.settings import BrokerSettings

if TYPE_CHECKING:
    from sparklog_server.broker.coordinators.transaction_peers import TransactionPeers

Codes = Mapping[TopicPartition, ErrorCode]
Finish = Callable[[Codes, Instant], Message | Parked]

_WAIT_MS = 30_000  # Kafka's default request.timeout.ms: a client has given up by then


class VerificationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The transaction and its partitions; `knows_abortable` says whether the client's version knows
    TRANSACTION_ABORTABLE.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds_partitions: bool
    knows_abortable: bool
    is_retried: bool


class VerifyingPort(Protocol):
    """What a verification uses of the broker."""

    transactions: TransactionCoordinator
    jobs: RequestJobs
    timers: RequestTimers
    woken: dict[Wakeable, None]

    @property
    def settings(self) -> BrokerSettings: ...

    def transaction_peers(self) -> "TransactionPeers": ...


class TransactionVerification:
    """One request to a coordinator, and the Produce that waits for it with its session muted. `copies` counts
    the copied bytes of the Produce.
    """

    __slots__ = (
        "_asking",
        "_begun_us",
        "_codes",
        "_context",
        "_copied_bytes",
        "_finish",
        "_is_over",
        "_is_resting",
        "_waiting_call",
    )

    call = None  # the coordinator answers even when the session has ended

    def __init__(
        self,
        context: VerifyingPort,
        call: Call,
        asking: VerificationRequest,
        finish: Finish,
        copies: Sequence[bytearray],
        now: Instant,
    ) -> None:
        self._context = context
        self._waiting_call = call
        self._asking = asking
        self._finish = finish
        self._begun_us = now.mono_us
        self._codes: dict[TopicPartition, ErrorCode] = {}
        self._is_over = self._is_resting = False
        self._copied_bytes = context.jobs.hold(copies)

    def ask(self, now: Instant) -> None:
        """Ask, or ask again."""
        self._is_resting = False
        context, transaction = self._context, _transaction_of(self._asking)
        node = context.transactions.shards.leader_of(transaction.transactional_id)
        if node in (None, context.settings.node_id):
            code = context.transactions.vouch(transaction, self, now)
        else:
            code = context.transaction_peers().verify(node, transaction, self, now)
        self._context.timers.park(_Timer(self._waiting_call, self), _WAIT_MS, now)
        if code is not ErrorCode.NONE:
            self.refused(code)

    def answered(self, reply: Message) -> None:
        """The coordinator's error code for each partition."""
        assert isinstance(reply, AddPartitionsToTxnResponse)
        self._codes = {
            TopicPartition(topic.name, part.partition_index): self._translated(
                code_of(part.partition_error_code)
            )
            for result in reply.results_by_transaction
            for topic in result.topic_results
            for part in topic.results_by_partition
        }
        self._context.woken[self] = None

    def refused(self, code: ErrorCode) -> None:
        """There is no coordinator to ask, or it resigned."""
        self._codes = dict.fromkeys(self._asking.partitions, self._translated(code))
        self._context.woken[self] = None

    def _translated(self, code: ErrorCode) -> ErrorCode:
        """The error code that a producer of this version expects."""
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and not self._asking.knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        return code

    def woken(self, now: Instant) -> None:
        """The codes have arrived: retry, or let the request continue."""
        if self._is_over:
            return
        is_gone = self._waiting_call.session.is_closing
        is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in self._codes.values()
        keys = self._context.settings.transactions
        if (
            is_concurrent
            and self._asking.is_retried
            and now.mono_us - self._begun_us < keys.add_retry_backoff_max_ms * 1000
        ):
            self._is_resting = True
            if is_gone:
                self._end()
            else:
                self._context.timers.park(
                    _Timer(self._waiting_call, self, is_retry=True), keys.add_retry_backoff_ms, now
                )
        elif is_gone:
            self._end()
            self._finish(self._codes, now)
        else:
            self._end()
            self._context.woken[_Told(self._waiting_call, self._finish, self._codes)] = None

    def timed_out(self) -> None:
        """The coordinator did not answer in time."""
        if not self._is_over:
            self._end()
            codes = dict.fromkeys(self._asking.partitions, ErrorCode.NETWORK_EXCEPTION)
            self._context.woken[_Told(self._waiting_call, self._finish, codes)] = None

    def abandoned(self) -> None:
        """The session has ended; its records are still appended if the partition is verified, as in Kafka,
        but the verification is not retried.
        """
        if self._is_resting and not self._is_over:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._context.jobs.let_go(self._copied_bytes)

    @property
    def is_over(self) -> bool:
        """Whether the request continues without further verification."""
        return self._is_over


def _transaction_of(asking: VerificationRequest) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in asking.partitions:
        topics.setdefault(topic, []).append(partition)
    named = [AddPartitionsToTxnTopic(name, indexes) for name, indexes in topics.items()]
    return AddPartitionsToTxnTransaction(
        asking.transactional_id, asking.producer_id, asking.producer_epoch, not asking.adds_partitions, named
    )


class _Timer:
    """The time of the next retry, or of the timeout."""

    __slots__ = ("_is_retry", "_proof", "call")

    def __init__(self, call: Call, proof: TransactionVerification, *, is_retry: bool = False) -> None:
        self.call = call
        self._proof = proof
        self._is_retry = is_retry

    def expired(self, now: Instant) -> None:
        if not self._is_retry:
            self._proof.timed_out()
        elif not self._proof.is_over:
            self._proof.ask(now)

    def abandoned(self) -> None:
        self._proof.abandoned()


class _Told(msgspec.Struct, eq=False):
    """Continue a request with the codes of its coordinator."""

    call: Call
    finish: Finish
    codes: Codes

    def woken(self, now: Instant) -> Message | Parked:
        self.call.waiting = None
        return self.finish(self.codes, now)
