"""The moves of a transaction, as pure functions: each checks one request, in Kafka's order.

A function returns the transaction after the move, or raises Refused with the code of the answer.

While markers are missing (`ENDING`), a request that would change the transaction gets
CONCURRENT_TRANSACTIONS before its producer is compared: after an overflow of epochs the producer already has
the next producer id, and the transaction gets that id on completion. Only EndTxn of transaction version 1 and
the verification compare the producer first, as in Kafka.
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
"""Returns an unused producer id. Raises Refused with COORDINATOR_LOAD_IN_PROGRESS if the broker has none."""


def check_init(request: InitProducerIdRequest, settings: TransactionConfig) -> int:
    """Check an InitProducerId independently of the transaction. Returns the requested timeout in ms."""
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
    """InitProducerId: the next epoch, the same epoch for a retry, or first the abort of an open transaction
    (KIP-98, KIP-360).

    `last_epoch` is the epoch before the last bump, by which a retry is recognized.
    """
    if before is None:
        return begun(producer_ids(), timeout_ms, now_ms)
    if before.state in ENDING:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    has_expected = request.producer_id != NO_PRODUCER_ID
    # A retry after an overflow of epochs may still have the previous producer id.
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
    """Abort an open transaction in a newer epoch than the epoch of its producer."""
    is_rotated = server_version >= BUMPING and before.is_exhausted
    next_producer_id = producer_ids() if is_rotated else NO_PRODUCER_ID
    return fenced(before, server_version=server_version, next_producer_id=next_producer_id, now_ms=now_ms)


def check_adds(before: Transaction | None, producer_id: int, producer_epoch: int) -> Transaction:
    """The transaction that this producer may add partitions to. Raises Refused."""
    if before is not None and before.state in ENDING:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    return _of_producer(before, producer_id, producer_epoch)


def check_verifies(before: Transaction | None, producer_id: int, producer_epoch: int) -> Transaction:
    """The transaction of this producer. Raises Refused."""
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
    """Add partitions to the transaction; None if it has all of them."""
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
    """EndTxn; None for a retry of an end that is already decided."""
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
    """EndTxn of transaction version 2. A retry has the previous epoch, a new end the current one:

                         abort                    commit
                         retry      current       retry      current
        Empty            fenced     abort         fenced     INVALID_TXN_STATE
        CompleteAbort    NONE       abort         INVALID    INVALID_TXN_STATE
        CompleteCommit   INVALID    abort         NONE       INVALID_TXN_STATE

    An abort without an open transaction bumps the epoch too: the producer may not know whether its records
    arrived.
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
