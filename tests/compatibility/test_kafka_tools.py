"""Kafka's own tools, unmodified: they work against our broker, and they read the files it leaves."""

import re
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility import kafka_tools as tools
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.kafka_tools import kafka_tool

pytestmark = pytest.mark.compat

FIRST_SEGMENT = "00000000000000000000"


def files_of(live: LiveBroker, directory: str) -> Path:
    """A partition's directory, in whichever place the broker keeps it."""
    found = sorted(live.data_dir.rglob(directory))
    assert len(found) == 1, f"{directory} in {live.data_dir}: {found}"
    return found[0]


def test_broker_api_versions_knows_the_broker_for_a_kafka_4(live: LiveBroker) -> None:
    output = kafka_tool(tools.BROKER_API_VERSIONS, "--bootstrap-server", live.bootstrap_servers)
    offered = dict(re.findall(r"(\w+)\(\d+\): (\d+(?: to \d+)?) \[usable: \d+\]", output))
    # Produce is offered from 0 although 0-2 are refused: older librdkafka compresses only if it sees 0
    # (KAFKA-18659).
    expected = {
        "Produce": "0 to 13",
        "Fetch": "4 to 18",
        "ListOffsets": "1 to 11",
        "Metadata": "0 to 13",
        "InitProducerId": "0 to 5",
    }
    assert {name: offered.get(name) for name in expected} == expected


def test_kafka_topics_creates_describes_lists_grows_and_deletes(live: LiveBroker) -> None:
    server = ("--bootstrap-server", live.bootstrap_servers)
    topic = f"tool-made-{live.create('n')}"

    assert (
        kafka_tool(tools.TOPICS, *server, "--create", "--topic", topic, "--partitions", "2")
        == f"Created topic {topic}.\n"
    )
    kafka_tool(tools.TOPICS, *server, "--alter", "--topic", topic, "--partitions", "3")
    described = kafka_tool(tools.TOPICS, *server, "--describe", "--topic", topic)
    assert re.search(
        rf"Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 3\tReplicationFactor: 1\t", described
    )
    assert re.findall(r"Partition: (\d)\tLeader: (\d+)\tReplicas: \2\tIsr: \2\t", described) == [
        (partition, leader)
        for partition, leader in zip("012", re.findall(r"Leader: (\d+)", described), strict=True)
    ]
    assert topic in kafka_tool(tools.TOPICS, *server, "--list").splitlines()
    kafka_tool(tools.TOPICS, *server, "--delete", "--topic", topic)
    assert topic not in kafka_tool(tools.TOPICS, *server, "--list").splitlines()


def test_console_producer_and_consumer_pass_lines_and_get_offsets_counts_them(live: LiveBroker) -> None:
    server = ("--bootstrap-server", live.bootstrap_servers)
    topic = live.create("console", partitions=2)
    lines = "".join(f"k{number}:line {number}\n" for number in range(100))

    with_keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    kafka_tool(tools.CONSOLE_PRODUCER, *server, "--topic", topic, *with_keys, given=lines)

    counts = dict(
        re.findall(
            rf"{topic}:(\d):(\d+)", kafka_tool(tools.GET_OFFSETS, *server, "--topic", topic, "--time", "-1")
        )
    )
    assert set(counts) == {"0", "1"}
    assert sum(map(int, counts.values())) == 100
    shown = (
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        "key.separator=:",
        "--timeout-ms",
        "20000",
    )
    read = []
    for partition, count in counts.items():
        assigned = ("--partition", partition, "--offset", "earliest", "--max-messages", count)
        read += kafka_tool(tools.CONSOLE_CONSUMER, *server, "--topic", topic, *assigned, *shown).splitlines()
    assert sorted(read) == sorted(lines.splitlines())


def test_kafka_configs_describes_a_topic_and_the_broker(live: LiveBroker) -> None:
    server = ("--bootstrap-server", live.bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": live.bootstrap_servers})
    topic = f"configured-{live.create('n')}"
    admin.create_topics([NewTopic(topic, 1, 1, config={"segment.bytes": "2097152"})])[topic].result(
        timeout=PATIENCE_S
    )

    own = kafka_tool(tools.CONFIGS, *server, "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "segment.bytes=2097152 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2097152" in own
    every = kafka_tool(
        tools.CONFIGS, *server, "--describe", "--entity-type", "topics", "--entity-name", topic, "--all"
    )
    assert (
        "  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}" in every
    )
    assert (
        "  max.message.bytes=1048588 sensitive=false synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}"
        in every
    )
    node_id = str(next(iter(admin.list_topics(timeout=PATIENCE_S).brokers)))
    broker = kafka_tool(
        tools.CONFIGS, *server, "--describe", "--entity-type", "brokers", "--entity-name", node_id, "--all"
    )
    assert f"  node.id={node_id} sensitive=false" in broker


def test_dump_log_finds_nothing_to_object_to_in_segments_and_indexes(live: LiveBroker) -> None:
    admin = AdminClient({"bootstrap.servers": live.bootstrap_servers})
    topic = f"dumped-{live.create('n')}"
    # The smallest segment Kafka allows; three megabytes in small batches roll twice and fill the indexes.
    # The records are old: a check of retention would delete them.
    config = {"segment.bytes": "1048576", "retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(timeout=PATIENCE_S)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": live.bootstrap_servers, "batch.num.messages": 10, "enable.idempotence": True}
    )
    for number in range(3_000):
        producer.produce(
            topic,
            key=b"%d" % number,
            value=b"v" * 1_000,
            headers=[("n", b"%d" % number)],
            timestamp=1_700_000_000_000 + number,
        )
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0

    directory = files_of(live, f"{topic}-0")
    logs = sorted(directory.glob("*.log"))
    assert len(logs) >= 3
    # The tool expects every file to start at offset 0, and says so of a segment that rightly does not.
    starts = [
        line
        for log in logs[1:]
        for line in (f"Non-consecutive offsets in {log}", f"  -1 is followed by {int(log.stem)}")
    ]
    names = ",".join(map(str, logs))
    dumped = kafka_tool(
        tools.DUMP_LOG, "--deep-iteration", "--print-data-log", "--files", names, complaints=starts
    )
    batches = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* magic: 2 .* isvalid: (\w+)$",
        dumped,
        re.MULTILINE,
    )
    assert {valid for *_, valid in batches} == {"true"}
    assert [int(base) for base, *_ in batches[1:]] == [int(last) + 1 for _, last, *_ in batches[:-1]]
    keys = re.findall(
        r"^\| offset: (\d+) CreateTime: 17000000\d+ keySize: \d+ valueSize: 1000 .* key: (\d+) payload",
        dumped,
        re.MULTILINE,
    )
    assert keys == [(str(number), str(number)) for number in range(3_000)]

    # A broker may hold the active segment's indexes larger than what they say yet: only those of closed
    # segments are to be judged.
    indexes = [log.with_suffix(suffix) for log in logs[:-1] for suffix in (".index", ".timeindex")]
    assert min(index.stat().st_size for index in indexes) > 0
    checked = kafka_tool(tools.DUMP_LOG, "--index-sanity-check", "--files", ",".join(map(str, indexes)))
    assert checked.count("passed sanity check.") == len(indexes)
    # Each entry against its log: a mismatch would be complained of.
    kafka_tool(tools.DUMP_LOG, "--verify-index-only", "--files", ",".join(map(str, indexes)))


def test_dump_log_decodes_the_metadata_log(live: LiveBroker) -> None:
    topic = live.create("in-the-metadata-log", partitions=2)
    log = files_of(live, "__cluster_metadata-0") / f"{FIRST_SEGMENT}.log"

    dumped = kafka_tool(tools.DUMP_LOG, "--cluster-metadata-decoder", "--files", log)

    assert "isvalid: false" not in dumped
    assert "Could not decode" not in dumped
    assert '"leaderId"' in dumped
    assert '"type":"REGISTER_BROKER_RECORD"' in dumped
    assert f'"type":"TOPIC_RECORD","version":0,"data":{{"name":"{topic}"' in dumped
    assert dumped.count('"type":"PARTITION_RECORD"') >= 2


def test_the_java_producer_at_full_speed_loses_nothing(live: LiveBroker) -> None:
    server = ("--bootstrap-server", live.bootstrap_servers)
    topic = live.create("java", partitions=2)
    load = ("--num-records", "50000", "--record-size", "100", "--throughput", "-1")
    report = kafka_tool(
        tools.PRODUCER_PERFORMANCE,
        *server,
        "--topic",
        topic,
        *load,
        "--command-property",
        "compression.type=lz4",
    )
    assert "50000 records sent" in report
    counts = re.findall(rf"{topic}:\d:(\d+)", kafka_tool(tools.GET_OFFSETS, *server, "--topic", topic))
    assert sum(map(int, counts)) == 50_000
