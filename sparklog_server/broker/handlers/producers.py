"""InitProducerId: an identity for an idempotent producer (KIP-98)."""

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog_server.broker.context import BROKER_PRINCIPAL, Context, ProducerIdBlock
from sparklog_server.broker.session import Call, Parked

_WAIT_MS = 30_000


def init_producer_id(context: Context, call: Call, request: InitProducerIdRequest, now: Instant) -> InitProducerIdResponse | Parked:
    """A fresh producer id at epoch 0; waits when the block of ids is used up."""
    if request.transactional_id is not None:
        # Transactions are not served yet; a code that clients do not try again says so at once.
        code = ErrorCode.INVALID_REQUEST if not request.transactional_id else ErrorCode.UNSUPPORTED_VERSION
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    ids = context.producer_ids
    producer_id = ids.take()
    if producer_id is not None:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    waiting = _ParkedProducer(context, call)
    ids.waiting.append(waiting)
    context.park(waiting, _WAIT_MS, now)
    if not ids.is_asked:
        ids.is_asked = True
        block = AllocateProducerIdsRequest(broker_id=context.settings.node_id, broker_epoch=context.broker_epoch)
        context.propose(block, ProducerIdBlock(), BROKER_PRINCIPAL, now)
    return Parked.MUTING


class _ParkedProducer:
    """A producer that waits for the next block."""

    __slots__ = ("_context", "call")

    def __init__(self, context: Context, call: Call) -> None:
        self.call = call
        self._context = context

    def woken(self, now: Instant) -> InitProducerIdResponse | None:
        producer_id = self._context.producer_ids.take()
        return self.expired(now) if producer_id is None else InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    def expired(self, now: Instant) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_id=-1, producer_epoch=-1)

    def abandoned(self) -> None:
        """Dropped when the block comes."""
