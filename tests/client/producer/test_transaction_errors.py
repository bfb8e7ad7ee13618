"""The meaning of each error for a transaction, for every request."""

import pytest

from sparklog.client.failures import (
    CommitFailed,
    DeliveryFailed,
    ProducerFenced,
    TransactionAbortable,
    TransactionFatal,
)
from sparklog.client.producer.transaction_errors import classified, of_batch
from sparklog.client.producer.transaction_states import LEGAL, State
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import TopicPartition
from sparklog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from sparklog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from sparklog.wire.messages.end_txn import EndTxnRequest
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from sparklog.wire.schema import Message

REQUESTS = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("request_class", REQUESTS)
def test_every_error_is_tried_again_or_ends_the_transaction_or_the_producer(
    request_class: type[Message],
) -> None:
    for code in ErrorCode:
        if code is ErrorCode.NONE:
            continue
        error = classified(request_class, code, "x", is_aborting=False)
        if error is None:
            assert code.is_retriable, code
        else:
            assert error.code is code
            assert "'x'" in str(error)
            assert isinstance(error, ProducerFenced) == (code in FENCED)
            assert isinstance(error, TransactionAbortable) != isinstance(error, TransactionFatal)


def test_nothing_of_an_abort_is_abortable() -> None:
    for code in ErrorCode:
        assert not isinstance(classified(EndTxnRequest, code, "x", is_aborting=True), TransactionAbortable)
        assert not isinstance(
            classified(InitProducerIdRequest, code, "x", is_aborting=True), TransactionAbortable
        )


def test_who_lost_the_partitions_of_the_group_is_told_so() -> None:
    for code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH):
        error = classified(TxnOffsetCommitRequest, code, "x", is_aborting=False)
        assert isinstance(error, TransactionAbortable)
        assert isinstance(error.__cause__, CommitFailed)


def test_a_batch_that_failed_ends_the_transaction_and_only_what_forbids_every_other_ends_the_producer() -> (
    None
):
    late = of_batch(DeliveryFailed(TopicPartition("t", 0), "late"), "x")
    assert isinstance(late, TransactionAbortable)
    assert late.code is None
    for code in ErrorCode:
        error = of_batch(BrokerError(code), "x")
        is_fatal = code in (
            *(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                ErrorCode.PRODUCER_FENCED,
            ),
            *(ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        )
        assert isinstance(error, TransactionFatal) == is_fatal, code
        assert isinstance(error, ProducerFenced) == (code is ErrorCode.PRODUCER_FENCED)
        assert isinstance(error.__cause__, BrokerError)


def test_every_state_can_be_left_but_the_fatal_one_and_that_is_reached_from_all_that_ask_brokers() -> None:
    assert {state for state in State if not LEGAL[state]} == {State.FATAL_ERROR}
    assert {state for state in State if State.FATAL_ERROR not in LEGAL[state]} == {
        State.UNINITIALIZED,
        State.FATAL_ERROR,
    }
    assert {target for targets in LEGAL.values() for target in targets} == set(State)
