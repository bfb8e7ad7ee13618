"""The durable records of `__transaction_state`: Kafka's key and value (level 4.3), which `kafka-dump-log
--transaction-log-decoder` reads.

    key     int16 0, transactional id (never flexible)
    value   int16 version, fields; no value at all forgets the id

Version 0 is what brokers of transaction version 0 write; version 1, flexible, adds what the epoch bump of
TV2 needs, as tags.
"""

from itertools import groupby
from typing import Annotated, ClassVar, Final, NamedTuple

from sparklog.errors import DecodeError
from sparklog.model import ProducerEpoch, ProducerId, TopicPartition
from sparklog.wire.codec import decode, encode
from sparklog.wire.schema import (
    INT16,
    INT64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Str,
    Versions,
    nullable,
    since,
    tagged,
)
from sparklog_server.coordinator.shard import CoordinatorRecord

from .states import NO_PRODUCER_ID, State, Transaction


class TransactionLogKey(Message):
    versions: ClassVar = Versions(0, 0)

    transactional_id: Str = ""


class PartitionsSchema(Message):
    topic: Str = ""
    partition_ids: list[Int32] = []


class TransactionLogValue(Message):
    """`next_producer_epoch` is Kafka's and always -1 at this level (KIP-939)."""

    versions: ClassVar = Versions(0, 1, flexible=1)

    producer_id: Annotated[ProducerId, INT64] = ProducerId(0)
    previous_producer_id: Annotated[ProducerId, INT64, since(1), tagged(0)] = NO_PRODUCER_ID
    next_producer_id: Annotated[ProducerId, INT64, since(1), tagged(1)] = NO_PRODUCER_ID
    producer_epoch: Annotated[ProducerEpoch, INT16] = ProducerEpoch(0)
    next_producer_epoch: Annotated[Int16, since(1), tagged(3)] = -1
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: Annotated[list[PartitionsSchema] | None, nullable(0)] = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, since(1), tagged(2)] = 0


class TransactionUpdate(NamedTuple):
    """A decoded record: the transaction of an id; None for a tombstone."""

    transactional_id: str
    transaction: Transaction | None


_NUMBER = (0).to_bytes(2, "big")
_EMPTY: Final = State.EMPTY  # Reading an enum member through its class costs as much as two calls.
_NOWHERE: frozenset[TopicPartition] = frozenset()
_STATES = {
    int(state): state for state in State if state is not State.DEAD and state is not State.PREPARE_EPOCH_FENCE
}
"""The states that are ever written."""


def encode_record(
    transactional_id: str, transaction: Transaction | None, server_version: int
) -> CoordinatorRecord:
    """The record of an id, or, with None, its tombstone; `server_version` is the cluster's transaction
    version.
    """
    key = _NUMBER + _encoded(TransactionLogKey(transactional_id), 0)
    if transaction is None:
        return CoordinatorRecord(key, None, TransactionUpdate(transactional_id, None))
    has_tags = transaction.client_version or transaction.next_producer_id != NO_PRODUCER_ID
    version = 1 if server_version or has_tags else 0
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id if version else NO_PRODUCER_ID,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None
        if transaction.state is State.EMPTY
        else _by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    written = transaction
    if not version and transaction.previous_producer_id != NO_PRODUCER_ID:
        written = _without_previous(transaction)  # the state in memory must equal the state after a reload
    encoded = version.to_bytes(2, "big") + _encoded(value, version)
    return CoordinatorRecord(key, encoded, TransactionUpdate(transactional_id, written))


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> TransactionUpdate:
    """The id of a record and its transaction, None for a tombstone. Raises DecodeError for bytes that
    Kafka 4.3 would not write.
    """
    if key[:2] != _NUMBER:
        raise DecodeError(f"a key of {len(key)} bytes that is none of a transactional id", 0)
    transactional_id = decode(TransactionLogKey, 0, memoryview(key)[2:]).transactional_id
    if value is None:
        return TransactionUpdate(transactional_id, None)
    version = int.from_bytes(value[:2], "big")
    if len(value) < 2 or version > 1:
        raise DecodeError(f"unknown version {version} of a transaction's record", 0)
    recorded = decode(TransactionLogValue, version, memoryview(value)[2:])
    state = _STATES.get(recorded.transaction_status)
    if state is None:
        raise DecodeError(f"unknown state {recorded.transaction_status} of a transaction", 0)
    partitions = _NOWHERE
    if recorded.transaction_partitions and state is not _EMPTY:
        partitions = frozenset(
            [
                TopicPartition(one.topic, index)
                for one in recorded.transaction_partitions
                for index in one.partition_ids
            ]
        )
    # In the order of the fields: a shard of a hundred thousand ids is loaded in half the time.
    transaction = Transaction(
        recorded.producer_id,
        recorded.producer_epoch,
        recorded.transaction_timeout_ms,
        recorded.transaction_last_update_timestamp_ms,
        state,
        partitions,
        recorded.transaction_start_timestamp_ms,
        recorded.previous_producer_id,
        recorded.next_producer_id,
        recorded.client_transaction_version,
    )
    return TransactionUpdate(transactional_id, transaction)


def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    return [
        PartitionsSchema(topic, [one.partition for one in group])
        for topic, group in groupby(sorted(partitions), lambda one: one.topic)
    ]


def _without_previous(transaction: Transaction) -> Transaction:
    return Transaction(
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.update_ms,
        transaction.state,
        transaction.partitions,
        transaction.start_ms,
    )


def _encoded(message: Message, version: int) -> bytes:
    # No record has a `Records` field, so no chunk is a file slice.
    chunks: list[bytes] = encode(message, version)  # type: ignore[assignment]
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
