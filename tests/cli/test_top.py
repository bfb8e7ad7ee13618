"""`sparklog top`: its figures are those of a client that counts, hostile names do not act, and a cluster that
goes away comes back.
"""

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.harness import free_port
from sparklog import Admin, Producer, TopicPartition
from sparklog_server.cli.top_figures import (
    BYTES_IN,
    BrokerFigures,
    Counters,
    Figures,
    GroupFigures,
    RequestFigures,
    TopicFigures,
)
from sparklog_server.cli.top_screen import drawn
from tests.cli.conftest import PROGRAM, Tell
from tests.daemon.broker_process import PATIENCE_S, BrokerProcess
from tests.daemon.http_nodes import HttpNode, http_broker

NASTY = "g[red]\x1b[31m\u202e\x00\n\tx"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with http_broker(tmp_path_factory.mktemp("top") / "data") as process:
        yield HttpNode(process)


@contextmanager
def writing(servers: str, topic: str) -> Iterator[None]:
    """A producer that writes on."""
    is_over = threading.Event()

    def write() -> None:
        with Producer(bootstrap_servers=servers) as producer:
            while not is_over.wait(0.002):
                producer.send(topic, b"x" * 100)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_rates_lag_and_requests_are_those_of_the_cluster(node: HttpNode, tell: Tell) -> None:
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics({"t": 2, "idle": 1})
        admin.alter_group_offsets(NASTY, {TopicPartition("t", 0): 0})
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        producer.send("t", b"first", partition=0).result()
    arguments = ("top", "--once", "--interval", "0.3", "-b", node.bootstrap_servers)
    with writing(node.bootstrap_servers, "t"):
        told = tell(*arguments, "--http", node.url, "--json")
        lines = tell(*arguments, "--http", node.url).out
        blind = tell(*arguments)
    assert told.code == 0
    (topic,) = told.json["topics"]
    assert (topic["topic"], topic["bytes_out"]) == ("t", 0.0)
    assert topic["records_in"] > 0
    assert topic["bytes_in"] > 0
    requests = {one["request"]: one for one in told.json["requests"]}
    assert requests["Produce"]["per_s"] > 0
    assert requests["Produce"]["total"] > 0
    assert requests["Produce"]["node"] == node.url.removeprefix("http://")
    (group,) = told.json["groups"]
    assert (group["group"], group["members"], group["lag"] > 0) == (NASTY, 0, True)
    (broker,) = told.json["brokers"]
    assert (broker["state"], broker["total"] > broker["usable"] > 0) == ("ok", True)
    assert told.json["notes"] == []
    assert ACTING.search(lines) is None
    assert "\\x1b[31m\\u202e" in lines
    assert blind.code == 0
    assert [row for row in blind.rows if row[0] == "request"] == []
    assert next(row for row in blind.rows if row[0] == "topic")[3:] == ["", ""]
    assert "--http" in next(row for row in blind.rows if row[0] == "note")[1]


def test_a_node_without_metrics_is_told_beside_the_others(node: HttpNode, tell: Tell) -> None:
    told = tell(
        *("top", "--once", "--interval", "0.2", "-b", node.bootstrap_servers, "--json"),
        *("--http", f"http://127.0.0.1:1,{node.url}"),
    )
    assert told.code == 0
    assert [note.startswith("no metrics: http://127.0.0.1:1/metrics") for note in told.json["notes"]] == [
        True
    ]
    assert told.json["requests"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--http", "127.0.0.1:9464"), 2, "is no address"),
        (("--interval", "0"), 2, "--interval"),
        (("-b", "127.0.0.1:1"), 1, "no broker at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_refused(tell: Tell, arguments: tuple[str, ...], code: int, message: str) -> None:
    told = tell("top", "--once", *arguments)
    assert (told.code, told.out) == (code, "")
    assert message in told.err


def test_a_counter_that_begins_anew_has_no_negative_rate() -> None:
    counters = Counters()
    key = (BYTES_IN, "t")
    assert counters.rates({key: 100.0}, 10.0) == {}
    assert counters.rates({key: 150.0}, 12.0) == {key: 25.0}
    assert counters.rates({key: 20.0}, 14.0) == {key: 0.0}
    assert counters.rates({key: 20.0}, 14.0) == {}


def test_a_request_that_waits_by_design_is_not_slow() -> None:
    def request(name: str) -> RequestFigures:
        return RequestFigures(name, "n", 1.0, 500.0, 1.0, 2.0, 497.0, 0.0, 0.0)

    waiting = [
        request(name).slowness for name in ("FetchConsumer", "FetchFollower", "JoinGroup", "SyncGroup")
    ]
    assert waiting == [3.0] * 4
    assert request("Produce").slowness == 500.0


def figures(name: str, count: int = 1) -> Figures:
    return Figures(
        0.0,
        name,
        *(3, 1, 2, 10.0),
        [TopicFigures(name, 1.0, None, None)] * count,
        [RequestFigures(name, name, None, *([1.5] * 6))] * count,
        [GroupFigures(name, name, 1, None, None)] * count,
        [BrokerFigures(1, name, "ok", 1, None, None, None)] * count,
        [name] * count,
    )


def screen(shown: Figures | None, rows: int, reason: str = "", away_since_s: float | None = None) -> str:
    out = io.StringIO()
    Console(file=out, width=120, height=50, color_system=None).print(drawn(shown, rows, reason, away_since_s))
    return out.getvalue()


def test_nothing_of_a_hostile_name_acts_on_the_screen() -> None:
    text = screen(figures(NASTY), 5, NASTY, 1.0)
    assert ACTING.search(text) is None
    assert text.count("g[red]\\x1b[31m\\u202e\\x00") == 9
    assert "The cluster does not answer since" in text


def test_a_screen_is_bounded() -> None:
    assert len(screen(figures("n" * 1000, 500), 5).splitlines()) < 60
    assert screen(None, 5, "refused", 1.0).count("\n") == 1


class Terminal:
    """`sparklog top` on a terminal."""

    def __init__(self, *arguments: str) -> None:
        self._leader, follower = pty.openpty()
        self.child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "top", "--interval", "0.2", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "COLUMNS": "150",
                "LINES": "50",
                "TERM": "xterm",
            },
        )
        os.close(follower)

    def wait_for(self, text: str) -> None:
        seen, until_s = b"", time.monotonic() + PATIENCE_S
        while text.encode() not in seen:
            assert select.select([self._leader], [], [], max(0.0, until_s - time.monotonic()))[0], seen[
                -2000:
            ]
            seen += os.read(self._leader, 65536)

    def interrupt(self) -> int:
        self.child.send_signal(2)
        while select.select([self._leader], [], [], PATIENCE_S)[0]:
            try:
                os.read(self._leader, 65536)
            except OSError:
                break
        return self.child.wait(PATIENCE_S)

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self._leader)


def test_a_cluster_that_goes_away_is_said_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    start: Callable[[], BrokerProcess] = lambda: BrokerProcess(  # noqa: E731
        "--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"
    )
    with start() as broker:
        broker.address()
        terminal = Terminal("-b", f"127.0.0.1:{port}")
        try:
            terminal.wait_for("0 offline")
            broker.child.kill()
            broker.child.wait()
            terminal.wait_for("The cluster does not answer since")
            with start() as again:
                again.address()
                terminal.wait_for("0.0 records/s")
                assert terminal.interrupt() == 0
        finally:
            terminal.close()


def test_lines_of_json_go_on_while_a_cluster_is_away(tmp_path: Path) -> None:
    broker = BrokerProcess("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    host, port = broker.address()
    command = (sys.executable, "-c", PROGRAM, "top", "--json", "--interval", "0.2", "-b", f"{host}:{port}")
    path = os.pathsep.join(path for path in sys.path if path)
    with (
        broker,
        subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}) as child,
    ):
        assert child.stdout is not None
        first, second = (json.loads(child.stdout.readline()) for _ in range(2))
        assert first["records_in"] is None
        assert second["records_in"] is not None
        broker.child.kill()
        broker.child.wait()
        while "away" not in (line := json.loads(child.stdout.readline())):
            assert "topics" in line
        assert line["away"]
        child.send_signal(2)
        assert child.wait(PATIENCE_S) == 0
