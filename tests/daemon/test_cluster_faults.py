"""Faults of live processes of a cluster: no acknowledged record is lost, and the status tells of them."""

import io
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from threading import Event, Thread

import pytest

import sparklog
from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.cli.main import main
from sparklog_server.log.directory.identity import BOOT_FILE
from tests.daemon.broker_process import wait_until

TOPIC, PARTITIONS = "t", 3


class Status:
    """The output of `sparklog cluster status` at one moment."""

    def __init__(self, cluster: EmbeddedBroker) -> None:
        printed = io.StringIO()
        with redirect_stdout(printed):
            arguments = ["cluster", "status", "--json", "--bootstrap-server", cluster.bootstrap_servers]
            self.is_ok = main(arguments) == 0
        told = json.loads(printed.getvalue() or '{"leader": null, "nodes": []}')
        self.leader: int | None = told["leader"]
        self.states: dict[int, str] = {row["node"]: row["state"] for row in told["nodes"]}


@contextmanager
def producing(cluster: EmbeddedBroker, acknowledged: dict[int, list[tuple[int, bytes]]]) -> Iterator[None]:
    """Send numbers to each partition in turns; note the offset of each that is acknowledged."""
    is_over = Event()

    def send() -> None:
        with Producer(bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=60_000) as producer:
            number = 0
            while not is_over.wait(0.002):
                value, partition = b"%d" % number, number % PARTITIONS
                sent = producer.send(TOPIC, value=value, partition=partition)
                sent.add_done_callback(
                    lambda done, value=value, partition=partition: acknowledged[partition].append(
                        (done.result().offset, value)
                    )
                )
                number += 1
            producer.flush()

    sender = Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        is_over.set()
        sender.join()


def test_every_node_names_the_same_controller(cluster: EmbeddedBroker) -> None:
    for address in cluster.bootstrap_servers.split(","):
        printed = io.StringIO()
        with redirect_stdout(printed):
            assert main(["cluster", "describe", "--json", "--bootstrap-server", address]) == 0
        assert json.loads(printed.getvalue())["controller"] == Status(cluster).leader


def stored(cluster: EmbeddedBroker, partition: int) -> list[tuple[int, bytes]]:
    """The (offset, value) pairs of a partition."""
    at = TopicPartition(TOPIC, partition)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([at])
        consumer.seek_to_beginning([at])
        end, found = consumer.end_offsets([at])[at], []
        while len(found) < end:
            found += [(record.offset, record.value or b"") for record in consumer.poll(timeout_ms=1000)]
    return found


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    """Three nodes, fenced after three seconds of silence."""
    with sparklog.embedded(nodes=3, broker_session_timeout_ms=3000) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics({TOPIC: PARTITIONS})
        yield cluster


def registrations(cluster: EmbeddedBroker) -> set[int]:
    """The broker epoch of the last registration of each node, by its boot file."""
    contents = [path.read_bytes() for path in cluster.data_dir.glob(f"*/{BOOT_FILE}")]
    return {json.loads(content)["brokerEpoch"] for content in contents if content}


def test_nodes_that_are_killed_at_once_cost_no_acknowledged_record(cluster: EmbeddedBroker) -> None:
    acknowledged: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(PARTITIONS)}
    with producing(cluster, acknowledged):
        wait_until(lambda: all(len(records) >= 100 for records in acknowledged.values()))
        was = registrations(cluster)
        assert len(was) == 3
        for pid in cluster.pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not was & registrations(cluster))  # the supervisor has started them again
        wait_until(lambda: Status(cluster).is_ok)
    for partition, records in acknowledged.items():
        assert sorted(records) == stored(cluster, partition)


def test_a_killed_controller_and_a_stopped_broker_cost_no_acknowledged_record(
    cluster: EmbeddedBroker,
) -> None:
    acknowledged: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(PARTITIONS)}
    with producing(cluster, acknowledged):
        wait_until(lambda: all(acknowledged.values()))
        was = Status(cluster)
        assert was.is_ok
        assert was.leader is not None
        os.kill(cluster.pids[was.leader - 1], signal.SIGKILL)
        wait_until(lambda: Status(cluster).leader not in (None, was.leader))
        wait_until(lambda: Status(cluster).is_ok)  # the supervisor has started it again
        stopped = next(node for node in (1, 2, 3) if node not in (was.leader, Status(cluster).leader))
        os.kill(cluster.pids[stopped - 1], signal.SIGSTOP)
        try:
            wait_until(lambda: Status(cluster).states.get(stopped, "").startswith("fenced"))
        finally:
            os.kill(cluster.pids[stopped - 1], signal.SIGCONT)
        wait_until(lambda: Status(cluster).is_ok)
    for partition, records in acknowledged.items():
        found = stored(cluster, partition)
        assert sorted(records) == found
        numbers = [int(value) for _, value in found]
        assert numbers == sorted(set(numbers))
