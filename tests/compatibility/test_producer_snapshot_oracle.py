"""What our recovery knows of producers from a log that a real Kafka wrote is, byte for byte, the snapshot
that Kafka wrote of it.

But for the times: Kafka keeps those of the records, we keep those of the appends, which of a log without
snapshots is when it was opened.
"""

import shutil
import time
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import NewTopic

from sparklog.model import Instant, Micros, Millis, TopicPartition, Uuid
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.producers.producer_state import ProducerState
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.kafka_broker import RealKafka

pytestmark = pytest.mark.compat


def produce(kafka: RealKafka, name: str | None, *, count: int, ending: str = "") -> None:
    """Records of one producer; with a name, in a transaction with that ending."""
    settings: dict[str, object] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "enable.idempotence": True,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer(settings if name is None else {**settings, "transactional.id": name})
    if name is not None:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for number in range(count):
        producer.produce("t", value=b"%d" % number, partition=0)
        producer.flush(PATIENCE_S) if number % 3 == 0 else producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    if ending == "commit":
        producer.commit_transaction(PATIENCE_S)
    elif ending == "abort":
        producer.abort_transaction(PATIENCE_S)


def test_producers_recovered_from_kafkas_log_make_kafkas_snapshot(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path)
    with kafka.running() as admin:
        for made in admin.create_topics([NewTopic("t", 1, 1)]).values():
            made.result(timeout=PATIENCE_S)
        for _ in range(2):
            produce(kafka, None, count=40)
            produce(kafka, "committed", count=7, ending="commit")
            produce(kafka, "aborted", count=5, ending="abort")
        produce(kafka, "open", count=3)
    *_, newest = sorted((kafka.data_dir / "t-0").glob("*.snapshot"))
    expected = newest.read_bytes()

    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (kafka.data_dir / "t-0").glob("*.log"):
        shutil.copy(path, copy)
    now = Instant(Micros(0), Millis(int(time.time() * 1000)))
    log = PartitionLog.open(
        OsDisk(),
        str(copy),
        TopicPartition("t", 0),
        Uuid(bytes(16)),
        LogConfig(),
        now=now,
    )
    assert log.log_end_offset == int(newest.stem)
    kafkas = ProducerState.parse(expected)
    assert kafkas.render() == expected
    for producer_id, producer in log.producers.producers.items():
        assert producer.last_timestamp == kafkas.producers[producer_id].last_timestamp
        assert producer.appended_ms == now.wall_ms
        producer.appended_ms = producer.last_timestamp
    assert log.producers.render() == expected
    epochs = {producer.coordinator_epoch for producer in log.producers.producers.values()}
    assert -1 in epochs
    assert max(epochs) >= 0
    log.close()
