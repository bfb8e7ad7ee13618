"""Produce within a transaction: the first batch of a transaction in a partition waits until the coordinator
has verified the partition.

    authorized ─► one producer ─┬─ open in every partition ───────────────────────► appended at once
                                └─ copied, the session muted ─► verified ─────────► the verified partitions

`broker/coordinators/transaction_verification.py` asks the coordinator.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.record.batch import HEADER_SIZE, TRANSACTIONAL_BIT
from sparklog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from sparklog_server.broker.access.authorization import Operation, Resource
from sparklog_server.broker.coordinators.transaction_verification import (
    Codes,
    TransactionVerification,
    VerificationRequest,
)
from sparklog_server.broker.session import Answer, Call, Parked
from sparklog_server.log.producers.producer_state import Verification
from sparklog_server.log.producers.validate import RecordsRefused
from sparklog_server.replica.leader import PartitionUnavailable
from sparklog_server.replica.partition import Partition
from sparklog_server.replica.transactional import begin_verification

if TYPE_CHECKING:
    from sparklog_server.broker.ports import ProducePort


_ADDING_SINCE = 12
"""The version of Produce that adds its partitions to the transaction (KIP-890)."""
_ABORTABLE_SINCE = 11
_ATTRIBUTES_AT = 22  # the low byte of a batch's attributes
_PRODUCER_AT = 43
_PRODUCER = Struct(">qhi")  # id, epoch, base sequence
_UNREADY = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Target(msgspec.Struct, eq=False):
    """The partition of one batch, and its part of the response. `must_check` says that the batch must be
    decompressed or compressed: the append checks the others. `proof` lets the batch open a transaction.
    """

    partition: Partition
    part: PartitionProduceResponse
    must_check: bool = False
    proof: Verification | None = None


GoOn = Callable[[list[Target], Sequence[memoryview | bytearray], Instant], Answer]


def refuse_all(response: ProduceResponse, code: ErrorCode) -> None:
    """Refuse the whole request."""
    for topic in response.responses:
        for part in topic.partition_responses:
            part.error_code = code


def may_write_transactions(context: "ProducePort", call: Call, request: ProduceRequest) -> bool:
    """Whether the request has no batch of a transaction, or the caller may write with its transactional id.
    It is asked before the topics: an unauthorized id refuses the whole request.
    """
    return not any(
        isinstance(data.records, memoryview) and _is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    ) or context.allow(call, Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id or "")


def refused_produce(context: "ProducePort", call: Call, request: ProduceRequest) -> Answer:
    """The answer to a request whose transactional id is not authorized."""
    if request.acks == 0:
        context.disconnect(call.session, "a produce without acknowledgement failed")
        return Parked.SILENT
    call.has_error = True
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
    refuse_all(response, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return response


def verify(
    context: "ProducePort",
    call: Call,
    request: ProduceRequest,
    response: ProduceResponse,
    targets: list[Target],
    sent: Sequence[memoryview],
    go_on: GoOn,
    now: Instant,
) -> Answer:
    """Verify the batches of a transaction, then append the verified ones."""
    producers = {_producer_of(records)[:2]: None for records in sent if _is_transactional(records)}
    if not producers:
        return go_on(targets, sent, now)
    transactional_id = request.transactional_id
    assert transactional_id is not None
    if len(producers) > 1:
        call.has_error = True
        refuse_all(response, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return go_on([], [], now)
    adds = call.version >= _ADDING_SINCE
    if not adds and not context.settings.transactions.partition_verification_enable:
        return go_on(targets, sent, now)
    kept: list[Target] = []
    records_kept: list[memoryview] = []
    for target, records in zip(targets, sent, strict=True):
        if _is_transactional(records):
            code, target.proof = _begin(target.partition, records, now, adds=adds)
            if code:
                call.has_error = True
                target.part.error_code = code
                continue
        kept.append(target)
        records_kept.append(records)
    unverified = [target.partition.topic_partition for target in kept if target.proof is not None]
    if not unverified:
        return go_on(kept, records_kept, now)
    ((producer_id, producer_epoch),) = producers
    asking = VerificationRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=tuple(unverified),
        adds_partitions=adds,
        knows_abortable=call.version >= _ABORTABLE_SINCE,
        is_retried=adds and request.acks != 0,
    )
    # A waiting request must not hold the receive buffer, which the next read fills.
    copies = [bytearray(records) for records in records_kept]

    def finish(codes: Codes, then: Instant) -> Answer:
        verified: list[Target] = []
        batches: list[bytearray] = []
        for target, copy in zip(kept, copies, strict=True):
            if target.proof is None or _is_vouched(target, codes, adds=adds):
                verified.append(target)
                batches.append(copy)
            else:
                call.has_error = True
        return go_on(verified, batches, then)

    TransactionVerification(context, call, asking, finish, copies, now).ask(now)
    return Parked.MUTING if request.acks else Parked.MUTING_SILENT


def _is_transactional(records: memoryview) -> bool:
    return len(records) >= HEADER_SIZE and records[_ATTRIBUTES_AT] & TRANSACTIONAL_BIT != 0


def _producer_of(records: memoryview) -> tuple[int, int, int]:
    """Id, epoch and first sequence from a header that is not checked yet."""
    found: tuple[int, int, int] = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    return found


def _begin(
    partition: Partition, records: memoryview, now: Instant, *, adds: bool
) -> tuple[ErrorCode, Verification | None]:
    producer_id, epoch, sequence = _producer_of(records)
    if producer_id < 0:
        return ErrorCode.INVALID_RECORD, None
    try:
        return ErrorCode.NONE, begin_verification(
            partition, producer_id, epoch, sequence, adds_partitions=adds, now=now
        )
    except (PartitionUnavailable, RecordsRefused) as refused:
        return refused.code, None


def _is_vouched(target: Target, codes: Codes, *, adds: bool) -> bool:
    """Whether the coordinator verified a partition; if not, its part of the response gets a code that
    producers retry.
    """
    code = codes.get(target.partition.topic_partition, ErrorCode.NONE)
    if code is ErrorCode.NONE:
        return True
    part = target.part
    part.error_code = code
    if code is ErrorCode.INVALID_TXN_STATE:
        part.error_message = "Partition was not added to the transaction"
    elif code in _UNREADY or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        # Older clients retry this code without a metadata request, as in Kafka.
        part.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
        part.error_message = (
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        )
    return False
