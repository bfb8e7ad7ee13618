"""`sparklog status`, and the page of events behind it."""

import http.client
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import sparklog
from sparklog_server.cli.main import main
from sparklog_server.cli.status_facts import uptime_text
from tests.cli.conftest import Tell


class Observed(NamedTuple):
    """A broker with an HTTP listener."""

    bootstrap_servers: str
    http: str


@pytest.fixture(scope="module")
def observed() -> Iterator[Observed]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with sparklog.embedded(sparklog_http_listener=url) as broker:
        yield Observed(broker.bootstrap_servers, url)


def test_the_cluster_is_told_in_lines(tell: Tell, topic: str, group: str) -> None:
    tell("topics", "create", topic, "--partitions", "2")
    tell("produce", topic, stdin="1\n2\n3\n")
    tell("consume", topic, "-G", group, "--from", "beginning", "-c", "1")
    told = tell("status")
    rows = told.rows
    assert told.code == 0
    assert [rows[0][0], rows[0][2]] == ["cluster", "brokers=1"]
    broker = next(row for row in rows if row[0] == "broker")
    assert broker[1] == "1"
    assert broker[3] == "ok"
    assert int(broker[7]) > 0
    own = next(row for row in rows if row[:2] == ["group", group])
    assert own[4] == "2"
    assert rows[-1][0] == "note"
    assert "sparklog.http.listener" in rows[-1][1]


def test_release_uptime_and_events_come_from_the_http_listener(observed: Observed, tell: Tell) -> None:
    told = tell("status", "-b", observed.bootstrap_servers, "--json").json
    (node,) = told["nodes"].values()
    assert node["version"] == sparklog.__version__
    assert 0 <= node["uptime_s"] < 3600
    assert any("ready" in line or "started" in line for line in node["events"]), node["events"]
    assert told["brokers"][0]["http"] == observed.http
    assert told["notes"] == []


def test_events_have_no_lines_of_the_audit(observed: Observed) -> None:
    host, port = observed.http.removeprefix("http://").split(":")
    client = http.client.HTTPConnection(host, int(port), timeout=10)
    client.request("GET", "/events")
    body = client.getresponse().read().decode()
    client.close()
    assert body.splitlines()
    assert "audit" not in body


def test_a_cluster_that_is_away_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "-b", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("Error: no broker at 127.0.0.1:1 (connection refused)")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3_600, "1 h 0 min"), (90_000, "1 d 1 h")],
)
def test_an_uptime_has_two_units(seconds: int, text: str) -> None:
    assert uptime_text(seconds) == text
