"""Verification before the first batch of a transaction, and the markers that a log accepts (KIP-890)."""

import pytest

from sparklog.errors import ErrorCode
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog, RecordsRefused
from sparklog_server.log.producers.producer_state import Verification
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import EPOCH, NOW, START_MS, batch, open_log

VERIFIED = LogConfig(verifies_transactions=True)


def begin(log: PartitionLog, sequence: int = 0, *, epoch: int = 0, adds: bool = False) -> Verification:
    proof = log.producers.begin_verification(7, epoch, sequence, adds_partitions=adds, now_ms=START_MS)
    assert proof is not None
    return proof


def send(log: PartitionLog, proof: Verification | None, sequence: int = 0, *, epoch: int = 0) -> int:
    sent = batch(1, producer_id=7, producer_epoch=epoch, sequence=sequence, is_transactional=True)
    return log.append(sent, EPOCH, NOW, proof).base_offset


def end(log: PartitionLog, *, epoch: int = 0) -> None:
    log.append_own(
        build_marker(
            Marker(ControlType.ABORT, 0), producer_id=7, producer_epoch=epoch, timestamp_ms=START_MS
        ),
        EPOCH,
        NOW,
    )


def refusal(log: PartitionLog, proof: Verification | None, sequence: int = 0, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(RecordsRefused) as refused:
        send(log, proof, sequence, epoch=epoch)
    return refused.value.code


def test_only_the_first_batch_of_a_transaction_needs_a_proof() -> None:
    log = open_log(SimulatedDisk(), VERIFIED)
    assert refusal(log, None) is ErrorCode.INVALID_TXN_STATE
    assert send(log, begin(log)) == 0
    assert send(log, None, 1) == 1
    assert log.producers.begin_verification(7, 0, 2, adds_partitions=False, now_ms=START_MS) is None


def test_a_marker_voids_a_proof_that_was_begun_before_it() -> None:
    log = open_log(SimulatedDisk(), VERIFIED)
    stale = begin(log)
    end(log)
    assert refusal(log, stale) is ErrorCode.INVALID_TXN_STATE
    assert begin(log) is not stale
    assert refusal(log, stale) is ErrorCode.INVALID_TXN_STATE


def test_the_marker_of_the_transaction_before_leaves_the_proof_of_the_next_epoch() -> None:
    log = open_log(SimulatedDisk(), VERIFIED)
    proof = begin(log, epoch=1, adds=True)
    end(log, epoch=1)
    assert send(log, proof, epoch=1) == 1


def test_a_later_batch_does_not_overtake_one_that_was_tried_before() -> None:
    log = open_log(SimulatedDisk(), VERIFIED)
    proof = begin(log, 0)
    assert begin(log, 1) is proof
    assert refusal(log, proof, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, proof, 0) == 0


def test_an_old_epoch_is_not_even_asked_about() -> None:
    log = open_log(SimulatedDisk(), VERIFIED)
    end(log, epoch=3)
    with pytest.raises(RecordsRefused) as refused:
        begin(log, epoch=2)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, None, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_verifications_that_nobody_answers_are_bounded() -> None:
    log = open_log(SimulatedDisk(), VERIFIED)
    first = begin(log)
    for producer_id in range(100, 100 + 4096):
        log.producers.begin_verification(producer_id, 0, 0, adds_partitions=False, now_ms=START_MS)
    assert refusal(log, first) is ErrorCode.INVALID_TXN_STATE
