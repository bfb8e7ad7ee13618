"""Names that act on a terminal, forge lines or hide: no command, page, log or bundle shows them raw, and JSON
has them exactly.
"""

import io
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.client.admin.acls import AclRule
from sparklog.client.admin.admin import NewTopic
from sparklog.client.admin.credentials import ScramUpsertion
from sparklog.client.admin.quotas import QuotaEntity
from tests.cli.conftest import Tell
from tests.daemon.http_nodes import HttpNode, http_broker

NASTY = "\x1b]0;owned\x07\x1b[2J\x9b31m\nforged\tStable\r\u202egnp.exe\u2066\u200b\u3164\x7f\U000e0041\x85é漢"
USER = "\u202eresu\u200b\u3164"  # SCRAM allows no controls
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\U000e0000-\U000e007f]"
)
STYLES = re.compile("\x1b\\[[0-9;]*m")
ANONYMOUS = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with http_broker(
        tmp_path_factory.mktemp("hostile") / "data",
        *("--set", authorizer, "--set", f"super.users={ANONYMOUS}"),
        *("--set", "group.initial.rebalance.delay.ms=0"),
    ) as process:
        node = HttpNode(process)
        servers = node.bootstrap_servers
        fill(servers)
        with Consumer(bootstrap_servers=servers, group_id=NASTY, client_id=NASTY) as member:
            member.subscribe(["t"])
            member.poll(10_000)
            yield node


def fill(servers: str) -> None:
    """Every kind of name that a client chooses."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("t")])
        admin.alter_client_quotas({QuotaEntity.of(user=NASTY): {"producer_byte_rate": 1000.0}})
        admin.alter_user_scram_credentials([ScramUpsertion(USER, "p", iterations=4096)])
        admin.create_acls([AclRule("group", NASTY, f"User:{NASTY}", "read", host="*")])
        admin.alter_group_offsets(NASTY, {TopicPartition("t", 0): 1})
    with Producer(bootstrap_servers=servers, transactional_id=NASTY, client_id=NASTY) as producer:
        producer.init()
        producer.begin()
        producer.send("t", NASTY.encode(), NASTY.encode(), headers=[(NASTY, NASTY.encode())], partition=0)
        producer.send("t", json.dumps({NASTY: NASTY}).encode(), partition=0)
        producer.commit()


CONSUME = ("consume", "t", "--from-beginning", "--exit-eof")
COMMANDS = [
    ("groups", "list"),
    ("groups", "describe"),
    ("groups", "describe", NASTY),
    ("groups", "describe", NASTY, "--json"),
    ("groups", "describe", f"x{NASTY}"),
    ("groups", "reset-offsets", NASTY, "--topic", "t", "--to-earliest"),
    ("groups", "delete-offsets", f"x{NASTY}", "--topic", "t"),
    ("groups", "delete", f"x{NASTY}"),
    ("transactions", "list"),
    ("transactions", "describe", NASTY),
    ("transactions", "describe", f"x{NASTY}"),
    ("transactions", "force-terminate", f"x{NASTY}"),
    ("transactions", "find-hanging", "--broker", "1"),
    ("producers", "t"),
    ("users", "list"),
    ("users", "list", "--json"),
    ("users", "remove", f"x{USER}"),
    ("acls", "list"),
    ("acls", "list", "--json"),
    ("acls", "explain", f"User:{NASTY}", "read", f"group:{NASTY}"),
    ("quotas", "describe"),
    ("quotas", "describe", "--json"),
    ("configs", "list"),
    ("configs", "describe", "--topic", f"x{NASTY}"),
    ("topics", "describe", f"x{NASTY}"),
    ("topics", "create", NASTY),
    ("topics", "list", "--json"),
    ("offsets", "list", f"x{NASTY}"),
    ("log-dirs", "describe"),
    ("cluster", "describe"),
    ("cluster", "status"),
    ("health",),
    ("status",),
    ("top", "--once", "--interval", "0.5"),
    (*CONSUME, "--json"),
    ("sql", "SELECT key, value, headers FROM t"),
    ("sql", "SELECT key, value, headers FROM t", "--json"),
    ("produce", NASTY, NASTY),
]


class Terminal(io.StringIO):
    """Says that it is a terminal."""

    encoding = "utf-8"

    @property
    def buffer(self) -> "Terminal":  # type: ignore[override]
        return self

    def write(self, text: str | bytes) -> int:
        return super().write(text if isinstance(text, str) else text.decode())

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: " ".join(one[:2]))
def test_no_command_shows_a_character_that_acts(node: HttpNode, tell: Tell, command: tuple[str, ...]) -> None:
    told = tell(*command, "-b", node.bootstrap_servers)
    assert "No such option" not in told.err
    assert "Missing" not in told.err
    for shown in (told.out, told.err):
        assert ACTING.search(shown) is None, shown
        assert not any(line.startswith("forged") for line in shown.splitlines())


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS,
        ("consume", "t", "--from", "beginning", "--exit-at-end"),
        ("sql", "SELECT * FROM t", "--csv"),
    ],
    ids=lambda one: " ".join(one[:2]),
)
def test_a_terminal_gets_only_styles(
    node: HttpNode, tell: Tell, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    told = tell(*command, "-b", node.bootstrap_servers)
    for shown in (terminal.getvalue(), told.err):
        assert ACTING.search(STYLES.sub("", shown)) is None, shown


def test_json_has_each_name_exactly(node: HttpNode, tell: Tell) -> None:
    at = ("--json", "-b", node.bootstrap_servers)
    assert [one["group"] for one in tell("groups", "list", *at).json] == [NASTY]
    assert [one["user"] for one in tell("users", "list", *at).json] == [USER]
    assert NASTY in tell("acls", "list", *at).json[0]["principal"]
    lines = tell(*CONSUME, *at).out.splitlines()
    assert json.loads(lines[0])["key"] == NASTY
    assert json.loads(lines[0])["headers"][0] == [NASTY, NASTY]


def test_a_pipe_gets_the_bytes_of_records(node: HttpNode, tell: Tell) -> None:
    told = tell(*CONSUME, "-b", node.bootstrap_servers)
    assert NASTY in told.out


def test_pages_and_bundles_of_a_node_show_no_character_that_acts(
    node: HttpNode, tell: Tell, tmp_path: Path
) -> None:
    log, output = tmp_path / f"{NASTY.replace('/', '')}.log", tmp_path / "b.zip"
    log.write_text(f"an event reason={NASTY}\n")
    arguments = ("--output", str(output), "-b", node.bootstrap_servers, "--http", node.url)
    assert tell("debug", "bundle", *arguments, "--log-file", str(log)).code == 0
    with zipfile.ZipFile(output) as archive:
        for name in archive.namelist():
            assert ACTING.search(name) is None
            assert ACTING.search(archive.read(name).decode()) is None, name
