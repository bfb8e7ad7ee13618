"""A producer of transaction version 2 that never waits between transactions: only CONCURRENT_TRANSACTIONS
may ask it to come again.
"""

import time
from collections.abc import Callable

import pytest

from sparklog.errors import ErrorCode, code_of
from sparklog.record.batch import build_batch
from sparklog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.test_transactions_own import read
from tests.compatibility.transaction_kafka import KafkaSpeaker

pytestmark = pytest.mark.compat
TRANSACTIONS = 60
EARLY = (ErrorCode.CONCURRENT_TRANSACTIONS,)
STARTING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def until_done(ask: Callable[[], int], *again: ErrorCode) -> None:
    """Ask until the answer is none of `again`; it must be NONE then."""
    deadline = time.monotonic() + PATIENCE_S
    while (code := code_of(ask())) in again:
        assert time.monotonic() < deadline, code
    assert code is ErrorCode.NONE


class Hasty:
    """A transactional producer of one partition, without pauses."""

    def __init__(self, speaker: KafkaSpeaker, topic: str) -> None:
        self._speaker = speaker
        self._topic = topic
        self.id = f"hasty-{topic}"
        self.producer_id, self.epoch = -1, -1

    def find(self) -> int:
        answer = self._speaker.ask(
            FindCoordinatorRequest(key_type=1, coordinator_keys=[self.id]), 4, FindCoordinatorResponse
        )
        assert isinstance(answer, FindCoordinatorResponse)
        return answer.coordinators[0].error_code

    def init(self) -> int:
        answer = self._speaker.ask(InitProducerIdRequest(self.id, 60_000), 5, InitProducerIdResponse)
        assert isinstance(answer, InitProducerIdResponse)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    def send(self, value: str) -> int:
        records = [(None, value.encode(), (), int(time.time() * 1000))]
        batch = build_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = [TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(0, bytes(batch))])]
        answer = self._speaker.ask(ProduceRequest(self.id, -1, 30_000, data), 12, ProduceResponse)
        assert isinstance(answer, ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code

    def end(self, *, is_commit: bool) -> int:
        answer = self._speaker.ask(
            EndTxnRequest(self.id, self.producer_id, self.epoch, is_commit), 5, EndTxnResponse
        )
        assert isinstance(answer, EndTxnResponse)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code


def test_a_producer_that_never_waits_between_transactions_is_not_fenced(live: LiveBroker) -> None:
    topic = live.create("hasty")
    speaker = KafkaSpeaker(int(live.bootstrap_servers.rpartition(":")[2]))
    try:
        one = Hasty(speaker, topic)
        until_done(one.find, *STARTING)
        until_done(one.init, *STARTING)
        for number in range(TRANSACTIONS):
            until_done(lambda name=str(number): one.send(name), *EARLY)  # type: ignore[misc]
            until_done(lambda: one.end(is_commit=True), *EARLY)
            before = one.epoch
            until_done(
                lambda: one.end(is_commit=False), *EARLY
            )  # of nothing, while the markers of the commit are written
            assert one.epoch == before + 1
    finally:
        speaker.close()
    assert read(live, topic) == [str(number) for number in range(TRANSACTIONS)]
