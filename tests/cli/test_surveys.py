"""Every listing, `top`, `status`, `health` and console page of a cluster right after a rolling restart,
beside a node that leads nothing, one that hangs, and one that is down.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import sparklog
from sparklog import Admin, Producer, TopicPartition
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.console.ask import Console
from sparklog_server.console.clusters import Target
from tests.cli.conftest import PROGRAM, Tell, Told
from tests.console.browser import Browser, browsing
from tests.daemon.broker_process import BrokerProcess, wait_until

LISTINGS = (
    ("groups", "list"),
    ("groups", "describe"),
    ("groups", "describe", "--members"),
    ("transactions", "list"),
    ("transactions", "find-hanging"),
    ("log-dirs", "describe"),
    ("topics", "list"),
    ("topics", "describe"),
    ("cluster", "describe"),
    ("cluster", "quorum"),
    ("cluster", "features"),
    ("producers", "t"),
)
GROUPS = ["g", *(f"g{number}" for number in range(8))]
PAGES = ("/", "/topics", "/topics/t", "/groups", "/group?name=g", "/transactions", "/quorum", "/settings")


@dataclass
class Restarted:
    """Three nodes after a rolling restart, in which leadership does not return, and a fourth without
    partitions.
    """

    cluster: EmbeddedBroker
    start_fourth: Callable[[], BrokerProcess]
    fourth: BrokerProcess
    servers: str
    admin: Admin
    browser: Browser

    def pid_of(self, node: int) -> int:
        """The process of a node, which the supervisor has started anew."""
        told = self.cluster.log()
        return int(told.rpartition(f" node={node} pid=")[2].split()[0])


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    settings = {
        "auto_leader_rebalance_enable": "false",
        "offsets_topic_num_partitions": 6,
        "transaction_state_log_num_partitions": 6,
        "broker_session_timeout_ms": 60_000,
    }
    data_dir = tmp_path_factory.mktemp("fourth") / "data"
    with (
        sparklog.embedded(nodes=3, **settings) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        browsing(Console(Target({"bootstrap.servers": cluster.bootstrap_servers}))) as browser,
    ):
        admin.create_topics({"t": 6})
        for group in GROUPS:
            admin.alter_group_offsets(group, {TopicPartition("t", 0): 0})
        with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x") as producer:
            producer.init()
            producer.begin()
            producer.send("t", b"x", partition=0)
            producer.commit()
        for pid in cluster.pids:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists())  # type: ignore[misc]
            wait_until(lambda: len(admin.describe_cluster().nodes) == 3 and is_in_sync(admin))
        join = ("--join", cluster.bootstrap_servers.split(",")[0], "--data-dir", str(data_dir))
        with ExitStack() as stack:

            def start_fourth() -> BrokerProcess:
                process = stack.enter_context(
                    BrokerProcess("--node-id", "4", "--listen", "127.0.0.1:0", *join)
                )
                process.address()
                wait_until(lambda: len(admin.describe_cluster().nodes) == 4)
                return process

            yield Restarted(cluster, start_fourth, start_fourth(), cluster.bootstrap_servers, admin, browser)


def is_in_sync(admin: Admin) -> bool:
    topics = admin.list_topics(include_internal=True).values()
    return all(set(p.isr) == set(p.replicas) for topic in topics for p in topic.partitions)


def leaders(admin: Admin) -> set[int]:
    topics = admin.list_topics(include_internal=True).values()
    return {p.leader for topic in topics for p in topic.partitions}


def run_together(servers: str, *commands: tuple[str, ...]) -> list[Told]:
    """Each in a process of its own, at the same time: a node that hangs costs each of them its patience."""

    def run(command: tuple[str, ...]) -> Told:
        arguments = [sys.executable, "-c", PROGRAM, *command, "-b", servers]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        ended = subprocess.run(arguments, capture_output=True, check=False, timeout=60, env=environment)
        return Told(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(run, commands))


def test_every_listing_is_whole_after_a_rolling_restart(restarted: Restarted, tell: Tell) -> None:
    assert not {3, 4} & leaders(restarted.admin)  # the last one restarted, and the fourth, lead nothing
    told = {command: tell(*command, "-b", restarted.servers) for command in LISTINGS}
    assert {command: one.code for command, one in told.items()} == dict.fromkeys(LISTINGS, 0)
    assert [row[0] for row in told["groups", "list"].rows] == GROUPS
    assert [row[0] for row in told["groups", "describe"].rows] == GROUPS
    assert [int(row[5]) > 0 for row in told["groups", "describe"].rows] == [True] * 9
    assert [row[0] for row in told["transactions", "list"].rows] == ["x"]
    directories = [row[0] for row in told["log-dirs", "describe"].rows if row[0].startswith("broker=")]
    assert directories == [f"broker={node}" for node in (1, 2, 3, 4)]


def test_status_top_and_health_are_whole_after_a_rolling_restart(restarted: Restarted, tell: Tell) -> None:
    status = tell("status", "-b", restarted.servers, "--json")
    assert status.code == 0
    assert [one["state"] for one in status.json["brokers"]] == ["ok"] * 4
    assert len(status.json["groups"]) == 9
    assert status.json["lag"] == sum(one["lag"] for one in status.json["groups"]) > 0
    top = tell("top", "--once", "--interval", "0.2", "-b", restarted.servers, "--json")
    assert top.code == 0
    assert len(top.json["groups"]) == 9
    assert [one["state"] for one in top.json["brokers"]] == ["ok"] * 4
    health = tell("health", "-b", restarted.servers, "--watch", "1", "--json")
    found = {one["subject"]: one["state"] for one in health.json["findings"]}
    assert "UNKNOWN" not in found.values()
    assert {found[subject] for subject in ("partitions", "brokers", "groups", "log directories")} == {"OK"}
    state = tell("cluster", "status", "-b", restarted.servers, "--json")
    assert (state.code, len(state.json["nodes"])) == (0, 4)
    assert state.json["due_leaders"] > 0


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_whole_after_a_rolling_restart(restarted: Restarted, path: str) -> None:
    page = restarted.browser.get(path)
    assert "Incomplete" not in page.text


@pytest.mark.long
def test_a_node_that_hangs_is_named_and_its_part_is_never_zero(restarted: Restarted) -> None:
    # The coordinator of some of the groups, and the leader of their partition.
    hung = restarted.admin.list_topics()["t"].partitions[0].leader
    pid = restarted.pid_of(hung)
    os.kill(pid, signal.SIGSTOP)
    target = Target({"bootstrap.servers": restarted.servers})
    try:
        begun_s = time.monotonic()
        groups, described, dirs, status, health, top = run_together(
            restarted.servers,
            ("groups", "list"),
            ("groups", "describe"),
            ("log-dirs", "describe"),
            ("status", "--json"),
            ("health",),
            ("top", "--once", "--interval", "0.2", "--json"),
        )
        took_s = time.monotonic() - begun_s
        with browsing(Console(target)) as browser:
            overview, listed = browser.get("/"), browser.get("/groups")
            settings = browser.get("/settings", 503, broker=str(hung))
    finally:
        os.kill(pid, signal.SIGCONT)
    named = f"broker {hung} at "
    for one in (groups, described, dirs):
        assert one.code == 1
        assert named in one.err
    assert 0 < len(groups.rows) < 9
    assert {row[5] for row in described.rows} == {""}  # the leader of the partition hangs
    assert f"broker={hung}" not in dirs.out
    assert status.code == 1
    assert [one["state"] for one in status.json["brokers"] if one["broker"] == hung] == ["silent"]
    assert status.json["lag"] is None
    assert all(one["lag"] is None for one in status.json["groups"])
    assert any(named in note for note in status.json["notes"])
    assert ["WARN", "brokers"] in [row[:2] for row in health.rows]
    assert [one["state"] for one in top.json["brokers"] if one["broker"] == hung] == ["silent"]
    assert all(one["lag"] is None for one in top.json["groups"])
    assert any(named in note for note in top.json["notes"])
    assert took_s < 30  # each call waited for the node on its own before: a minute
    for page in (overview, listed):
        assert "Incomplete" in page.text
        assert named in page.text
    assert f"Settings of broker {hung}" in settings.text
    assert f"Broker {hung} does not answer" in settings.text


def test_a_node_that_is_down_has_no_settings_of_another_one(restarted: Restarted) -> None:
    assert restarted.fourth.end(signal.SIGTERM)[0] == 0
    wait_until(lambda: len(restarted.admin.describe_cluster().nodes) == 3)
    page = restarted.browser.get("/settings", 503, broker="4")
    assert "Settings of broker 4" in page.text
    assert "Broker 4 is fenced" in page.text
    assert "there is no broker '9'" in restarted.browser.get("/settings", 404, broker="9").text
    overview = restarted.browser.get("/")
    assert "fenced" in overview.text
    assert "Incomplete" not in overview.text
    restarted.fourth = restarted.start_fourth()  # for the tests that an order from a seed runs after this one
