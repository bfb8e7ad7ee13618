"""Every block of README, of the page on the command line and of the first pages for each reader runs as it
stands there, and prints the output it shows in kind.
"""

import contextlib
import itertools
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import sparklog
from sparklog import Producer
from sparklog.local_broker import EmbeddedBroker
from tests.cli.conftest import PROGRAM
from tests.documents import blocks, commands

RULE = "─"
ADDRESS = "localhost:9092"


class Shell:
    """Runs lines of a shell in which `sparklog` is the command, and the broker of this test the one that
    it finds.
    """

    def __init__(self, directory: Path, broker: EmbeddedBroker) -> None:
        program = directory / "sparklog"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PROGRAM}" "$@"\n')
        program.chmod(0o755)
        self._directory = directory
        self._environment = os.environ | {
            "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "SPARKLOG_BOOTSTRAP_SERVER": broker.bootstrap_servers,
            "COLUMNS": "200",
            "XDG_CONFIG_HOME": str(directory / "config"),
            "XDG_DATA_HOME": str(directory / "data"),
        }

    def run(self, line: str, *, is_terminal: bool = False) -> tuple[int, str]:
        """The exit code and the output."""
        command = ["bash", "-o", "pipefail", "-c", line]
        if not is_terminal:
            done = subprocess.run(
                command,
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            return done.returncode, done.stdout
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        ) as child:
            os.close(theirs)
            printed = b""
            with contextlib.suppress(OSError):  # EIO is the end of a terminal
                while piece := os.read(ours, 1 << 16):
                    printed += piece
            os.close(ours)
            return child.wait(), re.sub(r"\x1b\[[\d;]*m", "", printed.decode())


def kind(line: str) -> object:
    """The part of a line of output that is equal in every run: its columns, keys or words."""
    if line.startswith("{"):
        return sorted(json.loads(line))
    if "\t" in line:
        return [_kind_of_field(field) for field in line.split("\t")]
    return re.sub(r"\d+", "0", re.sub(r" {2,}", "  ", line))


def _is_heading(line: str, shown: Sequence[str]) -> bool:
    """Whether the line is the heading of a table: a rule follows it."""
    return any(below.startswith(RULE) for above, below in itertools.pairwise(shown) if above == line)


def _kind_of_field(field: str) -> str:
    if re.fullmatch(r"-?\d+", field):
        return "number"
    return re.sub(r"(?<==)[\w-]+$|^/\S*$|\d+", "…", field)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    ) as broker:
        yield broker


@pytest.fixture
def shell(tmp_path: Path, broker: EmbeddedBroker) -> Shell:
    return Shell(tmp_path, broker)


@pytest.mark.timeout(300)  # some seventy commands, each a start of Python
def test_every_block_of_the_page_on_the_command_line_runs(shell: Shell, broker: EmbeddedBroker) -> None:
    open_transaction = contextlib.ExitStack()
    prepare: dict[str, Callable[[], object]] = {
        "Groups": lambda: shell.run("sparklog consume flights --from beginning --max 2 --group delays"),
        "Transactions": lambda: open_transaction.enter_context(_ongoing(broker, "copy-0")),
    }
    with open_transaction:
        for block in blocks("docs/command-line.md"):
            prepare.pop(block.heading, lambda: None)()
            for line, shown in commands(block):
                line = line.replace("--records 3000", "--records 300").replace(
                    "--longer-than 60000", "--longer-than 0"
                )
                is_table = any(one.startswith(RULE) for one in shown)
                code, printed = shell.run(line, is_terminal=is_table)
                refused = [one for one in shown if one.startswith(("sparklog: ", "Error: "))]
                assert code == (1 if refused else 0), f"{line}\n{printed}"
                # Of a table only the heading: its rows differ in every run.
                wanted = [kind(one) for one in shown if not is_table or _is_heading(one, shown)]
                found = [kind(one) for one in printed.splitlines()]
                assert all(one in found for one in wanted), f"{line}\nshown {wanted}\nprinted {found}"
    assert not prepare


@contextlib.contextmanager
def _ongoing(broker: EmbeddedBroker, transactional_id: str) -> Iterator[None]:
    """A transaction that has a record in `flights`."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id) as producer:
        producer.init()
        producer.begin()
        producer.send("flights", value=b"", partition=0).result()
        yield
        with contextlib.suppress(Exception):
            producer.abort()  # the page ends it


def test_every_block_of_readme_runs_that_needs_no_spark(capsys: pytest.CaptureFixture[str]) -> None:
    ran = 0
    for block in blocks("README.md"):
        if block.language == "python" and "spark." not in block.text:
            exec(compile(block.text, "README.md", "exec"), {})
            ran += 1
        else:  # continuous integration runs the targets of make, tests/packaging the installation
            assert block.language or block.text.startswith(("make ", "pip install "))
    assert ran == 1
    assert """b'{"delay": 12}'""" in capsys.readouterr().out


def test_every_block_of_the_page_of_python_examples_runs(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("flights", value=b"first").result()
    for block in blocks("docs/python.md"):
        text = block.text.replace(ADDRESS, broker.bootstrap_servers)
        # The consumer reads on for good: one record is enough.
        text = re.sub(r"(    for record in consumer:\n +print.*)", r"\1\n        break", text)
        exec(compile(text, "python.md", "exec"), {})
    assert "flights" in capsys.readouterr().out


def test_the_page_that_starts_with_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in blocks("docs/start-python.md"):
        if block.language == "python" and "def test_" not in block.text:
            exec(compile(block.text, "start-python.md", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "offset 0",
        """b'4711' b'{"item": "lamp", "price": 40}'""",
        "['orders']",
    ]


def test_the_test_of_the_page_that_starts_with_python_runs(tmp_path: Path) -> None:
    (block,) = [one for one in blocks("docs/start-python.md") if "def test_" in one.text]
    page = tmp_path / "test_page.py"
    page.write_text(f"from sparklog import Producer\n\n{block.text}\n")
    ran = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", str(page)),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_page_that_starts_as_an_operator_runs(shell: Shell) -> None:
    started = ("pip install", "sparklog start", "sparklog cluster start")
    for block in blocks("docs/start-operator.md"):
        for line in block.text.splitlines():
            if not line.startswith(started):
                code, printed = shell.run(line)
                assert code == 0, f"{line}\n{printed}"
