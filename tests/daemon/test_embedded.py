"""A broker of one's own: there when it is wanted, gone when its owner is."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sparklog
from sparklog import Admin, Producer, TopicPartition
from sparklog.client.exactly_once.decision_log import TOPIC as DECISIONS
from sparklog.client.exactly_once.decision_log import DecisionLog
from sparklog.client.settings import ClientSettings
from sparklog.local_broker import BrokerNotStarted
from tests.daemon.broker_process import is_served, stored, wait_until_gone

OWNER = """
import sys, sparklog
broker = sparklog.embedded()
print(broker.pid, broker.data_dir.parent, flush=True)
{then}
"""


def address(bootstrap_servers: str) -> tuple[str, int]:
    host, _, port = bootstrap_servers.rpartition(":")
    return host, int(port)


def test_it_serves_and_leaves_nothing_behind() -> None:
    with sparklog.embedded() as broker:
        with socket.create_connection(address(broker.bootstrap_servers)) as client:
            assert is_served(client)
        assert broker.data_dir.is_dir()
    wait_until_gone(broker.pid)
    assert not broker.data_dir.parent.exists()


def test_three_nodes_serve_as_one_cluster_and_leave_nothing_behind() -> None:
    internal = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
    with sparklog.embedded(nodes=3, num_partitions=3, **internal) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        assert len(set(addresses)) == len(set(cluster.pids)) == 3
        partition = TopicPartition("t", 0)
        for one in addresses:
            with Admin(bootstrap_servers=one) as admin:
                assert [node.node_id for node in admin.describe_cluster().nodes] == [1, 2, 3]
        with Admin(bootstrap_servers=addresses[2]) as admin:
            assert admin.create_topics({"t": -1})["t"].partition_count == 3
        with Producer(bootstrap_servers=addresses[0]) as producer:
            producer.send("t", value=b"one", partition=0)
            producer.flush()
        with Producer(bootstrap_servers=addresses[0], transactional_id="x") as producer:
            producer.init()  # creates the transaction state log
        assert stored(addresses[1], partition) == [b"one"]
        with DecisionLog(ClientSettings.from_kafka({"bootstrap.servers": addresses[1]})) as decisions:
            decisions.make_topic()
        with Admin(bootstrap_servers=addresses[0]) as admin:
            admin.alter_group_offsets("g", {partition: 1})
            topics = ["t", "__consumer_offsets", "__transaction_state", DECISIONS]
            found = admin.describe_topics(topics)
            settings = admin.describe_configs(topics)
        replicas = {frozenset(part.replicas) for name in topics for part in found[name].partitions}
        assert replicas == {frozenset({1, 2, 3})}
        assert [settings[name]["min.insync.replicas"].value for name in topics] == ["2"] * 4
    for pid in (cluster.pid, *cluster.pids):
        wait_until_gone(pid)
    assert not cluster.data_dir.parent.exists()


def test_a_cluster_ends_as_in_a_crash_and_opens_again(tmp_path: Path) -> None:
    with sparklog.embedded(nodes=3, data_dir=tmp_path / "mine") as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics({"t": 3})
        cluster.kill()
        for pid in cluster.pids:
            wait_until_gone(pid)
    with (
        sparklog.embedded(nodes=3, data_dir=tmp_path / "mine") as again,
        Admin(bootstrap_servers=again.bootstrap_servers) as admin,
    ):
        assert "t" in admin.list_topics()


def test_closing_twice_is_closing_once() -> None:
    broker = sparklog.embedded()
    broker.close()
    broker.close()


def test_a_directory_of_the_callers_own_stays(tmp_path: Path) -> None:
    with sparklog.embedded(data_dir=tmp_path / "mine"):
        pass
    assert (tmp_path / "mine" / "meta.properties").exists()


def test_settings_are_given_by_kafkas_names() -> None:
    with pytest.raises(BrokerNotStarted, match=r"num\.partitons.*num\.partitions"):
        sparklog.embedded(num_partitons=3)


def test_two_at_once_do_not_meet() -> None:
    with sparklog.embedded() as one, sparklog.embedded() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        assert one.data_dir != other.data_dir


@pytest.mark.parametrize(
    "then",
    [
        "sys.stdin.read()",
        "import os; child = os.fork(); child or __import__('time').sleep(60); sys.stdin.read()",
    ],
)
def test_it_goes_with_its_directory_when_its_owner_is_killed(then: str) -> None:
    """In the second case a fork of the owner lives on and holds the pipe open: only the pid tells."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER.format(then=then)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        wait_until_gone(int(pid))
        assert not Path(directory).exists()
        # Forked processes end too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(owner.pid, signal.SIGKILL)


def test_it_goes_when_its_owner_ends_without_closing_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OWNER.format(then="")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    pid, directory = done.stdout.split()
    wait_until_gone(int(pid))
    assert not Path(directory).exists()
