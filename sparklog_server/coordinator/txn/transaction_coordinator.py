"""The requests of producers to the transaction coordinator: InitProducerId, AddPartitionsToTxn,
AddOffsetsToTxn and EndTxn.

Each request is checked by `checks`, and is refused or becomes a move. A request that comes before the last
transaction of its id is complete is held for a moment, because the client's own back-off is longer than the
markers take.
"""

from collections.abc import Callable

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from sparklog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.shard import NOTHING, Answer, Decision
from sparklog_server.outcome import Refused

from . import checks
from .answers import added, partitions_of, refused_add, verified
from .events import AddOffsets
from .states import BUMPING, NO_EPOCH, State, Transaction, completed
from .transaction_config import TransactionConfig
from .transitions import Transitions
from .waits import PendingRequest

_LATEST_CLIENT = 2
_BROKERS_SINCE = 4
"""The version of AddPartitionsToTxn from which a request may name many transactions, and may only verify
partitions (KIP-890).
"""
_BUMPING_SINCE = 5
"""The version of EndTxn whose clients take a new epoch from the answer (KIP-890)."""


class TransactionRequests:
    """Decides on the requests of producers."""

    def __init__(
        self, transitions: Transitions, settings: TransactionConfig, trace: Callable[..., None]
    ) -> None:
        self._transitions = transitions
        self._settings = settings
        self._trace = trace

    def _waits(
        self, transactional_id: str, refused: Refused, command: Command, token: Token, now: Instant
    ) -> bool:
        """Hold a request until the transaction before it is complete. Returns whether the request is held,
        else it is refused.
        """
        completing = self._transitions.completions.of(transactional_id)
        if completing is None or refused.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            return False
        pending = PendingRequest(transactional_id, command, token)
        return self._transitions.completions.hold(completing, pending, now)

    def init(self, request: InitProducerIdRequest, command: Command, token: Token, now: Instant) -> Decision:
        """Give a transactional id its producer id and epoch; fences an open transaction."""
        transactional_id = request.transactional_id or ""
        before = self._transitions.transactions.get(transactional_id)
        try:
            timeout_ms = checks.check_init(request, self._settings)
            last_epoch = (
                NO_EPOCH
                if before is None
                else self._transitions.last_epochs.get(transactional_id, before.epoch_before_end)
            )
            after = checks.init(
                before,
                request,
                timeout_ms,
                last_epoch,
                self._transitions.producer_id,
                self._transitions.server_version,
                now.wall_ms,
            )
        except Refused as refused:
            if self._waits(transactional_id, refused, command, token, now):
                return NOTHING
            return answered(token, _init_refused(refused.code))
        if after.state is State.PREPARE_ABORT:
            assert before is not None
            self._trace(
                "transaction-fenced",
                id=transactional_id,
                producer_id=before.producer_id,
                epoch=before.producer_epoch,
            )
            decision = self._transitions.moved(transactional_id, after, now)
            if self._waits(transactional_id, Refused(ErrorCode.CONCURRENT_TRANSACTIONS), command, token, now):
                return decision
            answer = Answer(token, _init_refused(ErrorCode.CONCURRENT_TRANSACTIONS))
            return Decision(decision.records, (*decision.answers, answer))
        self._transitions.last_epochs.pop(transactional_id, None)
        if before is not None and request.producer_epoch != NO_EPOCH:
            # A retry of this request has the epoch from before it.
            is_bumped = (
                after.producer_epoch != before.producer_epoch or after.producer_id != before.producer_id
            )
            self._transitions.last_epochs[transactional_id] = (
                before.producer_epoch if is_bumped else request.producer_epoch
            )
        reply = InitProducerIdResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
        return self._transitions.moved(transactional_id, after, now, Answer(token, reply))

    def add_partitions(
        self, request: AddPartitionsToTxnRequest, command: Command, token: Token, now: Instant
    ) -> Decision:
        """Add partitions to one transaction, or verify that it has them. The broker converts the requests
        of old clients to the form of the newer versions.
        """
        asked = request.transactions[0]
        transactional_id, partitions = asked.transactional_id, partitions_of(asked)
        before = self._transitions.transactions.get(transactional_id)
        client_version = _LATEST_CLIENT if command.version >= _BROKERS_SINCE else 0
        try:
            if asked.verify_only:
                transaction = checks.check_verifies(before, asked.producer_id, asked.producer_epoch)
                return answered(token, verified(asked, transaction.partitions))
            transaction = checks.check_adds(before, asked.producer_id, asked.producer_epoch)
            return self._transitions.joined(
                transactional_id, transaction, partitions, client_version, now, Answer(token, added(asked))
            )
        except Refused as refused:
            if not asked.verify_only and self._waits(transactional_id, refused, command, token, now):
                return NOTHING
            return answered(token, refused_add(asked, refused.code))

    def add_offsets(self, request: AddOffsets, command: Command, token: Token, now: Instant) -> Decision:
        """Add the partition of `__consumer_offsets` of a group to a transaction."""
        try:
            before = self._transitions.transactions.get(request.transactional_id)
            transaction = checks.check_adds(before, request.producer_id, request.producer_epoch)
            partitions = frozenset((request.partition,))
            return self._transitions.joined(
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
            return answered(token, AddOffsetsToTxnResponse(error_code=refused.code))

    def end(self, request: EndTxnRequest, command: Command, token: Token, now: Instant) -> Decision:
        """Commit or abort a transaction."""
        before = self._transitions.transactions.get(request.transactional_id)
        client_version = _LATEST_CLIENT if command.version >= _BUMPING_SINCE else 0
        try:
            if not request.transactional_id:
                raise Refused(ErrorCode.INVALID_REQUEST)
            after = checks.end(
                before,
                request.producer_id,
                request.producer_epoch,
                is_commit=request.committed,
                client_version=client_version,
                producer_ids=self._transitions.producer_id,
                now_ms=now.wall_ms,
            )
        except Refused as refused:
            return answered(token, EndTxnResponse(error_code=refused.code))
        if after is None:
            assert before is not None
            return answered(token, _end_response(before, client_version))
        reply = _end_response(completed(after, now.wall_ms), client_version)
        return self._transitions.moved(request.transactional_id, after, now, Answer(token, reply))

    def refuse_pending(self, command: Command, token: Token) -> Decision:
        """Refuse a request that was held for too long."""
        request, code = command.request, ErrorCode.CONCURRENT_TRANSACTIONS
        if isinstance(request, InitProducerIdRequest):
            return answered(token, _init_refused(code))
        if isinstance(request, AddOffsets):
            return answered(token, AddOffsetsToTxnResponse(error_code=code))
        assert isinstance(request, AddPartitionsToTxnRequest)
        return answered(token, refused_add(request.transactions[0], code))


def answered(token: Token, reply: Message) -> Decision:
    """A decision without a record."""
    return Decision((), (Answer(token, reply),))


def _init_refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _end_response(transaction: Transaction, client_version: int) -> EndTxnResponse:
    """The answer to EndTxn; from transaction version 2 on, with the producer id and epoch to use next."""
    if client_version < BUMPING:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
