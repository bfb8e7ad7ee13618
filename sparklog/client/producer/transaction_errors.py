"""Maps an error to its effect on a transaction: retry, abort, or close the producer.

retriable          the same request once more, after a pause; of the coordinator where it moved
abortable          nothing of this transaction may be committed; the producer goes on after `abort`
fatal              fenced, forbidden, or unknown: no further transaction is possible
"""

from collections.abc import Mapping
from typing import Final

from sparklog.client.failures import (
    CommitFailed,
    DeliveryFailed,
    ProducerFenced,
    TransactionAbortable,
    TransactionError,
    TransactionFatal,
)
from sparklog.errors import BrokerError, ErrorCode, SparklogError
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from sparklog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from sparklog.wire.messages.end_txn import EndTxnRequest
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from sparklog.wire.schema import Message

_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Old coordinators return the first of these where new ones return the second (KIP-588)."""
_GROUP_LOST: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH}
)
_ABORTABLE: Final[Mapping[type[Message], frozenset[ErrorCode]]] = {
    InitProducerIdRequest: frozenset(),
    AddPartitionsToTxnRequest: frozenset(
        {
            *(
                ErrorCode.TRANSACTION_ABORTABLE,
                ErrorCode.UNKNOWN_PRODUCER_ID,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ),
            *(ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_TOPIC_EXCEPTION),
        }
    ),
    AddOffsetsToTxnRequest: frozenset(
        {
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.INVALID_GROUP_ID,
        }
    ),
    TxnOffsetCommitRequest: frozenset(
        {
            *(
                ErrorCode.TRANSACTION_ABORTABLE,
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
                ErrorCode.FENCED_INSTANCE_ID,
                *_GROUP_LOST,
            ),
            *(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            ),
            *(ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND),
        }
    ),
    EndTxnRequest: frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID}),
}
_FATAL_FOR_BATCHES: Final = frozenset(
    {
        *(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.PRODUCER_FENCED,
        ),
        *(ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    }
)
_REMEDIES: Final = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms is above the broker's transaction.max.timeout.ms"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this principal may not WRITE with the transactional id",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "the coordinator has forgotten the producer: transactional.id.expiration.ms has passed"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old for it",
    ErrorCode.INVALID_TXN_STATE: "it was ended otherwise: perhaps it took longer than transaction.timeout.ms",
}


def has_wrong_rights(code: ErrorCode) -> bool:
    """Whether the error is a missing permission; after it is granted, `init` may be called again."""
    return code in (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def classified(
    request: type[Message], code: ErrorCode, transactional_id: str, *, is_aborting: bool
) -> TransactionError | None:
    """The error that a refused request causes; None if the request may be retried."""
    name = request.__name__.removesuffix("Request")
    where = f"transactional id {transactional_id!r}: {code.name} ({code.value}) from {name}"
    if code in _ABORTABLE[request] and not (is_aborting and request is EndTxnRequest):
        error = TransactionAbortable(f"{where}: abort the transaction, then begin another", code)
        if code in _GROUP_LOST:
            error.__cause__ = CommitFailed(
                f"the group has given the partitions to others ({code.name}): poll before committing again"
            )
        return error
    if code.is_retriable:
        return None
    if code in _FENCED:
        return fenced(transactional_id, code)
    return TransactionFatal(f"{where}: {_REMEDIES.get(code, 'close this producer and make another')}", code)


def fenced(transactional_id: str, code: ErrorCode) -> ProducerFenced:
    """The error of a producer whose transactional id another producer has now."""
    return ProducerFenced(
        f"transactional id {transactional_id!r}: a younger producer uses it, or the transaction took longer "
        f"than transaction.timeout.ms "
        f"({code.name})",
        code,
    )


def of_batch(error: SparklogError, transactional_id: str) -> TransactionError:
    """The error that a failed batch causes in its transaction."""
    code = error.code if isinstance(error, BrokerError) else None
    made: TransactionError
    if code is ErrorCode.PRODUCER_FENCED:
        made = fenced(transactional_id, code)
    elif code in _FATAL_FOR_BATCHES:
        made = TransactionFatal(f"transactional id {transactional_id!r}: {error}", code)
    else:
        what = (
            "records were not acknowledged"
            if isinstance(error, DeliveryFailed)
            else "records were not written"
        )
        made = TransactionAbortable(
            f"transactional id {transactional_id!r}: {what}: {error}: abort the transaction", code
        )
    made.__cause__ = error
    return made
