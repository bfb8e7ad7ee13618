"""InitProducerId: an identity for an idempotent producer, or the next epoch of a transactional one
(KIP-98, KIP-360).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.coordinators.coordinator_requests import ask_for_producer_ids, ask_shard
from sparklog_server.broker.session import Call, Parked

if TYPE_CHECKING:
    from sparklog_server.broker.ports import TransactionPort


_WAIT_MS = 30_000
_FENCED_SINCE = 4
"""The first version whose clients know PRODUCER_FENCED."""


def init_producer_id(
    context: "TransactionPort", call: Call, request: InitProducerIdRequest, now: Instant
) -> Message | Parked:
    """A producer id and its epoch; waits when the block of ids is used up."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not context.may(
            call, Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME
        ) and not context.allow_some(call, Operation.WRITE, Resource.TOPIC):
            return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _when_ids_are_there(context, call, partial(_fresh, context), now)
    operations = [Operation.WRITE, Operation.TWO_PHASE_COMMIT] if request.enable2_pc else [Operation.WRITE]
    if not all(
        context.allow(call, operation, Resource.TRANSACTIONAL_ID, transactional_id)
        for operation in operations
    ):
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)

    def asked(now: Instant) -> Message | Parked:
        def told(reply: Message) -> Message:
            assert isinstance(reply, InitProducerIdResponse)
            if reply.error_code == ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE:
                return _refused(ErrorCode.INVALID_PRODUCER_EPOCH)
            return reply

        return ask_shard(context.transactions.shards, call, transactional_id, request, _refused, now, told)

    return _when_ids_are_there(context, call, asked, now)


def _when_ids_are_there(
    context: "TransactionPort", call: Call, answer: Callable[[Instant], Message | Parked], now: Instant
) -> Message | Parked:
    ids = context.transactions.producer_ids
    if not ids.is_empty:
        return answer(now)
    waiting = _ParkedProducer(context, call, answer)
    ids.waiting.append(waiting)
    context.timers.park(waiting, _WAIT_MS, now)
    ask_for_producer_ids(context, now)
    return Parked.MUTING


def _fresh(context: "TransactionPort", now: Instant) -> InitProducerIdResponse:
    producer_id = context.transactions.producer_ids.take()
    assert producer_id is not None
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


class _ParkedProducer:
    """A producer that waits for the next block."""

    __slots__ = ("_answer", "_context", "call")

    def __init__(
        self, context: "TransactionPort", call: Call, answer: Callable[[Instant], Message | Parked]
    ) -> None:
        self.call = call
        self._context = context
        self._answer = answer

    def woken(self, now: Instant) -> Message | None:
        if self._context.transactions.producer_ids.is_empty:
            return self.expired(now)
        answer = self._answer(now)
        return None if isinstance(answer, Parked) else answer

    def expired(self, now: Instant) -> InitProducerIdResponse:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def abandoned(self) -> None:
        """Nothing to do: the waiter is dropped when the block arrives."""
