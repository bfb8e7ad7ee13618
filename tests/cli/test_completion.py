"""Completion in shells: keys of settings, profiles, and the scripts that are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog import Admin, TopicPartition
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.cli.main import main, sparklog
from tests.cli.conftest import PROGRAM, Tell


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "BASH_COMPLETION_USER_DIR", "ZDOTDIR", "SHELL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def completed(*words: str) -> list[str]:
    """What a shell would offer for the last word."""
    from click.shell_completion import ShellComplete

    found = ShellComplete(sparklog, {}, "sparklog", "_SPARKLOG_COMPLETE").get_completions(
        list(words[:-1]), words[-1]
    )
    return [item.value for item in found]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("topics", "create", "t", "--config", "retention.m"), ["retention.ms="]),
        (("topics", "alter", "t", "--delete-config", "retention.m"), ["retention.ms"]),
        (("configs", "set", "--topic", "t", "retention.m"), ["retention.ms="]),
        (("configs", "set", "--broker", "1", "log.cleaner.th"), ["log.cleaner.threads="]),
        (("configs", "describe", "--client-metrics", "m", "interval"), ["interval.ms"]),
        (("configs", "delete", "--group", "g", "consumer.session"), ["consumer.session.timeout.ms"]),
        (("topics", "list", "-X", "delivery"), ["delivery.timeout.ms="]),
        (("start", "--set", "sparklog.http.l"), ["sparklog.http.listener="]),
        (("profile", "use", "te"), ["test"]),
        (("topics", "list", "--profile", ""), ["live", "test"]),
        (("completion", "in"), ["install"]),
    ],
)
def test_keys_and_profiles_are_offered(words: tuple[str, ...], offered: list[str]) -> None:
    for name in ("test", "live"):
        main(["profile", "create", name, "-b", "x:1"])
    assert completed(*words) == offered


def test_topics_are_offered_by_the_cluster_and_none_without_it(
    tell: Tell, topic: str, shared_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell("topics", "create", f"{topic}-offered")
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", shared_broker.bootstrap_servers)
    assert completed("consume", f"{topic}-o") == [f"{topic}-offered"]
    with Admin(bootstrap_servers=shared_broker.bootstrap_servers) as admin:
        for group in ("", "$(reboot)", "`reboot`", ";reboot", "\nplain,x", " x", "*", "'", "\x1b[2J"):
            admin.alter_group_offsets(f"{topic}-g{group}", {TopicPartition(f"{topic}-offered", 0): 0})
    assert completed("groups", "describe", f"{topic}-") == [f"{topic}-g"]
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", "127.0.0.1:1")
    assert completed("consume", f"{topic}-o") == []


def test_bash_loads_what_is_installed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "install", "bash"]) == 0
    script = home / ".local/share/bash-completion/completions/sparklog"
    assert capsys.readouterr().err == f"installed {script}; it takes effect in new shells\n"
    program = home / "bin" / "sparklog"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PROGRAM}" "$@"\n')
    program.chmod(0o755)
    asked = (
        f"source {script}; COMP_WORDS=(sparklog topics create t --config retention.m); COMP_CWORD=5; "
        "compopt() { echo option $*; }; _sparklog_completion sparklog; echo ${COMPREPLY[@]}"
    )
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "-c", asked],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ
        | {
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
    )
    assert done.stdout.splitlines() == ["option -o nospace", "retention.ms="]


def test_the_shell_of_the_user_is_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert main(["completion", "install"]) == 0
    assert (
        "complete --no-files --command sparklog"
        in (home / ".config/fish/completions/sparklog.fish").read_text()
    )
    monkeypatch.setenv("SHELL", "/bin/dash")
    assert main(["completion", "install"]) == 2
    assert "the shell 'dash' has no completion: name one of bash, zsh, fish" in capsys.readouterr().err


def test_zsh_loads_the_script_by_one_line(home: Path) -> None:
    (home / ".zshrc").write_text("setopt autocd")
    for _ in range(2):
        assert main(["completion", "install", "zsh"]) == 0
    script = home / ".local/share/sparklog/completion.zsh"
    assert (home / ".zshrc").read_text() == f"setopt autocd\nsource {script}  # sparklog completion\n"
    assert "#compdef sparklog" in script.read_text()
