"""Output on a terminal: tables, remarks and bars on a terminal, and an end without noise when they have
enough.
"""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.local_broker import EmbeddedBroker
from tests.cli.conftest import PROGRAM, Run, Tell

PATIENCE_S = 30
OnTerminal = Callable[..., tuple[int, str]]


@pytest.fixture
def on_terminal(shared_broker: EmbeddedBroker) -> OnTerminal:
    """Run `sparklog` with a terminal of 120 columns on stdout and stderr; its exit code and all it
    printed.
    """

    def on_terminal(*arguments: str, interrupted_after: str | None = None) -> tuple[int, str]:
        leader, follower = pty.openpty()
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "SPARKLOG_BOOTSTRAP_SERVER": shared_broker.bootstrap_servers,
            "COLUMNS": "120",
            "TERM": "xterm",
        }
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
            env=environment,
        )
        os.close(follower)
        printed = b""
        try:
            while select.select([leader], [], [], PATIENCE_S)[0]:
                try:
                    piece = os.read(leader, 65536)
                except OSError:
                    break  # Linux's error when the other end is closed
                printed += piece
                if interrupted_after is not None and interrupted_after.encode() in printed:
                    child.send_signal(signal.SIGINT)
                    interrupted_after = None
            return child.wait(PATIENCE_S), printed.decode()
        finally:
            os.close(leader)
            child.kill()
            child.wait()

    return on_terminal


def test_a_terminal_gets_a_table_with_headings_and_readable_sizes(
    on_terminal: OnTerminal, tell: Tell, topic: str
) -> None:
    tell("topics", "create", topic)
    tell("produce", topic, stdin="x" * 5000 + "\n")
    code, printed = on_terminal("topics", "describe", topic)
    assert code == 0
    assert all(part in printed for part in ("partition", "in sync", "─────────  ──────", "5.0 KiB"))


def test_a_dry_run_says_that_nothing_was_changed(
    on_terminal: OnTerminal, tell: Tell, topic: str, group: str
) -> None:
    tell("topics", "create", topic)
    code, printed = on_terminal("groups", "reset-offsets", group, "--topic", topic, "--to-latest")
    assert (code, "nothing was changed; --execute moves the group" in printed) == (0, True)
    told = tell("groups", "reset-offsets", group, "--topic", topic, "--to-latest")
    assert told.err.startswith("nothing was changed; --execute moves the group\n")


def test_brackets_in_names_are_no_markup(on_terminal: OnTerminal, tell: Tell, topic: str) -> None:
    tell("topics", "create", topic)
    tell("groups", "reset-offsets", "[red]group[/red]", "--topic", topic, "--to-latest", "--execute")
    assert "[red]group[/red]" in on_terminal("groups", "list")[1]


def test_json_on_a_terminal_is_the_same_json(on_terminal: OnTerminal, tell: Tell) -> None:
    assert (
        on_terminal("cluster", "describe", "--json")[1].strip()
        == tell("cluster", "describe", "--json").out.strip()
    )


def test_a_benchmark_draws_a_bar_and_ends_with_a_table(on_terminal: OnTerminal) -> None:
    code, printed = on_terminal("bench", "produce", "--records", "5000", "--rate", "10000")
    assert code == 0
    assert all(part in printed for part in ("━", "/5000", "p99.9 ms", "records/s"))


def test_ctrl_c_ends_a_consumer_at_once_and_without_noise(
    on_terminal: OnTerminal, tell: Tell, topic: str
) -> None:
    tell("topics", "create", topic)
    tell("produce", topic, stdin="the-first\n")
    code, printed = on_terminal("consume", topic, "--from", "beginning", interrupted_after="the-first")
    assert (code, "Traceback" in printed) == (130, False)


@pytest.mark.parametrize(
    "command", [["consume", "TOPIC", "--from-beginning"], ["topics", "describe", "TOPIC"]]
)
def test_a_reader_that_has_enough_is_no_failure(
    shared_broker: EmbeddedBroker, tell: Tell, topic: str, command: list[str]
) -> None:
    tell("topics", "create", topic, "--partitions", "50")
    tell("produce", topic, stdin="line\n" * 20_000)
    arguments = [topic if argument == "TOPIC" else argument for argument in command]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SPARKLOG_BOOTSTRAP_SERVER": shared_broker.bootstrap_servers,
    }
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        noise = child.stderr.read()
        assert (child.wait(PATIENCE_S), noise) == (0, b"")


@pytest.mark.parametrize(
    "command",
    [
        *(
            "topics list",
            "topics describe",
            "configs list",
            "groups list",
            "groups describe g",
            "cluster describe",
            "cluster quorum",
        ),
        *(
            "log-dirs describe",
            "quotas describe",
            "producers t",
            "consume t",
            "produce t",
            "bench consume t",
            "bench produce",
        ),
    ],
)
def test_every_command_says_that_no_broker_is_there(tell: Tell, command: str) -> None:
    failed = tell(*command.split(), "-b", "127.0.0.1:1")
    assert (failed.code, failed.out, len(failed.err.splitlines())) == (1, "", 1)
    assert "no broker at 127.0.0.1:1 (connection refused)" in failed.err


@pytest.mark.parametrize(
    "command",
    [
        "",
        "topics",
        "topics create",
        "configs",
        "groups",
        "groups reset-offsets",
        "init",
        "certificates renew",
        "certificates show",
        "consume",
        "produce",
        "bench",
    ],
)
def test_every_command_explains_itself(tell: Tell, command: str) -> None:
    told = tell(*command.split(), "--help")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("Usage: sparklog")


def test_settings_come_from_a_file(tell: Tell, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# comment\n\nclient.id = from-file\n")
    assert tell("topics", "list", "--command-config", str(file)).code == 0
    file.write_text("lingr.ms=1\n")
    refused = tell("topics", "list", "--command-config", str(file))
    assert (refused.code, "linger.ms" in refused.err) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_names(
    run: Run, tell: Tell, topic: str, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell("topics", "create", topic)
    monkeypatch.setenv("_SPARKLOG_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", "sparklog topics describe")
    monkeypatch.setenv("COMP_CWORD", "3")
    if shell == "fish":
        monkeypatch.setenv("COMP_CWORD", topic[:-1])
        monkeypatch.setenv("COMP_WORDS", f"sparklog topics describe {topic[:-1]}")
    assert topic in run().stdout.decode()
