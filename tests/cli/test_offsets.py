"""Offsets of partitions, topics chosen by a pattern, elections, and commands that run again and again."""

import json
import os
import pty
import signal
import subprocess
import sys

import click
import pytest

from sparklog.local_broker import EmbeddedBroker
from sparklog_server.cli.admin import matcher
from tests.cli.conftest import PROGRAM, Tell


def test_the_offsets_of_every_partition_are_listed(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic, "--partitions", "2")
    tell("produce", topic, "-p", "1", stdin="a\nb\nc\n")
    tell("topics", "delete-records", topic, "--partition", "1", "--before", "1")
    assert tell("offsets", "list", topic).rows == [
        [topic, "0", "0", "0", "0", "0"],
        [topic, "1", "1", "3", "3", "2"],
    ]
    assert tell("offsets", "list", f"{topic}:1", "--json").json == [
        {"topic": topic, "partition": 1, "log_start_offset": 1, "log_end_offset": 3}
        | {"last_stable_offset": 3, "records": 2}
    ]
    assert [row[-2:] for row in tell("topics", "describe", topic).rows[1:]] == [["0", "0"], ["1", "3"]]
    (told,) = tell("topics", "describe", topic, "--json").json
    assert [one["log_end_offset"] for one in told["partitions"]] == [0, 3]


def test_topics_are_chosen_by_a_pattern(tell: Tell, topic: str) -> None:
    tell("topics", "create", f"{topic}-a", f"{topic}-b", f"other-{topic}")
    tell("produce", f"{topic}-a", stdin="a\n")
    tell("produce", f"{topic}-b", stdin="b\n")
    pattern = f"{topic}-[ab]"
    described = tell("topics", "describe", "--regex", pattern).rows
    assert [row[0] for row in described if len(row) == 3] == [f"{topic}-a", f"{topic}-b"]
    assert [row[0] for row in tell("offsets", "list", "-r", pattern).rows] == [f"{topic}-a", f"{topic}-b"]
    read = tell("consume", "--regex", pattern, "--from", "beginning", "-e").out
    assert sorted(read.splitlines()) == ["a", "b"]
    assert tell("topics", "describe", "--regex", f"{topic}-").code == 1
    refused = tell("topics", "describe", "--regex", "(")
    assert (refused.code, "is no regular expression of RE2" in refused.err) == (2, True)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_topics_by_a_pattern(tell: Tell, topic: str, group: str, protocol: str) -> None:
    tell("topics", "create", f"{topic}-a", f"{topic}-b")
    tell("produce", f"{topic}-a", stdin="a\n")
    tell("produce", f"{topic}-b", stdin="b\n")
    more = ("-G", group, "-X", f"group.protocol={protocol}", "--from", "beginning", "-c", "2")
    read = tell("consume", "--regex", f"{topic}-a", f"{topic}-b", *more, "--timeout", "10s")
    assert sorted(read.out.splitlines()) == ["a", "b"]


def test_a_pattern_is_matched_in_linear_time() -> None:
    assert not matcher("(a*)*b")("a" * 10_000)
    with pytest.raises(click.BadParameter, match="it may have 8192"):
        matcher("a" * 9_000)


def test_leaders_are_elected_where_it_is_needed(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic, "--partitions", "2")
    assert tell("partitions", "elect", topic).rows == [[topic, str(n), "not needed"] for n in (0, 1)]
    assert tell("partitions", "elect", f"{topic}:1", "--json").json == [
        {"topic": topic, "partition": 1, "outcome": "not needed", "error": None}
    ]
    assert tell("partitions", "elect", "--all") == (0, "", "no election is needed\n")
    assert tell("partitions", "elect").code == 2
    assert tell("partitions", "elect", topic, "--all").code == 2


def test_a_list_is_watched_until_ctrl_c(shared_broker: EmbeddedBroker, tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "topics", "list", "--json", "--watch", "0.2"],
        stdout=subprocess.PIPE,
        env=_environment(shared_broker),
    )
    with child:
        assert child.stdout is not None
        lines = iter(child.stdout.readline, b"")
        shown = [json.loads(line) for line in (next(lines), next(lines), next(lines)) if line.strip()]
        child.send_signal(signal.SIGINT)
    assert child.returncode == 0
    assert len(shown) >= 2
    assert all(topic in [one["name"] for one in told] for told in shown)


def test_a_terminal_is_cleared_before_each_look(
    shared_broker: EmbeddedBroker, tell: Tell, topic: str
) -> None:
    tell("topics", "create", topic)
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "offsets", "list", topic, "--watch", "0.2"],
        stdout=theirs,
        stdin=subprocess.DEVNULL,
        env=_environment(shared_broker) | {"TERM": "xterm"},
    )
    os.close(theirs)
    printed = b""
    while printed.count(b"\x1b[2J") < 2 or printed.count(topic.encode()) < 2:
        printed += os.read(ours, 1 << 16)
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 0
    os.close(ours)


def test_what_is_watched_must_be_there_at_first(tell: Tell) -> None:
    assert tell("topics", "describe", "absent", "--watch", "1").code == 1


def _environment(broker: EmbeddedBroker) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SPARKLOG_BOOTSTRAP_SERVER": broker.bootstrap_servers,
    }
