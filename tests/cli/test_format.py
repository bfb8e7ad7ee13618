"""`sparklog format`: its line for each directory, its refusals, and the start of a formatted node."""

import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Tell
from tests.daemon.broker_process import BrokerProcess

LISTENERS = "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093"
NODE = ("--set", LISTENERS, "--set", "controller.listener.names=CONTROLLER")


def test_a_standalone_node_is_formatted_once_and_starts(tell: Tell, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    formatted = tell("format", "--standalone", "--data-dir", data, "--node-id", "7", *NODE)
    (row,) = formatted.rows
    assert (row[:2], row[3]) == (["formatted", data], "node=7")
    again = tell("format", "--standalone", "--data-dir", data, "--node-id", "7", *NODE)
    assert (again.code, "already formatted" in again.err) == (1, True)
    with BrokerProcess("--data-dir", data, "--node-id", "7", "--listen", "127.0.0.1:0") as node:
        node.address()
        assert node.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of --standalone, --initial-controllers and --no-initial-controllers"),
        (("--standalone", "--no-initial-controllers"), "exclude each other"),
        (("--no-initial-controllers",), "--cluster-id is missing"),
        (("--no-initial-controllers", "--cluster-id", "a b"), "must not be empty or contain spaces"),
        (("--standalone", "--node-id", "-1"), "node.id"),
        (("--cluster-id", "c", "--initial-controllers", "1@a:1"), "ID@HOST:PORT:DIRECTORY-ID"),
    ],
)
def test_a_format_that_cannot_be_meant_is_bad_usage(
    tell: Tell, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    told = tell("format", "--data-dir", str(tmp_path / "data"), *NODE, *arguments)
    assert (told.code, said in told.err) == (2, True), told.err
    assert not (tmp_path / "data").exists()


def test_every_node_of_a_cluster_is_formatted_with_its_id(tell: Tell, tmp_path: Path) -> None:
    told = tell("format", "-N", "-t", "a-cluster", "--data-dir", str(tmp_path / "data"), *NODE)
    assert told.rows[0][2] == "cluster=a-cluster"
    assert "cluster.id=a-cluster" in (tmp_path / "data" / "meta.properties").read_text()
