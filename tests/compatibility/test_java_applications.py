"""Kafka Streams, Kafka Connect and MirrorMaker on live nodes: exactly once across the kill of a leader, and
of the application.
"""

import json
import os
import signal
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

import sparklog
from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.local_broker import EmbeddedBroker
from tests.compatibility.kafka_broker import free_ports
from tests.compatibility.kafka_tools import java_command, write_properties
from tests.daemon.broker_process import wait_until

pytestmark = [pytest.mark.compat, pytest.mark.long, pytest.mark.timeout(600)]

WORD_COUNT = str(Path(__file__).parent / "WordCount.java")
CONNECT = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
WAIT_S = 180
WORDS = [f"w{number}" for number in range(100)]
LINES = [" ".join(Random(number).choices(WORDS, k=5)) for number in range(2_000)]
STORAGE = ("offset", "config", "status")
ONCE = {
    "connector.class": "FileStreamSource",
    "exactly.once.support": "required",
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": "200",
}


@contextmanager
def running(command: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An application, which is killed at the end; its output is shown if the test fails."""
    output = tmp_path / "application.log"
    with output.open("ab") as file, subprocess.Popen(command, stdout=file, stderr=file, cwd=tmp_path) as run:
        try:
            yield run
        except BaseException:
            print(output.read_text()[-5_000:])
            raise
        finally:
            run.kill()


def committed(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """The keys and values of the committed records of a topic, each partition in its order."""
    with (
        Admin(bootstrap_servers=servers) as admin,
        Consumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer,
    ):
        partitions = admin.describe_topics([topic])[topic].partitions
        consumer.assign([TopicPartition(topic, one.partition) for one in partitions])
        ends = consumer.end_offsets(consumer.assignment())
        found: list[tuple[bytes | None, bytes | None]] = []
        while any(consumer.position(at) < end for at, end in ends.items()):
            found += [(record.key, record.value) for record in consumer.poll(100)]
        return found


def kill_leader(cluster: EmbeddedBroker, topic: str) -> None:
    """Kill the node that leads the first partition of a topic; the supervisor starts it again."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        leader = admin.describe_topics([topic])[topic].partitions[0].leader
    os.kill(cluster.pids[leader - 1], signal.SIGKILL)


def test_streams_counts_each_word_once_while_a_leader_and_the_application_are_killed(tmp_path: Path) -> None:
    with sparklog.embedded(nodes=3) as cluster, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        servers = cluster.bootstrap_servers
        admin.create_topics({"lines": 2, "counts": 2})
        command = java_command(WORD_COUNT, servers, tmp_path / "state")

        def write(lines: list[str]) -> None:
            with Producer(bootstrap_servers=servers) as producer:
                for number, line in enumerate(lines):
                    producer.send("lines", line, key=str(number))

        def counted() -> Counter[str]:
            """The last count of each word. Each is above the one before."""
            last = Counter[str]()
            for key, value in committed(servers, "counts"):
                word, count = (key or b"").decode(), int(value or b"")
                assert count > last[word]
                last[word] = count
            return last

        with running(command, tmp_path):
            write(LINES[:500])
            wait_until(lambda: bool(committed(servers, "counts")), WAIT_S)
            kill_leader(cluster, "lines")
            write(LINES[500:1_000])
            wait_until(lambda: counted() == words(LINES[:1_000]), WAIT_S)
            write(LINES[1_000:1_500])
        with running(command, tmp_path) as application:
            write(LINES[1_500:])
            kill_leader(cluster, "counts")
            wait_until(lambda: counted() == words(LINES), WAIT_S)
            assert application.poll() is None


def words(lines: list[str]) -> Counter[str]:
    """How often each word is in the lines."""
    return Counter(word for line in lines for word in line.split(" "))


def test_connect_copies_each_line_of_a_file_once_while_a_leader_is_killed(tmp_path: Path) -> None:
    source, copy, (port,) = tmp_path / "source", tmp_path / "copy", free_ports(1)
    with sparklog.embedded(nodes=3) as cluster:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "connect",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "listeners": f"http://127.0.0.1:{port}",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": 500,
            "consumer.isolation.level": "read_committed",
            **{f"{kind}.storage.topic": f"connect-{kind}" for kind in STORAGE},
            **{f"{kind}.storage.replication.factor": -1 for kind in STORAGE},
        }
        connectors = f"http://127.0.0.1:{port}/connectors"

        def create(name: str, config: Mapping[str, object]) -> bool:
            body = json.dumps({"name": name, "config": {"tasks.max": 1, **config}}).encode()
            request = urllib.request.Request(connectors, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as response:
                return bool(response.status == 201)

        source.write_text("".join(f"{number}\n" for number in range(5_000)))
        with running(java_command(CONNECT, write_properties(tmp_path / "worker", settings)), tmp_path):
            wait_until(answers(connectors), WAIT_S)
            assert create("source", {**ONCE, "file": str(source), "topic": "lines"})
            assert create("sink", {"connector.class": "FileStreamSink", "file": str(copy), "topics": "lines"})
            wait_until(lambda: copy.exists() and copy.read_text() == source.read_text(), WAIT_S)
            kill_leader(cluster, "lines")
            with source.open("a") as file:
                file.writelines(f"{number}\n" for number in range(5_000, 10_000))
            wait_until(lambda: copy.read_text().endswith("9999\n"), WAIT_S)
        assert [int(value or b"") for _, value in committed(cluster.bootstrap_servers, "lines")] == [
            *range(10_000)
        ]
        assert sorted({int(line) for line in copy.read_text().splitlines()}) == [*range(10_000)]


def answers(url: str) -> Callable[[], bool]:
    """Whether an HTTP server answers a GET."""

    def asked() -> bool:
        try:
            with urllib.request.urlopen(url) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    return asked


def test_mirror_maker_copies_records_settings_and_the_offsets_of_groups(tmp_path: Path) -> None:
    with sparklog.embedded() as here, sparklog.embedded(nodes=3) as there:
        settings = {
            "clusters": "here,there",
            "here.bootstrap.servers": here.bootstrap_servers,
            "there.bootstrap.servers": there.bootstrap_servers,
            "here->there.enabled": "true",
            "here->there.topics": "flights",
            "there->here.enabled": "false",
            "replication.factor": -1,
            "here.offset-syncs.topic.replication.factor": 1,
            **{f"{kind}.storage.replication.factor": -1 for kind in STORAGE},
            **{
                f"{kind}.topic.replication.factor": -1
                for kind in ("checkpoints", "heartbeats", "offset-syncs")
            },
            "exactly.once.source.support": "enabled",
            "sync.topic.acls.enabled": "false",
            "sync.group.offsets.enabled": "true",
            "offset.lag.max": 0,
            **{
                f"{what}.interval.seconds": 1
                for what in (
                    "emit.checkpoints",
                    "sync.group.offsets",
                    "refresh.topics",
                    "refresh.groups",
                    "sync.topic.configs",
                )
            },
        }
        with (
            Admin(bootstrap_servers=here.bootstrap_servers) as admin,
            Admin(bootstrap_servers=there.bootstrap_servers) as mirrored,
            Producer(bootstrap_servers=here.bootstrap_servers) as producer,
        ):
            admin.create_topics([sparklog.NewTopic("flights", 2, configs={"retention.ms": "7200000"})])
            for number in range(2_000):
                producer.send("flights", str(number), partition=number % 2)
            producer.flush()
            admin.alter_group_offsets("boards", {TopicPartition("flights", 0): 1_000})
            with running(
                java_command(MIRROR_MAKER, write_properties(tmp_path / "mirror", settings)), tmp_path
            ):
                wait_until(lambda: "here.flights" in mirrored.list_topics(), WAIT_S)
                wait_until(lambda: len(committed(there.bootstrap_servers, "here.flights")) == 2_000, WAIT_S)
                at = TopicPartition("here.flights", 0)
                wait_until(lambda: at in mirrored.list_group_offsets(["boards"])["boards"], WAIT_S)
                assert mirrored.list_group_offsets(["boards"])["boards"][at].offset <= 1_000
                wait_until(lambda: retention_ms(mirrored, "here.flights") == "7200000", WAIT_S)
            values = [int(value or b"") for _, value in committed(there.bootstrap_servers, "here.flights")]
            assert sorted(values) == [*range(2_000)]
            assert [value for value in values if value % 2 == 0] == [*range(0, 2_000, 2)]


def retention_ms(admin: Admin, topic: str) -> str | None:
    """The setting of a topic."""
    return admin.describe_configs([topic])[topic]["retention.ms"].value
