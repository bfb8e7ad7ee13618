"""`sparklog cluster restart --rolling` of a supervised cluster: beside a producer, and where it refuses."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

import sparklog
from sparklog import Admin, NewTopic
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.daemon.supervisor_socket import SupervisorRequest, ask_supervisor
from tests.cli.conftest import PROGRAM
from tests.daemon.broker_process import stored_by, wait_until

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    directory = tmp_path_factory.mktemp("rolling") / "data"
    settings = {"broker_session_timeout_ms": 3000, "broker_heartbeat_interval_ms": 500}
    with sparklog.embedded(nodes=3, data_dir=directory, **settings) as found:
        yield found


def restart(cluster: EmbeddedBroker, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PROGRAM, "cluster", "restart", *options]
    return subprocess.run(
        [*command, "--bootstrap-server", cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def pids(cluster: EmbeddedBroker) -> list[int]:
    return [one.pid for one in ask_supervisor(cluster.data_dir, SupervisorRequest()).nodes]


@contextmanager
def writing(servers: str, topic: str) -> Iterator[list[int]]:
    """Write numbers until the end of the block; those that are acknowledged. A failure is an error."""
    acknowledged: list[int] = []
    failed: list[object] = []
    is_over = threading.Event()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})

    def write() -> None:
        number = 0
        while not is_over.is_set():

            def done(error: object, _: object, number: int = number) -> None:
                failed.append(error) if error else acknowledged.append(number)

            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=done)
            number += 1
            producer.poll(0.002)
        producer.flush(30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()
    assert failed == []


def test_each_node_restarts_once_the_controller_last_and_no_record_fails(cluster: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assignment = [[(first + step) % 3 + 1 for step in range(3)] for first in range(PARTITIONS)]
        admin.create_topics([NewTopic("t", assignment=assignment)])
        controller = admin.describe_quorum().leader
    before = pids(cluster)
    with writing(cluster.bootstrap_servers, "t") as acknowledged:
        wait_until(lambda: len(acknowledged) > 100)
        done = restart(cluster, "--rolling")
        count = len(acknowledged)
        wait_until(lambda: len(acknowledged) > count + 100)
    assert done.returncode == 0, done.stderr
    assert re.findall(
        r"^node (\d) hands over \d leaderships? and stops \(pid (\d+)\)$", done.stdout, re.MULTILINE
    ) == [(str(node), str(before[node - 1])) for node in [*sorted({1, 2, 3} - {controller}), controller]]
    assert len(re.findall(r"^node \d is in service ", done.stdout, re.MULTILINE)) == 3
    assert done.stdout.splitlines()[-1] == "restarted 3 nodes"
    assert set(before).isdisjoint(pids(cluster))
    values = stored_by(cluster.bootstrap_servers, "t", PARTITIONS)
    assert sorted(int(value) for value in values if value is not None) == sorted(acknowledged)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.describe_topics(["t"])["t"].partitions
    assert [one.leader for one in found] == [one.replicas[0] for one in found], done.stdout


def test_a_cluster_that_is_not_whole_is_restarted_by_force_alone(cluster: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        node = next(one for one in (1, 2, 3) if one != admin.describe_quorum().leader)
        before = pids(cluster)
        os.kill(before[node - 1], signal.SIGSTOP)
        try:
            wait_until(
                lambda: any(one.is_fenced for one in admin.describe_cluster(include_fenced=True).nodes)
            )
            refused = restart(cluster, "--rolling")
            assert refused.returncode == 1
            assert f"sparklog: node {node} is not in service: it is fenced" in refused.stderr
            assert "nothing was restarted" in refused.stderr
            assert pids(cluster) == before
            stuck = restart(cluster, "--rolling", "--force", "--timeout", "1")
            assert stuck.returncode == 1
            assert re.search(r"gave up on node \d after 1 s: .+; not restarted: ", stuck.stderr)
        finally:
            os.kill(before[node - 1], signal.SIGCONT)
        wait_until(
            lambda: not any(one.is_fenced for one in admin.describe_cluster(include_fenced=True).nodes)
        )


def test_a_directory_without_supervisor_is_refused(cluster: EmbeddedBroker, tmp_path: Path) -> None:
    refused = restart(cluster, "--rolling", "--dir", str(tmp_path))
    assert refused.returncode == 1
    assert f"no supervisor answers at {tmp_path}/supervisor.sock" in refused.stderr
    assert restart(cluster).returncode == 2
