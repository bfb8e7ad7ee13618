"""Kafka's own tools on our groups: each prints what it prints of a real Kafka, reads our records of
groups, and both keep each other's.
"""

import asyncio
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from sparklog.local_broker import embedded
from tests.compatibility import kafka_tools as tools
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.group_members import Member
from tests.compatibility.kafka_broker import RealKafka
from tests.compatibility.kafka_tools import all_that_is_said, kafka_tool

pytestmark = pytest.mark.compat

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
FORMATTERS = "org.apache.kafka.tools.consumer."
LOADING = {
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
NEW_PROTOCOL = (
    "The consumer rebalance protocol (KIP-848) is production-ready! Set group.protocol=consumer to try it "
    "out. "
    "See https://kafka.apache.org/documentation/#consumer_rebalance_protocol"
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    """One of our own: its groups are these tests' alone."""
    with embedded(data_dir=tmp_path_factory.mktemp("tools") / "data") as ours:
        yield LiveBroker(ours.bootstrap_servers, ours.data_dir)


def write(bootstrap: str, topic: str, count: int) -> None:
    """A topic of two partitions with `count` records each."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(timeout=30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(2 * count):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


def commit(bootstrap: str, group: str, topic: str, *offsets: int) -> None:
    """Commit for partitions 0, 1, … by a consumer that is no member."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    parts = [
        confluent_kafka.TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)
    ]
    deadline = time.monotonic() + 30
    while True:
        try:
            consumer.commit(offsets=parts, asynchronous=False)
        except confluent_kafka.KafkaException as refused:
            # A real Kafka that was just started names a coordinator before it has loaded its state.
            if refused.args[0].code() not in LOADING or time.monotonic() > deadline:
                raise
        else:
            break
    consumer.close()


def plain(printed: str) -> str:
    """Without values that differ between two runs of one broker: made-up ids, ports, topic ids, and so many
    spaces.
    """
    printed = re.sub(r"rdkafka-[0-9a-f-]{36}|(?<=\s)[\w+/-]{22}(?= +/127)", "MEMBER", printed)
    printed = re.sub(r"127\.0\.0\.1:\d+", "BROKER", printed)
    printed = re.sub(r"^(\s+at |Caused by: ).*\n", "", printed, flags=re.MULTILINE)
    return "\n".join(
        sorted(re.sub(r" +", " ", line).strip() for line in printed.splitlines() if line.strip())
    )


def tour(bootstrap: str) -> Iterator[tuple[str, str]]:
    """The output of each command, with its standard error, on a broker that has nothing yet."""
    write(bootstrap, "t", 10)
    server = ("--bootstrap-server", bootstrap)

    def run(*arguments: str) -> tuple[str, str]:
        return " ".join(arguments), plain(all_that_is_said(GROUPS, *server, *arguments))

    with ExitStack() as stack:
        for way, group in (("confluent-classic", "classic"), ("confluent-consumer", "modern")):
            member = stack.enter_context(Member(bootstrap, way, group, "t", is_quick=False))
            member.until(lambda one: len(one.records) == 20 and not one.uncommitted)
        yield run("--list")
        yield run("--list", "--state", "--type")
        yield run("--list", "--state", "Stable", "--type", "consumer")
        for group in ("classic", "modern"):
            yield run("--describe", "--group", group)
            yield run("--describe", "--group", group, "--offsets", "--verbose")
            yield run("--describe", "--group", group, "--members")
            yield run("--describe", "--group", group, "--members", "--verbose")
            yield run("--describe", "--group", group, "--state", "--verbose")
            yield run("--reset-offsets", "--group", group, "--topic", "t", "--to-earliest", "--dry-run")
            yield run("--delete", "--group", group)
            yield run("--delete-offsets", "--group", group, "--topic", "t:0")
        yield run("--describe", "--all-groups", "--state")
    commit(bootstrap, "simple", "t", 4, 7)
    for way in (
        ["--to-earliest"],
        ["--to-latest"],
        ["--shift-by", "-2"],
        ["--to-offset", "5"],
        ["--by-duration", "PT1H"],
        ["--to-current"],
    ):
        yield run("--reset-offsets", "--group", "simple", "--topic", "t", *way, "--dry-run")
    yield run("--reset-offsets", "--group", "simple", "--topic", "t:1", "--shift-by", "-3", "--execute")
    yield run("--reset-offsets", "--group", "brand-new", "--all-topics", "--to-latest", "--dry-run")
    yield run("--reset-offsets", "--group", "brand-new", "--topic", "t", "--to-latest", "--execute")
    yield run("--describe", "--group", "simple")
    yield run("--describe", "--group", "simple", "--members")
    yield run("--describe", "--group", "simple", "--state")
    yield run("--delete-offsets", "--group", "simple", "--topic", "t:0")
    yield run("--describe", "--group", "simple")
    yield run("--describe", "--group", "nobody")
    yield run("--describe", "--group", "nobody", "--state")
    yield run("--delete-offsets", "--group", "nobody", "--topic", "t:0")
    yield run("--delete", "--group", "simple", "--group", "nobody")
    yield run("--list")
    for arguments in (
        ["--topic", "t"],
        ["--topic", "t", "--time", "earliest"],
        ["--topic-partitions", "t:1", "--time", "max-timestamp"],
    ):
        yield " ".join(arguments), plain(kafka_tool(tools.GET_OFFSETS, *server, *arguments))


def rows_of(printed: str) -> list[list[str]]:
    """The lines of a table, without its header, in words."""
    return sorted(
        line.split() for line in printed.splitlines() if line.strip() and not line.startswith("GROUP")
    )


def test_kafka_consumer_groups_lists_describes_resets_and_deletes(broker: LiveBroker) -> None:
    write(broker.bootstrap_servers, "tooled", 10)
    commit(broker.bootstrap_servers, "tooled-group", "tooled", 4, 7)
    group = ("--bootstrap-server", broker.bootstrap_servers, "--group", "tooled-group")
    nobody = ["", "Consumer group 'tooled-group' has no active members."]
    described = rows_of(kafka_tool(GROUPS, *group, "--describe", complaints=nobody))
    assert [row for row in described if row[0] == "tooled-group"] == [
        ["tooled-group", "tooled", "0", "4", "10", "6", "-", "-", "-"],
        ["tooled-group", "tooled", "1", "7", "10", "3", "-", "-", "-"],
    ]
    reset = kafka_tool(
        GROUPS, *group, "--reset-offsets", "--topic", "tooled", "--shift-by", "-2", "--execute"
    )
    assert rows_of(reset) == [["tooled-group", "tooled", "0", "2"], ["tooled-group", "tooled", "1", "5"]]
    deleted = kafka_tool(GROUPS, *group, "--delete")
    assert deleted.strip() == "Deletion of requested consumer groups ('tooled-group') was successful."


def test_the_console_consumer_of_a_group_goes_on_where_it_stopped(broker: LiveBroker) -> None:
    write(broker.bootstrap_servers, "console", 5)
    server = (
        "--bootstrap-server",
        broker.bootstrap_servers,
        "--topic",
        "console",
        "--group",
        "console-group",
        "--timeout-ms",
        "20000",
    )
    classic = kafka_tool(
        tools.CONSOLE_CONSUMER, *server, "--from-beginning", "--max-messages", "5", complaints=[NEW_PROTOCOL]
    )
    consumer = ("--command-property", "group.protocol=consumer")
    modern = kafka_tool(tools.CONSOLE_CONSUMER, *server, *consumer, "--max-messages", "5")
    assert sorted(map(int, (classic + modern).split())) == list(range(10))


def test_every_clients_admin_computes_the_same_lag(broker: LiveBroker) -> None:
    bootstrap = broker.bootstrap_servers
    write(bootstrap, "lagging", 10)
    commit(bootstrap, "lagging-group", "lagging", 4, 7)
    assert lag_by_confluent(bootstrap, "lagging-group", "lagging") == {0: 6, 1: 3}
    assert lag_by_kafka_python(bootstrap, "lagging-group", "lagging") == {0: 6, 1: 3}
    assert asyncio.run(lag_by_aiokafka(bootstrap, "lagging-group", "lagging")) == {0: 6, 1: 3}


def lag_by_confluent(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result(timeout=30).topic_partitions
    parts = {confluent_kafka.TopicPartition(topic, one.partition): OffsetSpec.latest() for one in found}
    ends = {
        part.partition: future.result(timeout=30).offset for part, future in admin.list_offsets(parts).items()
    }
    return {one.partition: ends[one.partition] - one.offset for one in found}


def lag_by_kafka_python(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
    parts = [kafka.TopicPartition(topic, index) for index in (0, 1)]
    ends = consumer.end_offsets(parts)
    lag = {part.partition: ends[part] - consumer.committed(part) for part in parts}
    consumer.close()
    return lag


async def lag_by_aiokafka(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group)
    await consumer.start()
    parts = [aiokafka.TopicPartition(topic, index) for index in (0, 1)]
    ends = await consumer.end_offsets(parts)
    lag = {part.partition: ends[part] - await consumer.committed(part) for part in parts}
    await consumer.stop()
    return lag


def test_kafkas_tools_read_our_records_of_groups_and_offsets(broker: LiveBroker) -> None:
    write(broker.bootstrap_servers, "recorded", 5)
    for way, group in (("confluent-classic", "recorded-classic"), ("confluent-consumer", "recorded-modern")):
        with Member(broker.bootstrap_servers, way, group, "recorded", is_quick=False) as member:
            member.until(lambda one: len(one.records) == 10 and not one.uncommitted)
            member.leave()
    logs = [
        path for path in sorted(broker.data_dir.rglob("__consumer_offsets-*/*.log")) if path.stat().st_size
    ]
    dumped = kafka_tool(tools.DUMP_LOG, "--offsets-decoder", "--files", ",".join(map(str, logs)))
    assert "isvalid: false" not in dumped
    offset = r'key: {{"type":"1","data":{{"group":"{}","topic":"recorded","partition":{}}}}} payload: {{"version":"4","data":{{"offset":5,'  # noqa: E501
    for group in ("recorded-classic", "recorded-modern"):
        for partition in (0, 1):
            assert re.search(offset.format(group, partition), dumped), (group, partition)
    assert (
        '"type":"2","data":{"group":"recorded-classic"}} payload: {"version":"3","data":{"protocolType":"consumer","generation":1'  # noqa: E501
        in dumped
    )
    # Of the KIP-848 group: its epoch, its members, its target and what each member has.
    for kind in ("3", "5", "6", "7", "8"):
        assert f'"type":"{kind}","data":{{"groupId":"recorded-modern"' in dumped, kind
    from_beginning = (
        "--bootstrap-server",
        broker.bootstrap_servers,
        "--topic",
        "__consumer_offsets",
        "--from-beginning",
    )
    for formatter, count, said in (
        ("OffsetsMessageFormatter", 40, '"topic":"recorded"'),
        ("GroupMetadataMessageFormatter", 40, '"members":[{'),
    ):
        shown = all_that_is_said(
            tools.CONSOLE_CONSUMER,
            *from_beginning,
            "--formatter",
            FORMATTERS + formatter,
            "--timeout-ms",
            "10000",  # since the last record; Java may take seconds to begin
            "--max-messages",
            str(count),
        )
        assert said in shown, shown


def place(source: Path, target: Path, topic: str = "__consumer_offsets") -> None:
    """Put one broker's partitions of a topic where another keeps them, under the topic id that this one
    knows them by.
    """
    for directory in sorted(target.glob(f"{topic}-*")):
        metadata = (directory / "partition.metadata").read_bytes()
        shutil.rmtree(directory)
        shutil.copytree(source / directory.name, directory)
        (directory / "partition.metadata").write_bytes(metadata)
    (target / ".kafka_cleanshutdown").unlink(
        missing_ok=True
    )  # nothing that was noted of the files before holds for these


def use(bootstrap: str) -> None:
    """A topic, and groups that have committed for it: by no member, by one of each protocol."""
    write(bootstrap, "t", 10)
    commit(bootstrap, "simple", "t", 4, 7)
    for way, group in (("confluent-classic", "classic"), ("confluent-consumer", "modern")):
        with Member(bootstrap, way, group, "t", is_quick=False) as member:
            member.until(lambda one: len(one.records) == 20 and not one.uncommitted)
            member.leave()


USED = {"simple": [4, 7], "classic": [10, 10], "modern": [10, 10]}


@pytest.mark.timeout(240)
def test_a_real_kafka_goes_on_with_our_groups_and_we_with_its(tmp_path: Path) -> None:
    kafka_broker, data_dir = RealKafka(tmp_path), tmp_path / "ours"
    with kafka_broker.running():
        use(kafka_broker.bootstrap_servers)
    with embedded(data_dir=data_dir) as ours:
        write(ours.bootstrap_servers, "t", 10)
        commit(ours.bootstrap_servers, "unused", "t", 1, 1)
    place(kafka_broker.data_dir, data_dir)
    with embedded(data_dir=data_dir) as ours:
        assert {group: committed_of(ours.bootstrap_servers, group) for group in USED} == USED
        commit(ours.bootstrap_servers, "simple", "t", 5, 8)
        commit(ours.bootstrap_servers, "ours", "t", 2, 3)
        with Member(
            ours.bootstrap_servers, "confluent-consumer", "our-modern", "t", is_quick=False
        ) as member:
            member.until(lambda one: len(one.records) == 20 and not one.uncommitted)
            member.leave()
    place(data_dir, kafka_broker.data_dir)
    expected = USED | {"simple": [5, 8], "ours": [2, 3], "our-modern": [10, 10]}
    with kafka_broker.running():
        commit(kafka_broker.bootstrap_servers, "last", "t", 1, 1)  # by then it has loaded its state
        assert {group: committed_of(kafka_broker.bootstrap_servers, group) for group in expected} == expected


def committed_of(bootstrap: str, group: str) -> list[int]:
    """The committed offsets of a group for partitions 0 and 1 of `t`."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result(timeout=30).topic_partitions
    return [one.offset for one in sorted(found, key=lambda one: one.partition)]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kafka_consumer_groups_prints_what_it_prints_of_a_real_kafka(tmp_path: Path) -> None:
    with embedded(data_dir=tmp_path / "data") as ours:
        printed = list(tour(ours.bootstrap_servers))
    kafka_broker = RealKafka(tmp_path)
    with kafka_broker.running():
        expected = list(tour(kafka_broker.bootstrap_servers))
    assert len(printed) == len(expected)
    differing = [
        f"{name}\n--- ours\n{one}\n--- Kafka's\n{other}"
        for (name, one), (_, other) in zip(printed, expected, strict=True)
        if one != other
    ]
    assert not differing, "\n\n".join(differing)
