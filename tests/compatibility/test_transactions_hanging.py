"""Kafka's own tool ends a hanging transaction of ours: in a topic of records, and in the partition that
keeps a group's offsets.
"""

import time
from pathlib import Path

import pytest

from sparklog.local_broker import embedded
from sparklog.record.batch import build_batch
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.kafka_tools import kafka_tool
from tests.compatibility.test_transactions_back_to_back import EARLY, STARTING, Hasty, until_done
from tests.compatibility.transaction_kafka import KafkaSpeaker

pytestmark = [pytest.mark.compat, pytest.mark.long]
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
HOUR_MS = 3_600_000


class Stray(Hasty):
    """A producer that writes in a transaction of which it tells its coordinator nothing."""

    def stray_record(self) -> int:
        records = [(None, b"stray", (), int(time.time() * 1000) - HOUR_MS)]
        batch = build_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = [TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(0, bytes(batch))])]
        answer = self._speaker.ask(ProduceRequest(self.id, -1, 30_000, data), 11, ProduceResponse)
        assert isinstance(answer, ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code

    def stray_offset(self) -> int:
        topics = [TxnOffsetCommitRequestTopic(self._topic, [TxnOffsetCommitRequestPartition(0, 7)])]
        request = TxnOffsetCommitRequest(self.id, "g", self.producer_id, self.epoch, topics=topics)
        answer = self._speaker.ask(request, 3, TxnOffsetCommitResponse)
        assert isinstance(answer, TxnOffsetCommitResponse)
        return answer.topics[0].partitions[0].error_code

    def find_group(self) -> int:
        answer = self._speaker.ask(
            FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse
        )
        assert isinstance(answer, FindCoordinatorResponse)
        return answer.coordinators[0].error_code


def open_in(servers: str, topic: str) -> int:
    """How many transactions the tool finds open in partition 0 of a topic."""
    told = kafka_tool(
        TRANSACTIONS,
        "--bootstrap-server",
        servers,
        "describe-producers",
        "--topic",
        topic,
        "--partition",
        "0",
    )
    return sum(line.split()[-1] != "None" for line in told.splitlines()[1:])


def test_kafkas_tool_ends_a_hanging_transaction(tmp_path: Path) -> None:
    with embedded(
        data_dir=tmp_path / "data",
        transaction_partition_verification_enable=False,
        offsets_topic_num_partitions=1,
    ) as broker:
        servers = broker.bootstrap_servers
        topic = LiveBroker(servers, broker.data_dir).create("hangs")
        speaker = KafkaSpeaker(int(servers.rpartition(":")[2]))
        one = Stray(speaker, topic)
        until_done(one.find, *STARTING)
        until_done(one.find_group, *STARTING)
        until_done(one.init, *STARTING)
        until_done(one.stray_record, *EARLY)
        until_done(one.stray_offset, *STARTING)
        for name in (topic, "__consumer_offsets"):
            assert open_in(servers, name) == 1
            abort = ("abort", "--topic", name, "--partition", "0", "--start-offset", "0")
            kafka_tool(TRANSACTIONS, "--bootstrap-server", servers, *abort)
            assert open_in(servers, name) == 0
        speaker.close()
