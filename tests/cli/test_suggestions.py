"""A misspelt name creates nothing, and its error suggests the name that was meant."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.local_broker import EmbeddedBroker
from tests.cli.conftest import PROGRAM, Tell

PATIENCE_S = 30


def test_produce_creates_a_topic_only_on_request(tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    misspelt = f"{topic}x"
    refused = tell("produce", misspelt, stdin="x\n")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"Error: there is no topic '{misspelt}'; did you mean '{topic}'")
    assert refused.err.endswith("? --create creates it\n")
    assert tell("topics", "describe", misspelt).code == 1
    assert tell("produce", misspelt, "--create", stdin="x\n").err == f"wrote 1 record to {misspelt}\n"
    assert tell("produce", misspelt, "--create", stdin="x\n").code == 0


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 130)])
def test_produce_asks_on_a_terminal(
    shared_broker: EmbeddedBroker, tell: Tell, topic: str, answer: str, code: int
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "produce", topic, "-b", shared_broker.bootstrap_servers],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    ) as child:
        os.close(theirs)
        printed = b""
        while b"[y/N]" not in printed:
            printed += os.read(ours, 4096)
        os.write(ours, f"{answer}\nvalue\n\x04".encode())
        assert child.wait(PATIENCE_S) == code
        os.close(ours)
    assert f"there is no topic '{topic}'" in printed.decode()
    assert tell("topics", "describe", topic).code == (0 if answer == "y" else 1)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("topcis list", "topics"),
        ("topics lst", "list"),
        ("configs describe --topic TYPO", "TOPIC"),
        ("configs set --topic TYPO retention.ms=1", "TOPIC"),
        ("configs describe --topic TOPIC retnetion.ms", "retention.ms"),
        ("topics alter TYPO --config retention.ms=1", "TOPIC"),
        ("topics delete TYPO", "TOPIC"),
        ("topics add-partitions TYPO --total 3", "TOPIC"),
        ("sql 'SELECT * FROM \"TYPO\"'", "TOPIC"),
        ("groups describe GRUOP", "GROUP"),
        ("groups delete GRUOP", "GROUP"),
        ("groups delete-offsets GRUOP --topic TOPIC", "GROUP"),
        ("groups remove-members GRUOP --member m", "GROUP"),
        ("groups reset-offsets GRUOP --all-topics --to-latest", "GROUP"),
    ],
)
def test_an_unknown_name_is_refused_with_a_similar_one(
    tell: Tell, topic: str, group: str, line: str, meant: str
) -> None:
    topic, group = f"the-{topic}-of-flights", f"the-{group}-of-readers"
    tell("topics", "create", topic)
    tell("groups", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
    names = {
        "TYPO": topic.replace("flights", "flihgts"),
        "GRUOP": group.replace("readers", "raeders"),
        "TOPIC": topic,
        "GROUP": group,
    }
    for word, name in names.items():
        line, meant = line.replace(word, name), meant.replace(word, name)
    command, _, query = line.partition("'")
    refused = tell(*command.split(), *([query.rstrip("'")] if query else []))
    assert refused.code != 0
    assert refused.err.casefold().count("did you mean") == 1
    assert f"'{meant}'" in refused.err


def test_a_reset_of_an_unknown_group_suggests_a_similar_one_and_may_create_it(
    tell: Tell, topic: str, group: str
) -> None:
    tell("topics", "create", topic)
    tell("groups", "reset-offsets", f"{group}-of-readers", "--topic", topic, "--to-latest", "--execute")
    reset = ("groups", "reset-offsets", f"{group}-of-raeders", "--topic", topic, "--to-latest")
    tried = tell(*reset)
    assert (tried.code, f"did you mean '{group}-of-readers'" in tried.err) == (0, True)
    assert "--execute creates it" in tried.err
    assert "it was created" in tell(*reset, "--execute").err
    assert tell(*reset).err == "nothing was changed; --execute moves the group\n"


def test_files_of_people_may_begin_with_a_byte_order_mark(
    tell: Tell, topic: str, group: str, tmp_path: Path
) -> None:
    tell("topics", "create", topic)
    tell("produce", topic, stdin="a\nb\n")
    marked = tmp_path / "marked"
    marked.write_text(f"\ufeff{topic},0,1\r\n")
    reset = tell("groups", "reset-offsets", group, "--from-file", str(marked))
    assert reset.rows == [[topic, "0", "1", ""]]
    marked.write_text(f'\ufeff{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": 1}}]}}')
    assert tell("topics", "delete-records", "--offset-json-file", str(marked)).rows == [[topic, "0", "1"]]
    marked.write_text("\ufeffclient.id=a\r\n")
    assert tell("topics", "list", "--command-config", str(marked)).code == 0
