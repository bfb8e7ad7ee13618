"""The shard of transactions: one partition of `__transaction_state`, replayed.

    request ───► decide ─► moves.py: may it, and what becomes of the transaction? ─► one record ─► the reply
    MarkersWritten, Verdict ──┘                                                        └─► MarkersDue, with a Prepare*
    tick ─► timeouts ─► abort, or VerdictDue │ markers to be tried again │ ids that nobody uses │ requests that waited

Whatever is decided is replayed at once, so a request that comes next sees it; that nobody is told before
it is committed is the runtime's affair. A transaction that would end without a single marker is complete
in the same batch.
"""  # noqa: E501

from collections.abc import Callable, Iterator
from typing import cast

from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Instant, Micros, Offset, ProducerId, TopicPartition
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from sparklog.wire.messages.describe_transactions import DescribeTransactionsRequest
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.list_transactions import ListTransactionsRequest
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command
from sparklog_server.coordinator.shard import NOTHING, Answer, CoordinatorRecord, Decision
from sparklog_server.metadata.features import TRANSACTION_VERSION
from sparklog_server.metadata.image import MetadataDelta, MetadataImage
from sparklog_server.outcome import Refused

from . import moves
from .answers import added, described, listed, partitions_of, refused_add, verified
from .events import DUE, AddOffsets, MarkersDue, MarkersWritten, Verdict, VerdictDue
from .events import Answer as Said
from .records import decode_record, encode_record
from .states import (
    BUMPING,
    ENDING,
    FINISHED,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    State,
    Transaction,
    completed,
    ended,
    may_be_forgotten,
)
from .transaction_config import TransactionConfig
from .waits import Completing, Completions, Held, Timeouts

RESOLVED_PREFIX = "sl."
"""Ids whose outcome a resolver may know: those of the exactly-once sink."""
_LATEST_CLIENT = 2
_BROKERS_SINCE = 4
"""The version of AddPartitionsToTxn from which many transactions may be asked for, and partitions only
verified (KIP-890).
"""
_BUMPING_SINCE = 5
"""The version of EndTxn whose clients take a new epoch from the answer (KIP-890)."""
_AT_ONCE_MAX = 100
"""Timeouts, retries and requests that waited, of which so many are decided in one turn of the loop."""
_LOOKED_AT_ONCE_MAX = 2_000
"""Ids that are looked at in one turn of the loop, for whether anybody uses them or they are to go on: a
tenth of a millisecond.
"""

Decide = Callable[[Command, object, Instant], Decision]


class TxnShard:
    """`coordinator.shard.Shard` for transactional ids. `transactions` is all that is durable."""

    def __init__(
        self,
        settings: TransactionConfig,
        *,
        take_producer_id: Callable[[], ProducerId | None],
        trace: Callable[..., None],
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._settings = settings
        self._take_producer_id = take_producer_id
        self._trace = trace
        self._server_version = 0
        self._completions = Completions()
        self._timeouts: Timeouts | None = None
        self._last_epochs: dict[
            str, int
        ] = {}  # which InitProducerId bumped, where it was told: lost by a reload, as in Kafka
        self._expiry_due: Micros | None = None
        self._looked_for: Iterator[str] | None = (
            None  # the ids that the search for unused ones has not come to yet
        )
        self._resumed_next: Iterator[str] | None = (
            None  # the ids whose time does not run yet since the shard was loaded
        )
        self._decides: dict[type[Message], Decide] = {
            InitProducerIdRequest: self._init,
            AddPartitionsToTxnRequest: self._add_partitions,
            AddOffsets: self._add_offsets,
            EndTxnRequest: self._end,
            MarkersWritten: self._markers_written,
            Verdict: self._verdict,
            DescribeTransactionsRequest: self._describe,
            ListTransactionsRequest: self._list,
        }

    # -- the log

    def replay(self, key: bytes, value: bytes | None, offset: Offset) -> None:
        self.replay_own(decode_record(key, value), offset)

    def replay_own(self, message: object, offset: Offset) -> None:
        transactional_id, transaction = cast("tuple[str, Transaction | None]", message)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction

    def replay_undecided(self, producer_id: int, key: bytes, value: bytes | None, offset: Offset) -> None:
        raise DecodeError("a record of a transaction, where none is ever written", 0)

    def replay_marker(self, producer_id: int, is_commit: bool, offset: Offset) -> None:
        """Nothing here waits for one."""

    def unfinished(self) -> dict[str, object]:
        return {
            name: transaction
            for name, transaction in self.transactions.items()
            if transaction.state not in FINISHED
        }

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]:
        """Time begins to run for what is open, and what was about to end goes on: for some ids now, for
        the others in turns to come.
        """
        self._server_version = image.features.get(TRANSACTION_VERSION, 0)
        self._timeouts = Timeouts(self._settings.abort_interval_ms, now)
        self._expiry_due = Micros(now.mono_us + self._settings.expiry_interval_ms * 1000)
        self._resumed_next = iter(list(self.transactions))
        return self._resume(self._resumed_next, now)

    def _resume(self, resumed_next: Iterator[str], now: Instant) -> list[Decision]:
        """Go on with some of what the shard was loaded with, unless a request was there before: time runs
        then, or markers are due.
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
            if transaction.state is State.ONGOING and not self._running.has(transactional_id):
                self._opened(transactional_id, transaction, now)
                resumed += 1
            elif transaction.state in ENDING and self._completions.of(transactional_id) is None:
                self._completions.begin(transactional_id, transaction.partitions)
                decisions.append(self._markers_or_complete(transactional_id, transaction, now))
                resumed += 1
        return decisions

    # -- what follows from a move

    def _moved(self, transactional_id: str, after: Transaction, now: Instant, *answers: Answer) -> Decision:
        """The record of a transaction as it is from now on, and what is to be done because of it."""
        before = self.transactions.get(transactional_id)
        records = (encode_record(transactional_id, after, self._server_version),)
        if after.state is State.ONGOING:
            if before is None or before.state is not State.ONGOING:
                self._opened(transactional_id, after, now)
            return Decision(records, answers)
        self._running.end(transactional_id)
        if after.state in ENDING:
            if before is None or before.producer_epoch != after.producer_epoch:
                self._last_epochs.pop(transactional_id, None)  # what the end bumped tells a retry from now on
            self._completions.begin(transactional_id, after.partitions)
            rest = self._markers_or_complete(transactional_id, after, now)
            return Decision((*records, *rest.records), (*answers, *rest.answers))
        return Decision(records, answers)

    def _markers_or_complete(self, transactional_id: str, transaction: Transaction, now: Instant) -> Decision:
        completing = self._completions.of(transactional_id)
        assert completing is not None
        if completing.missing:
            return Decision((), (self._markers_due(transactional_id, transaction, completing),))
        self._completions.end(transactional_id)
        after = completed(transaction, now.wall_ms)
        return Decision((encode_record(transactional_id, after, self._server_version),))

    def _markers_due(self, transactional_id: str, transaction: Transaction, completing: Completing) -> Answer:
        due = MarkersDue(
            transactional_id=transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            is_commit=transaction.state is State.PREPARE_COMMIT,
            transaction_version=transaction.client_version,
            partitions=tuple(completing.missing),
            end=completing.end,
        )
        return Answer(due, DUE)

    @property
    def _running(self) -> Timeouts:
        assert self._timeouts is not None, "nothing is decided before everything is replayed"
        return self._timeouts

    def _opened(self, transactional_id: str, transaction: Transaction, now: Instant) -> None:
        if transaction.timeout_ms == NO_TIMEOUT_MS:
            return
        # What the wall clock says was measured by another process, and the clock may have been set since:
        # never below 0.
        elapsed_ms = min(max(now.wall_ms - transaction.start_ms, 0), transaction.timeout_ms)
        longest_ms = max(self._settings.timeout_max_ms, transaction.timeout_ms)
        self._running.begin(
            transactional_id,
            elapsed_ms=elapsed_ms,
            timeout_ms=transaction.timeout_ms,
            longest_ms=longest_ms,
            now=now,
        )

    def _producer_id(self) -> ProducerId:
        producer_id = self._take_producer_id()
        if producer_id is None:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return producer_id

    # -- requests

    def decide(self, command: Command, token: object, now: Instant) -> Decision:
        return self._decides[type(command.request)](command, token, now)

    def _waits(
        self, transactional_id: str, refused: Refused, command: Command, token: object, now: Instant
    ) -> bool:
        """Whether a request can wait for the end of the transaction before it, in place of being told to
        come again.
        """
        completing = self._completions.of(transactional_id)
        is_too_early = refused.code is ErrorCode.CONCURRENT_TRANSACTIONS and completing is not None
        return is_too_early and self._completions.hold(
            cast(Completing, completing), Held(transactional_id, command, token), now
        )

    def _init(self, command: Command, token: object, now: Instant) -> Decision:
        request = cast(InitProducerIdRequest, command.request)
        transactional_id = request.transactional_id or ""
        before = self.transactions.get(transactional_id)
        try:
            timeout_ms = moves.check_init(request, self._settings)
            last_epoch = (
                NO_EPOCH
                if before is None
                else self._last_epochs.get(transactional_id, before.epoch_before_end)
            )
            after = moves.init(
                before, request, timeout_ms, last_epoch, self._producer_id, self._server_version, now.wall_ms
            )
        except Refused as refused:
            if self._waits(transactional_id, refused, command, token, now):
                return NOTHING
            return _answered(token, _init_refused(refused.code))
        if after.state is State.PREPARE_ABORT:
            assert before is not None
            self._trace(
                "transaction-fenced",
                id=transactional_id,
                producer_id=before.producer_id,
                epoch=before.producer_epoch,
            )
            decision = self._moved(transactional_id, after, now)
            if self._waits(transactional_id, Refused(ErrorCode.CONCURRENT_TRANSACTIONS), command, token, now):
                return decision
            answer = Answer(token, _init_refused(ErrorCode.CONCURRENT_TRANSACTIONS))
            return Decision(decision.records, (*decision.answers, answer))
        self._last_epochs.pop(transactional_id, None)
        if before is not None and request.producer_epoch != NO_EPOCH:
            # What a retry of this very request would still name.
            is_bumped = (
                after.producer_epoch != before.producer_epoch or after.producer_id != before.producer_id
            )
            self._last_epochs[transactional_id] = (
                before.producer_epoch if is_bumped else request.producer_epoch
            )
        reply = InitProducerIdResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
        return self._moved(transactional_id, after, now, Answer(token, reply))

    def _add_partitions(self, command: Command, token: object, now: Instant) -> Decision:
        """One transaction; that of old clients is told in the form of the newer versions, and answered so."""
        request = cast(AddPartitionsToTxnRequest, command.request)
        asked = request.transactions[0]
        transactional_id, partitions = asked.transactional_id, partitions_of(asked)
        before = self.transactions.get(transactional_id)
        client_version = _LATEST_CLIENT if command.version >= _BROKERS_SINCE else 0
        try:
            if asked.verify_only:
                transaction = moves.check_verifies(before, asked.producer_id, asked.producer_epoch)
                return _answered(token, verified(asked, transaction.partitions))
            transaction = moves.check_adds(before, asked.producer_id, asked.producer_epoch)
            return self._joined(
                transactional_id, transaction, partitions, client_version, now, Answer(token, added(asked))
            )
        except Refused as refused:
            if not asked.verify_only and self._waits(transactional_id, refused, command, token, now):
                return NOTHING
            return _answered(token, refused_add(asked, refused.code))

    def _add_offsets(self, command: Command, token: object, now: Instant) -> Decision:
        request = cast(AddOffsets, command.request)
        try:
            before = self.transactions.get(request.transactional_id)
            transaction = moves.check_adds(before, request.producer_id, request.producer_epoch)
            partitions = frozenset((request.partition,))
            return self._joined(
                request.transactional_id,
                transaction,
                partitions,
                0,
                now,
                Answer(token, AddOffsetsToTxnResponse()),
            )
        except Refused as refused:
            if self._waits(request.transactional_id, refused, command, token, now):
                return NOTHING
            return _answered(token, AddOffsetsToTxnResponse(error_code=refused.code))

    def _joined(
        self,
        transactional_id: str,
        before: Transaction,
        partitions: frozenset[TopicPartition],
        client_version: int,
        now: Instant,
        answer: Answer,
    ) -> Decision:
        after = moves.add(before, partitions, client_version, now.wall_ms)
        if after is None:
            return Decision((), (answer,))
        decision = self._moved(transactional_id, after, now, answer)
        if _size(decision.records) > self._settings.record_bytes_max:
            if before.state is not State.ONGOING:
                self._running.end(transactional_id)
            # As Kafka answers when its own log refuses the record.
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        return decision

    def _end(self, command: Command, token: object, now: Instant) -> Decision:
        request = cast(EndTxnRequest, command.request)
        before = self.transactions.get(request.transactional_id)
        client_version = _LATEST_CLIENT if command.version >= _BUMPING_SINCE else 0
        try:
            if not request.transactional_id:
                raise Refused(ErrorCode.INVALID_REQUEST)
            after = moves.end(
                before,
                request.producer_id,
                request.producer_epoch,
                is_commit=request.committed,
                client_version=client_version,
                producer_ids=self._producer_id,
                now_ms=now.wall_ms,
            )
        except Refused as refused:
            return _answered(token, EndTxnResponse(error_code=refused.code))
        if after is None:
            assert before is not None
            return _answered(token, _end_told(before, client_version))
        reply = _end_told(completed(after, now.wall_ms), client_version)
        return self._moved(request.transactional_id, after, now, Answer(token, reply))

    # -- what came of what was due

    def _markers_written(self, command: Command, token: object, now: Instant) -> Decision:
        told = cast(MarkersWritten, command.request)
        transactional_id = told.transactional_id
        transaction, completing = (
            self.transactions.get(transactional_id),
            self._completions.of(transactional_id),
        )
        if transaction is None or completing is None:
            return NOTHING
        if (transaction.producer_id, transaction.producer_epoch) != (told.producer_id, told.producer_epoch):
            return NOTHING
        for partition in told.done:
            completing.missing.pop(partition, None)
        if completing.missing:
            # Also where none has failed: what was on its way when the shard was loaded anew may have been
            # some of them only.
            self._completions.try_again(completing, now)
            if told.again:
                self._trace(
                    "markers-failed",
                    id=transactional_id,
                    partitions=len(completing.missing),
                    first=str(told.again[0]),
                )
            return NOTHING
        return self._markers_or_complete(transactional_id, transaction, now)

    def _verdict(self, command: Command, token: object, now: Instant) -> Decision:
        told = cast(Verdict, command.request)
        transactional_id = told.transactional_id
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.state is not State.ONGOING:
            return NOTHING
        if (transaction.producer_id, transaction.producer_epoch) != (told.producer_id, told.producer_epoch):
            return NOTHING
        if not self._running.has(transactional_id):
            return NOTHING  # the shard was loaded anew meanwhile, and will ask once time runs again
        if told.answer is Said.COMMIT:
            return self._roll_forward(transactional_id, transaction, now)
        if told.answer is Said.ASK_AGAIN:
            if not self._running.is_given_up(transactional_id, now):
                return NOTHING
            open_ms = max(now.wall_ms - transaction.start_ms, 0)
            remedy = "what it held is lost to its sink; see sparklog transactions"
            self._trace(
                "transaction-abandoned",
                id=transactional_id,
                open_ms=open_ms,
                reason="nobody could tell its outcome",
                remedy=remedy,
            )
        return self._abort(transactional_id, transaction, now)

    def _roll_forward(self, transactional_id: str, transaction: Transaction, now: Instant) -> Decision:
        """Commit for a producer that does not come back, in its own version: if it does, its EndTxn is a
        retry.
        """
        try:
            bumps = transaction.client_version >= BUMPING and transaction.is_exhausted
            next_producer_id = self._producer_id() if bumps else NO_PRODUCER_ID
        except Refused:
            self._running.ask_again(transactional_id, now)
            return NOTHING
        after = ended(
            transaction,
            is_commit=True,
            client_version=transaction.client_version,
            next_producer_id=next_producer_id,
            now_ms=now.wall_ms,
        )
        self._trace("transaction-rolled-forward", id=transactional_id, producer_id=transaction.producer_id)
        return self._moved(transactional_id, after, now)

    def _abort(self, transactional_id: str, transaction: Transaction, now: Instant) -> Decision:
        try:
            after = moves.fence(transaction, self._producer_id, self._server_version, now.wall_ms)
        except Refused:
            self._running.ask_again(transactional_id, now)
            return NOTHING
        self._trace(
            "transaction-timed-out",
            id=transactional_id,
            producer_id=transaction.producer_id,
            timeout_ms=transaction.timeout_ms,
        )
        return self._moved(transactional_id, after, now)

    # -- administrators

    def _describe(self, command: Command, token: object, now: Instant) -> Decision:
        request = cast(DescribeTransactionsRequest, command.request)
        return _answered(token, described(request, self.transactions, self._completions))

    def _list(self, command: Command, token: object, now: Instant) -> Decision:
        return _answered(
            token, listed(cast(ListTransactionsRequest, command.request), self.transactions, now)
        )

    # -- the world, time, and those who wait

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]:
        self._server_version = delta.after.features.get(TRANSACTION_VERSION, 0)
        return []

    def tick(self, now: Instant) -> list[Decision]:
        if self._resumed_next is not None:
            return self._resume(self._resumed_next, now)  # alone, so that it sees all that was decided
        decisions = [
            self.decide(held.command, held.token, now)
            for held in self._completions.take_released(_AT_ONCE_MAX)
        ]
        decisions += [
            self._refuse_held(held.command, held.token) for held in self._completions.take_overdue(now)
        ]
        for _ in range(_AT_ONCE_MAX):
            due = self._completions.due_again(now)
            if due is None:
                break
            transactional_id, completing = due
            answer = self._markers_due(transactional_id, self.transactions[transactional_id], completing)
            decisions.append(Decision((), (answer,)))
        looks = self._running.deadline()
        if looks is not None and looks <= now.mono_us:
            decisions += self._timed_out(now)
        if not decisions and self._is_looking(now):
            return [self._forget_unused(now)]  # alone, so that it sees all that was decided
        return decisions

    def _is_looking(self, now: Instant) -> bool:
        return self._looked_for is not None or (
            self._expiry_due is not None and self._expiry_due <= now.mono_us
        )

    def _timed_out(self, now: Instant) -> list[Decision]:
        decisions = []
        for _ in range(_AT_ONCE_MAX):
            transactional_id = self._running.next(now)
            if transactional_id is None:
                break
            transaction = self.transactions[transactional_id]
            if transactional_id.startswith(RESOLVED_PREFIX):
                self._running.ask_again(transactional_id, now)
                due = VerdictDue(transactional_id, transaction.producer_id, transaction.producer_epoch)
                decisions.append(Decision((), (Answer(due, DUE),)))
            else:
                decisions.append(self._abort(transactional_id, transaction, now))
        return decisions

    def _forget_unused(self, now: Instant) -> Decision:
        """Tombstones for ids whose last move is long ago, some of the shard's ids at a time."""
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
                self._last_epochs.pop(transactional_id, None)
                records.append(encode_record(transactional_id, None, self._server_version))
        if transactional_id is None:
            self._looked_for = None
            self._expiry_due = Micros(now.mono_us + settings.expiry_interval_ms * 1000)
        return Decision(tuple(records))

    def _refuse_held(self, command: Command, token: object) -> Decision:
        request, code = command.request, ErrorCode.CONCURRENT_TRANSACTIONS
        if isinstance(request, InitProducerIdRequest):
            return _answered(token, _init_refused(code))
        if isinstance(request, AddOffsets):
            return _answered(token, AddOffsetsToTxnResponse(error_code=code))
        return _answered(token, refused_add(cast(AddPartitionsToTxnRequest, request).transactions[0], code))

    def deadline(self) -> Micros | None:
        if self._looked_for is not None or self._resumed_next is not None:
            return Micros(0)
        earliest = self._expiry_due
        for deadline in (self._completions.deadline(), self._running.deadline()):
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def abandoned(self, token: object) -> None:
        self._completions.abandoned(token)

    def waiting(self) -> list[object]:
        return self._completions.waiting()


def _answered(token: object, reply: Message) -> Decision:
    return Decision((), (Answer(token, reply),))


def _init_refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _end_told(transaction: Transaction, client_version: int) -> EndTxnResponse:
    """What a producer learns of the end of its transaction: from TV2 on, who it is in the next one."""
    if client_version < BUMPING:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)


def _size(records: tuple[CoordinatorRecord, ...]) -> int:
    return sum(len(record.key) + len(record.value or b"") for record in records)
