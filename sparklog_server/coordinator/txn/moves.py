"""What a request makes of a transaction: the checks of each, in Kafka's order. Nothing here waits, and
nothing here is kept.

Every function returns the transaction as it will be, or raises Refused with the code of the answer.

While markers are missing (`ENDING`), a request that would change the transaction is answered
CONCURRENT_TRANSACTIONS before its producer is compared: at an overflow of epochs the producer already has
the next producer id, which the transaction gets when it is complete. Only EndTxn of TV1 and the
verification compare the producer first, as in Kafka.
"""

from collections.abc import Callable

from sparklog.errors import ErrorCode
from sparklog.model import ProducerId, TopicPartition
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest
from sparklog_server.outcome import Refused

from .states import (
    BUMPING,
    ENDING,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    State,
    Transaction,
    begun,
    ended,
    fenced,
    initialised,
    joined,
)
from .transaction_config import TransactionConfig

ProducerIds = Callable[[], ProducerId]
"""A producer id that nobody has. Raises Refused with COORDINATOR_LOAD_IN_PROGRESS while none is at hand."""


def check_init(request: InitProducerIdRequest, settings: TransactionConfig) -> int:
    """What an InitProducerId may not say whatever the transaction is; the timeout that it asks for, in ms."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise Refused(ErrorCode.INVALID_REQUEST)
    if not request.transactional_id:
        raise Refused(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc and not settings.is_two_phase_enabled:
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    if request.enable2_pc:
        return NO_TIMEOUT_MS
    if not 0 < request.transaction_timeout_ms <= settings.timeout_max_ms:
        raise Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return request.transaction_timeout_ms


def init(
    before: Transaction | None,
    request: InitProducerIdRequest,
    timeout_ms: int,
    last_epoch: int,
    producer_ids: ProducerIds,
    server_version: int,
    now_ms: int,
) -> Transaction:
    """InitProducerId: the next epoch, the same one for a retry, or the abort of what is open, which comes
    first (KIP-98, KIP-360).

    `last_epoch` is the one that the newest move bumped, so that a retry of it is known.
    """
    if before is None:
        return begun(producer_ids(), timeout_ms, now_ms)
    if before.state in ENDING:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    has_expected = request.producer_id != NO_PRODUCER_ID
    # A retry after the epochs ran out may still name the id before.
    is_rotated = request.producer_id == before.previous_producer_id and request.producer_epoch >= LAST_EPOCH
    if has_expected and request.producer_id != before.producer_id and not is_rotated:
        raise Refused(ErrorCode.PRODUCER_FENCED)
    if before.state is State.ONGOING:
        return fence(before, producer_ids, server_version, now_ms)
    if before.is_exhausted and (not has_expected or request.producer_epoch == before.producer_epoch):
        return initialised(before, producer_ids(), 0, timeout_ms, now_ms)
    if not has_expected or request.producer_epoch == before.producer_epoch:
        return initialised(before, before.producer_id, before.producer_epoch + 1, timeout_ms, now_ms)
    if request.producer_epoch == last_epoch:
        return initialised(before, before.producer_id, before.producer_epoch, timeout_ms, now_ms)
    raise Refused(ErrorCode.PRODUCER_FENCED)


def fence(before: Transaction, producer_ids: ProducerIds, server_version: int, now_ms: int) -> Transaction:
    """Abort what is open in a newer epoch than its producer's."""
    is_rotated = server_version >= BUMPING and before.is_exhausted
    next_producer_id = producer_ids() if is_rotated else NO_PRODUCER_ID
    return fenced(before, server_version=server_version, next_producer_id=next_producer_id, now_ms=now_ms)


def check_adds(before: Transaction | None, producer_id: int, producer_epoch: int) -> Transaction:
    """The transaction, if this producer may add partitions to it."""
    if before is not None and before.state in ENDING:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    return _of_producer(before, producer_id, producer_epoch)


def check_verifies(before: Transaction | None, producer_id: int, producer_epoch: int) -> Transaction:
    """The transaction, if this producer has it."""
    transaction = _of_producer(before, producer_id, producer_epoch)
    if transaction.state in ENDING:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction


def _of_producer(before: Transaction | None, producer_id: int, producer_epoch: int) -> Transaction:
    if before is None or before.producer_id != producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if before.producer_epoch != producer_epoch:
        raise Refused(ErrorCode.PRODUCER_FENCED)
    return before


def add(
    before: Transaction, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
) -> Transaction | None:
    """Partitions take part; None if all of them do already."""
    if before.state is State.ONGOING and partitions <= before.partitions:
        return None
    return joined(before, partitions, client_version, now_ms)


def end(
    before: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    *,
    is_commit: bool,
    client_version: int,
    producer_ids: ProducerIds,
    now_ms: int,
) -> Transaction | None:
    """EndTxn of a producer: None if that is how it ended already, and this is a retry."""
    if before is None:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if client_version >= BUMPING:
        return _end_bumping(
            before, producer_id, producer_epoch, is_commit, client_version, producer_ids, now_ms
        )
    _of_producer(before, producer_id, producer_epoch)
    if before.state in ENDING:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if before.state is State.ONGOING:
        return ended(
            before, is_commit=is_commit, client_version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
        )
    if before.state is (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT):
        return None
    raise Refused(ErrorCode.INVALID_TXN_STATE)


def _end_bumping(
    before: Transaction,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    client_version: int,
    producer_ids: ProducerIds,
    now_ms: int,
) -> Transaction | None:
    """EndTxn of TV2. The epoch tells a retry, which has the one before, from the next end, which has the
    one that the last end gave:

                         abort                    commit
                         retry      current       retry      current
        Empty            fenced     abort         fenced     INVALID_TXN_STATE
        CompleteAbort    NONE       abort         INVALID    INVALID_TXN_STATE
        CompleteCommit   INVALID    abort         NONE       INVALID_TXN_STATE

    Where an abort finds nothing open (its producer may not know what arrived), it bumps the epoch all the
    same.
    """
    if before.state in ENDING:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_overflow = (
        before.previous_producer_id == producer_id
        and producer_epoch == LAST_EPOCH
        and before.producer_epoch == 0
    )
    is_retry = before.producer_epoch == producer_epoch + 1
    if before.producer_id != producer_id and not is_overflow:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_current = producer_epoch == before.producer_epoch
    is_complete = before.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    if not is_current and not (is_complete and (is_retry or is_overflow)):
        raise Refused(ErrorCode.PRODUCER_FENCED)
    if is_complete and (is_retry or is_overflow) and is_commit is (before.state is State.COMPLETE_COMMIT):
        return None
    is_of_nothing = not is_commit and (
        before.state is State.EMPTY or (is_complete and not is_retry and not is_overflow)
    )
    if before.state is not State.ONGOING and not is_of_nothing:
        raise Refused(ErrorCode.INVALID_TXN_STATE)
    next_producer_id = producer_ids() if before.is_exhausted else NO_PRODUCER_ID
    return ended(
        before,
        is_commit=is_commit,
        client_version=client_version,
        next_producer_id=next_producer_id,
        now_ms=now_ms,
    )
