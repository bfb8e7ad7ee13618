"""Kafka's files to the byte: Kafka's own tool checks our files, our broker serves those of a real Kafka, and
Kafka serves ours.
"""

import re
import shutil
from pathlib import Path
from random import Random

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from sparklog.model import LeaderEpoch, Millis, NodeId, Offset, TopicPartition, Uuid
from sparklog.record.batch import build_batch
from sparklog.record.compression import Codec
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.recovery.log_loader import Checkpointed
from tests.compatibility import kafka_tools as tools
from tests.compatibility.clients import PATIENCE_S, Sent, consume_with_confluent
from tests.compatibility.kafka_broker import CLUSTER_ID, NODE_ID, RealKafka
from tests.compatibility.kafka_tools import kafka_tool
from tests.log.logs import NOW, START_MS, offset_for_timestamp, records_of, truncate

pytestmark = pytest.mark.compat

EPOCH = LeaderEpoch(0)
SMALL_SEGMENTS = LogConfig(segment_bytes=30_000, index_interval_bytes=1000)
CODECS = ["gzip", "snappy", "lz4", "zstd"]


def new_log(directory: Path, settings: LogConfig = SMALL_SEGMENTS) -> PartitionLog:
    """A log on the real disk, begun or opened again after a clean stop."""
    directory.mkdir(parents=True, exist_ok=True)
    return PartitionLog.open(
        OsDisk(),
        str(directory),
        TopicPartition("t", 0),
        Uuid(bytes(16)),
        settings,
        Checkpointed(was_clean=True),
        now=NOW,
    )


def fill(log: PartitionLog, codec: Codec, *, begin: int = 0, count: int = 1200) -> None:
    """Append records in idempotent batches of ten, numbered from `begin` on."""
    for first in range(begin, begin + count, 10):
        sent = record_values(first, first + 10)
        records = [
            (record.key, record.value, (("n", b"%d" % at),), record.timestamp_ms)
            for at, record in enumerate(sent)
        ]
        batch = build_batch(records, codec=codec, producer_id=9, producer_epoch=0, base_sequence=first)
        log.append(memoryview(batch), EPOCH, NOW)


def record_values(begin: int, end: int) -> list[Sent]:
    """The records of these numbers: values that compress, times that grow."""
    return [
        Sent(
            b"%d" % at,
            b"%d " % at + Random(at).randbytes(20) + b"v" * 60,
            [("n", b"%d" % (at % 10))],
            START_MS + at,
        )
        for at in range(begin, end)
    ]


def dump(directory: Path) -> list[int]:
    """Have Kafka's tool judge every segment, index and snapshot; the offsets it saw."""
    logs = sorted(directory.glob("*.log"))
    starts = [
        line
        for log in logs[1:]
        for line in (f"Non-consecutive offsets in {log}", f"  -1 is followed by {int(log.stem)}")
    ]
    dumped = kafka_tool(
        tools.DUMP_LOG, "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, logs)), complaints=starts  # noqa: E501
    )  # fmt: skip
    batches = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* magic: 2 .* isvalid: (\w+)$",
        dumped,
        re.MULTILINE,
    )
    assert {valid for *_, valid in batches} == {"true"}
    assert [int(base) for base, *_ in batches[1:]] == [int(last) + 1 for _, last, *_ in batches[:-1]]
    indexes = [
        path
        for suffix in ("*.index", "*.timeindex")
        for path in sorted(directory.glob(suffix))
        if path.stat().st_size
    ]
    assert len(indexes) >= 2
    checked = kafka_tool(tools.DUMP_LOG, "--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert checked.count("passed sanity check.") == len(indexes)
    kafka_tool(tools.DUMP_LOG, "--verify-index-only", "--files", ",".join(map(str, indexes)))
    return [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)]


@pytest.mark.parametrize("codec", Codec)
def test_dump_log_accepts_what_we_wrote_after_rolls_a_truncation_and_a_restart(
    codec: Codec, tmp_path: Path
) -> None:
    settings = LogConfig(segment_bytes=30_000 if codec is Codec.NONE else 8_000, index_interval_bytes=1000)
    log = new_log(tmp_path / "t-0", settings)
    fill(log, codec)
    truncate(log, 755)
    assert log.log_end_offset == 750
    fill(log, codec, begin=750, count=300)
    log.close(NOW)
    log = new_log(tmp_path / "t-0", settings)
    fill(log, codec, begin=1050, count=200)
    log.close(NOW)
    assert len(list((tmp_path / "t-0").glob("*.log"))) >= 3
    assert dump(tmp_path / "t-0") == list(range(1250))


def test_dump_log_reads_control_batches_and_the_producers_snapshot(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    for at in range(20):
        records = [(b"k", b"v", (), START_MS + at)]
        log.append_own(
            build_batch(records, producer_id=4, producer_epoch=1, base_sequence=at, is_transactional=True), EPOCH, NOW  # noqa: E501
        )  # fmt: skip
        kind = ControlType.COMMIT if at % 2 else ControlType.ABORT
        log.append_own(
            build_marker(Marker(kind, 2), producer_id=4, producer_epoch=1, timestamp_ms=START_MS + at),
            EPOCH,
            NOW,
        )
    log.close(NOW)
    (snapshot,) = (tmp_path / "t-0").glob("*.snapshot")
    shown = kafka_tool(tools.DUMP_LOG, "--files", snapshot)
    assert re.search(
        r"producerId: 4 producerEpoch: 1 coordinatorEpoch: -?\d currentTxnFirstOffset: OptionalLong.empty "
        r".*lastSequence: 19",
        shown,
    ), shown
    segment = tmp_path / "t-0" / f"{0:020d}.log"
    dumped = kafka_tool(tools.DUMP_LOG, "--deep-iteration", "--print-data-log", "--files", segment)
    assert dumped.count("isTransactional: true isControl: true") == 20
    assert (
        dumped.count("endTxnMarker: COMMIT coordinatorEpoch: 2")
        == dumped.count("endTxnMarker: ABORT coordinatorEpoch: 2")
        == 10
    )


def test_dump_log_reads_the_aborted_transactions_of_each_segment(tmp_path: Path) -> None:
    """Two transactions across each other, aborted in later segments than they began in, one of them after
    an unclean restart.
    """
    settings = LogConfig(segment_bytes=1500, index_interval_bytes=1000)
    log = new_log(tmp_path / "t-0", settings)

    def send(producer_id: int, sequence: int) -> None:
        records = [(b"k", b"v" * 300, (), START_MS)]
        sent = build_batch(
            records, producer_id=producer_id, producer_epoch=1, base_sequence=sequence, is_transactional=True
        )
        log.append(memoryview(sent), EPOCH, NOW)

    def abort(producer_id: int) -> None:
        log.append_own(
            build_marker(
                Marker(ControlType.ABORT, 2), producer_id=producer_id, producer_epoch=1, timestamp_ms=START_MS
            ),
            EPOCH,
            NOW,
        )

    for sequence in range(6):
        send(4, sequence)
        send(5, sequence)
    abort(4)
    log = PartitionLog.open(
        OsDisk(), str(tmp_path / "t-0"), TopicPartition("t", 0), Uuid(bytes(16)), settings, now=NOW
    )
    send(5, 6)
    send(5, 7)
    abort(5)
    assert [tuple(one) for one in log.aborted_transactions(Offset(0), Offset(16))] == [
        (4, 0, 12, 1),
        (5, 1, 15, 16),
    ]
    log.close(NOW)
    shown = [
        kafka_tool(tools.DUMP_LOG, "--files", path) for path in sorted((tmp_path / "t-0").glob("*.txnindex"))
    ]
    found = re.findall(
        r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", "".join(shown)
    )
    assert [tuple(map(int, one)) for one in found] == [(4, 0, 12, 1), (5, 1, 15, 16)]


# -- a real Kafka


def produce(kafka: RealKafka, topic: str, sent: list[Sent], codec: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "compression.type": codec,
            "batch.num.messages": 50,
            "enable.idempotence": True,
        }
    )
    for record in sent:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp=record.timestamp_ms,
            partition=0,
        )
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def make_topic(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1, config={"segment.bytes": "1048576"})])[topic].result(
        timeout=PATIENCE_S
    )


def served_by_us(data_dir: Path, copy: Path, topic: str) -> list[Sent]:
    """Open a copy of Kafka's data directory as our own, and read a partition whole."""
    shutil.copytree(data_dir, copy)
    defaults = LogConfig()
    log_dir = LogDir.open(
        OsDisk(),
        str(copy),
        node_id=NodeId(NODE_ID),
        cluster_id=CLUSTER_ID,
        entropy=Random(1).randbytes,
        defaults=defaults,
        now=NOW,
    )
    log = log_dir.logs[TopicPartition(topic, 0)]
    records = records_of(log)
    assert [record.offset for record in records] == list(range(log.log_end_offset))
    for record in records[:: len(records) // 20]:
        found = offset_for_timestamp(log, Millis(record.timestamp), log.log_end_offset)
        assert found is not None
        assert found[:2] == (record.timestamp, record.offset)
    log_dir.close({}, NOW)
    return [Sent(record.key, record.value, list(record.headers), record.timestamp) for record in records]


def place(ours: Path, kafka: RealKafka, topic: str) -> None:
    """Put our files where Kafka keeps this partition, under the topic id that Kafka gave it."""
    directory = kafka.data_dir / f"{topic}-0"
    metadata = (directory / "partition.metadata").read_bytes()
    shutil.rmtree(directory)
    shutil.copytree(ours, directory)
    (directory / "partition.metadata").write_bytes(metadata)


def test_a_real_kafka_and_we_serve_each_others_directories_after_clean_stops_and_kills(
    tmp_path: Path,
) -> None:
    kafka = RealKafka(tmp_path)
    sent = record_values(0, 20_000)
    with kafka.running() as admin:
        for topic in ("theirs", "ours-clean", "ours-killed"):
            make_topic(admin, topic)
        produce(kafka, "theirs", sent[:12_000], "none")  # enough to roll
        for at, codec in enumerate(CODECS):
            produce(kafka, "theirs", sent[12_000 + at * 2_000 : 14_000 + at * 2_000], codec)
    assert len(list((kafka.data_dir / "theirs-0").glob("*.log"))) >= 2
    assert served_by_us(kafka.data_dir, tmp_path / "stopped", "theirs") == sent

    log = new_log(tmp_path / "ours", LogConfig(segment_bytes=300_000))
    for at, codec in enumerate(Codec):
        fill(log, codec, begin=at * 2000, count=2000)
    ours = record_values(0, 10_000)
    log.close(NOW)
    place(tmp_path / "ours", kafka, "ours-clean")
    with kafka.running(is_killed=True) as admin:
        assert consume_with_confluent(kafka.bootstrap_servers, "ours-clean", len(ours)) == ours
        latest = admin.list_offsets(
            {confluent_kafka.TopicPartition("ours-clean", 0): OffsetSpec.for_timestamp(START_MS + 7_777)}
        )
        assert [found.result(timeout=PATIENCE_S).offset for found in latest.values()] == [7_777]
        more = record_values(20_000, 24_000)
        produce(kafka, "theirs", more, "zstd")
        produce(kafka, "ours-clean", more, "none")
    assert served_by_us(kafka.data_dir, tmp_path / "killed", "theirs") == sent + more
    assert served_by_us(kafka.data_dir, tmp_path / "continued", "ours-clean") == ours + more

    # After a kill Kafka recovers our segments by itself: CRC, indexes and producers.
    place(tmp_path / "ours", kafka, "ours-killed")
    with kafka.running():
        assert consume_with_confluent(kafka.bootstrap_servers, "ours-killed", len(ours)) == ours
