"""What compaction leaves of transactions that a real Kafka wrote: Kafka's tool reads it, and Kafka itself
serves it as before.
"""

import re
import time
from base64 import urlsafe_b64decode
from pathlib import Path
from random import Random

import confluent_kafka
import pytest
from confluent_kafka.admin import NewTopic

from sparklog.model import Instant, LeaderEpoch, Millis, TopicPartition, Uuid
from sparklog.record.batch import decode_records
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from tests.compatibility import kafka_tools as tools
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.kafka_broker import RealKafka
from tests.compatibility.kafka_tools import all_that_is_said
from tests.log.compacting import compact
from tests.log.logs import NOW, batch, read_all, sync

pytestmark = [pytest.mark.compat, pytest.mark.long]

TOPIC = "kept"
KEYS, TRANSACTIONS, PRODUCERS = 25, 120, 3
MARKERS_KEY = 4
SETTINGS = LogConfig(segment_bytes=20_000, is_compacted=True, delete_retention_ms=1000)


def write(kafka: RealKafka) -> dict[str, str]:
    """Transactions of three producers, a third of them aborted; the last committed value of each key."""
    random = Random(7)
    producers = [
        confluent_kafka.Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"p{number}"}
        )
        for number in range(PRODUCERS)
    ]
    for producer in producers:
        producer.init_transactions(PATIENCE_S)
    kept: dict[str, str] = {}
    for number in range(TRANSACTIONS):
        producer = producers[number % len(producers)]
        written = {
            f"k{random.randrange(KEYS)}": f"{number}-{position}" * 20
            for position in range(random.randrange(1, 6))
        }
        producer.begin_transaction()
        for key, value in written.items():
            producer.produce(TOPIC, value, key)
        producer.flush(PATIENCE_S)
        if random.random() < 0.35:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
            kept |= written
    return kept


def read(kafka: RealKafka) -> list[tuple[str, str]]:
    """The records of a read_committed consumer, from the start to the end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "r",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    seen: list[tuple[str, str]] = []
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        seen.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
    end = None if message is None else message.error()
    assert end is not None
    assert end.code() == confluent_kafka.KafkaError._PARTITION_EOF
    consumer.close()
    return seen


def opened(disk: OsDisk, directory: Path, now: Instant) -> PartitionLog:
    """The log as Kafka has left it, or we have."""
    (told,) = re.findall(r"topic_id: (\S+)", (directory / "partition.metadata").read_text())
    topic_id = Uuid(urlsafe_b64decode(told + "=="))
    return PartitionLog.open(disk, str(directory), TopicPartition(TOPIC, 0), topic_id, SETTINGS, now=now)


def compacted(disk: OsDisk, directory: Path, wall_ms: int) -> PartitionLog:
    """One round over all of it but a last record, which makes the segment before it one that is closed."""
    now = Instant(NOW.mono_us, Millis(wall_ms))
    log = opened(disk, directory, now)
    log.append(batch(key=b"the last", value=b"v" * 15_000, timestamp=wall_ms), LeaderEpoch(0), now)
    sync(disk, log)
    assert compact(disk, log, now_ms=wall_ms)
    log.close(now)
    return opened(disk, directory, now)


def test_kafka_serves_its_own_transactions_after_we_have_compacted_them(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path, {"log.cleaner.enable": "false"})
    with kafka.running() as admin:
        topic = NewTopic(TOPIC, 1, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([topic])[TOPIC].result(timeout=PATIENCE_S)
        kept = write(kafka)
        assert dict(read(kafka)) == kept
    directory, disk, wall_ms = kafka.data_dir / f"{TOPIC}-0", OsDisk(), int(time.time() * 1000)
    assert list(directory.glob("*.txnindex"))
    markers = []
    for later_ms in (0, 10_000, 20_000):
        log = compacted(disk, directory, wall_ms + later_ms)
        records = [
            record
            for place in read_all(log)
            for record in decode_records(place.content, include_control=True)
        ]
        aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        markers.append(sum(1 for one in records if len(one.key or b"") == MARKERS_KEY))
        log.close(Instant(NOW.mono_us, Millis(wall_ms + later_ms)))
    # The first round takes the data, the second sees that it is gone and says when its markers may go, the
    # third takes them: but those of what is still there, and of the last batch of a producer, which stays for
    # its sequence.
    assert markers[:2] == [TRANSACTIONS, TRANSACTIONS]
    assert markers[2] <= len(kept) + PRODUCERS
    assert len(aborted) <= PRODUCERS
    names = ",".join(
        str(path) for suffix in ("log", "txnindex") for path in sorted(directory.glob(f"*.{suffix}"))
    )
    assert "isvalid: false" not in all_that_is_said(tools.DUMP_LOG, "--deep-iteration", "--files", names)
    with kafka.running():
        seen = [(key, value) for key, value in read(kafka) if key != "the last"]
        assert dict(seen) == kept
        assert len(seen) == len(kept)
