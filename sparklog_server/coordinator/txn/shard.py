"""The shard of transactions: one partition of `__transaction_state`, replayed.

    request of a producer ──► requests ──┐
    MarkersWritten, Verdict, timeout ────┴─► transitions ─► one record ─► reply, MarkersDue

The runtime replays a record as soon as it is appended, so the next request sees it, and sends the reply once
the record is committed.
"""

from collections.abc import Callable, Iterator

from sparklog.errors import DecodeError
from sparklog.model import Instant, Micros, Offset, ProducerId
from sparklog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from sparklog.wire.messages.describe_transactions import DescribeTransactionsRequest
from sparklog.wire.messages.end_txn import EndTxnRequest
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.messages.list_transactions import ListTransactionsRequest
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.shard import NOTHING, Answer, CoordinatorRecord, Decision
from sparklog_server.metadata.features import TRANSACTION_VERSION
from sparklog_server.metadata.image import MetadataDelta, MetadataImage

from .answers import described, listed
from .events import DUE, AddOffsets, MarkersWritten, Verdict, VerdictDue
from .events import Answer as Said
from .records import TransactionUpdate, decode_record, encode_record
from .states import ENDING, State, may_be_forgotten
from .transaction_config import TransactionConfig
from .transaction_coordinator import TransactionRequests, answered
from .transitions import Transitions
from .waits import Timeouts

RESOLVED_PREFIX = "sl."
"""Ids whose outcome a resolver may know: those of the exactly-once sink."""
_AT_ONCE_MAX = 100
"""The most timeouts, retries or pending requests that one turn decides."""
_LOOKED_AT_ONCE_MAX = 2_000
"""The most ids that one turn checks for expiry, or resumes after a load: a tenth of a millisecond."""


class TxnShard:
    """`coordinator.shard.Shard` for transactional ids. Only `transactions` is durable."""

    def __init__(
        self,
        settings: TransactionConfig,
        *,
        take_producer_id: Callable[[], ProducerId | None],
        trace: Callable[..., None],
    ) -> None:
        self._transitions = Transitions(settings, take_producer_id=take_producer_id, trace=trace)
        self._requests = TransactionRequests(self._transitions, settings, trace)
        self.transactions = self._transitions.transactions
        self._settings = settings
        self._trace = trace
        self._expiry_due: Micros | None = None
        self._looked_for: Iterator[str] | None = None  # ids that the search for expired ones has yet to check
        self._resumed_next: Iterator[str] | None = None  # ids that are yet to be resumed after the load

    # -- the log

    def replay(self, key: bytes, value: bytes | None, offset: Offset) -> None:
        self.replay_own(decode_record(key, value), offset)

    def replay_own(self, message: object, offset: Offset) -> None:
        assert isinstance(message, TransactionUpdate)
        transactional_id, transaction = message
        if transaction is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction

    def replay_undecided(self, producer_id: int, key: bytes, value: bytes | None, offset: Offset) -> None:
        raise DecodeError("a transactional record in a partition that has none", 0)

    def replay_marker(self, producer_id: int, is_commit: bool, offset: Offset) -> None:
        """No record of this partition waits for a marker."""

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]:
        """Begin to resume the open and the ending transactions, a few in each turn."""
        self._transitions.server_version = image.features.get(TRANSACTION_VERSION, 0)
        self._transitions.timeouts = Timeouts(self._settings.abort_interval_ms, now)
        self._expiry_due = Micros(now.mono_us + self._settings.expiry_interval_ms * 1000)
        self._resumed_next = iter(list(self.transactions))
        return self._resume(self._resumed_next, now)

    def _resume(self, resumed_next: Iterator[str], now: Instant) -> list[Decision]:
        """Resume some transactions: start the timeout of an open one, write the markers of an ending one. A
        request may have resumed a transaction before.
        """
        decisions: list[Decision] = []
        resumed = 0
        for _ in range(_LOOKED_AT_ONCE_MAX):
            if resumed == _AT_ONCE_MAX:
                return decisions
            transactional_id = next(resumed_next, None)
            if transactional_id is None:
                self._resumed_next = None
                break
            transaction = self.transactions.get(transactional_id)
            if transaction is None:
                continue
            if transaction.state is State.ONGOING and not self._transitions.running.has(transactional_id):
                self._transitions.opened(transactional_id, transaction, now)
                resumed += 1
            elif transaction.state in ENDING and self._transitions.completions.of(transactional_id) is None:
                self._transitions.completions.begin(transactional_id, transaction.partitions)
                decisions.append(self._transitions.markers_or_complete(transactional_id, transaction, now))
                resumed += 1
        return decisions

    # -- commands

    def decide(self, command: Command, token: Token, now: Instant) -> Decision:
        match command.request:
            case InitProducerIdRequest() as request:
                return self._requests.init(request, command, token, now)
            case AddPartitionsToTxnRequest() as request:
                return self._requests.add_partitions(request, command, token, now)
            case AddOffsets() as request:
                return self._requests.add_offsets(request, command, token, now)
            case EndTxnRequest() as request:
                return self._requests.end(request, command, token, now)
            case MarkersWritten() as written:
                return self._markers_written(written, now)
            case Verdict() as verdict:
                return self._verdict(verdict, now)
            case DescribeTransactionsRequest() as request:
                found = described(request, self.transactions, self._transitions.completions)
                return answered(token, found)
            case ListTransactionsRequest() as request:
                return answered(token, listed(request, self.transactions, now))
        raise AssertionError(f"no command of a transaction shard: {command.request}")

    def _markers_written(self, written: MarkersWritten, now: Instant) -> Decision:
        transactional_id = written.transactional_id
        transaction, completing = (
            self.transactions.get(transactional_id),
            self._transitions.completions.of(transactional_id),
        )
        if transaction is None or completing is None:
            return NOTHING
        if (transaction.producer_id, transaction.producer_epoch) != (
            written.producer_id,
            written.producer_epoch,
        ):
            return NOTHING
        for partition in written.done:
            completing.missing.pop(partition, None)
        if completing.missing:
            # Also if none has failed: markers requested before the last load cover fewer partitions.
            self._transitions.completions.try_again(completing, now)
            if written.again:
                self._trace(
                    "markers-failed",
                    id=transactional_id,
                    partitions=len(completing.missing),
                    first=str(written.again[0]),
                )
            return NOTHING
        return self._transitions.markers_or_complete(transactional_id, transaction, now)

    def _verdict(self, verdict: Verdict, now: Instant) -> Decision:
        transactional_id = verdict.transactional_id
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.state is not State.ONGOING:
            return NOTHING
        if (transaction.producer_id, transaction.producer_epoch) != (
            verdict.producer_id,
            verdict.producer_epoch,
        ):
            return NOTHING
        if not self._transitions.running.has(transactional_id):
            return NOTHING  # the shard was loaded anew since, and asks again after the timeout
        if verdict.answer is Said.COMMIT:
            return self._transitions.roll_forward(transactional_id, transaction, now)
        if verdict.answer is Said.ASK_AGAIN:
            if not self._transitions.running.is_given_up(transactional_id, now):
                return NOTHING
            open_ms = max(now.wall_ms - transaction.start_ms, 0)
            remedy = "the records of this transaction are lost to the sink; see sparklog transactions"
            self._trace(
                "transaction-abandoned",
                id=transactional_id,
                open_ms=open_ms,
                reason="the outcome is unknown",
                remedy=remedy,
            )
        return self._transitions.abort(transactional_id, transaction, now)

    # -- the image, time, and pending requests

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]:
        self._transitions.server_version = delta.after.features.get(TRANSACTION_VERSION, 0)
        return []

    def tick(self, now: Instant) -> list[Decision]:
        if self._resumed_next is not None:
            return self._resume(self._resumed_next, now)  # alone: a search must see every decision replayed
        decisions = [
            self.decide(pending.command, pending.token, now)
            for pending in self._transitions.completions.take_released(_AT_ONCE_MAX)
        ]
        decisions += [
            self._requests.refuse_pending(pending.command, pending.token)
            for pending in self._transitions.completions.take_overdue(now)
        ]
        for _ in range(_AT_ONCE_MAX):
            due = self._transitions.completions.due_again(now)
            if due is None:
                break
            transactional_id, completing = due
            answer = self._transitions.markers_due(
                transactional_id, self.transactions[transactional_id], completing
            )
            decisions.append(Decision((), (answer,)))
        looks = self._transitions.running.deadline()
        if looks is not None and looks <= now.mono_us:
            decisions += self._timed_out(now)
        if not decisions and self._is_looking(now):
            return [self._forget_unused(now)]  # alone: a search must see every decision replayed
        return decisions

    def _is_looking(self, now: Instant) -> bool:
        return self._looked_for is not None or (
            self._expiry_due is not None and self._expiry_due <= now.mono_us
        )

    def _timed_out(self, now: Instant) -> list[Decision]:
        decisions = []
        for _ in range(_AT_ONCE_MAX):
            transactional_id = self._transitions.running.next(now)
            if transactional_id is None:
                break
            transaction = self.transactions[transactional_id]
            if transactional_id.startswith(RESOLVED_PREFIX):
                self._transitions.running.ask_again(transactional_id, now)
                due = VerdictDue(transactional_id, transaction.producer_id, transaction.producer_epoch)
                decisions.append(Decision((), (Answer(due, DUE),)))
            else:
                decisions.append(self._transitions.abort(transactional_id, transaction, now))
        return decisions

    def _forget_unused(self, now: Instant) -> Decision:
        """Tombstones for expired ids; checks some of the ids in each turn."""
        settings = self._settings
        if self._looked_for is None:
            self._looked_for = iter(list(self.transactions))
        records: list[CoordinatorRecord] = []
        transactional_id: str | None = ""
        for _ in range(_LOOKED_AT_ONCE_MAX):
            if len(records) == _AT_ONCE_MAX or (transactional_id := next(self._looked_for, None)) is None:
                break
            transaction = self.transactions.get(transactional_id)
            if transaction is None or not may_be_forgotten(transaction):
                continue
            kept_ms = settings.expiration_ms
            if transactional_id.startswith(RESOLVED_PREFIX):
                kept_ms = min(kept_ms, settings.resolved_expiration_ms)
            if transaction.update_ms <= now.wall_ms - kept_ms:
                self._transitions.last_epochs.pop(transactional_id, None)
                records.append(encode_record(transactional_id, None, self._transitions.server_version))
        if transactional_id is None:
            self._looked_for = None
            self._expiry_due = Micros(now.mono_us + settings.expiry_interval_ms * 1000)
        return Decision(tuple(records))

    def deadline(self) -> Micros | None:
        if self._looked_for is not None or self._resumed_next is not None:
            return Micros(0)
        earliest = self._expiry_due
        for deadline in (self._transitions.completions.deadline(), self._transitions.running.deadline()):
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def abandoned(self, token: Token) -> None:
        self._transitions.completions.abandoned(token)

    def waiting(self) -> list[Token]:
        return self._transitions.completions.waiting()

    def dropped(self) -> None:
        self._transitions.completions.withdraw()
