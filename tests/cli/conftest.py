"""The command line as a shell runs it (`run`), or without a new process (`tell`), against a broker that
all these tests share.
"""

import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

import sparklog
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.cli.main import main

TOPIC_NUMBERS = itertools.count(1)
PROGRAM = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"
Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[EmbeddedBroker]:
    with sparklog.embedded() as broker:
        yield broker


@pytest.fixture
def run(shared_broker: EmbeddedBroker) -> Run:
    """Run `sparklog` with these arguments; its exit code, stdout and stderr."""

    def run(
        *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[bytes]:
        given = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "SPARKLOG_BOOTSTRAP_SERVER": shared_broker.bootstrap_servers,
            **environment,
        }
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=60,
            env=given,
        )

    return run


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(TOPIC_NUMBERS)}"


@pytest.fixture
def group() -> str:
    """A name that no other test uses."""
    return f"group-{next(TOPIC_NUMBERS)}"


class Told(NamedTuple):
    """The result of a command line."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """Lines with tabs."""
        return [line.split("\t") for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        """One value in JSON."""
        return json.loads(self.out)


Tell = Callable[..., Told]


@pytest.fixture
def tell(
    shared_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Tell:
    """Run a command line within this process: quicker by the start of Python."""

    def tell(*arguments: str, stdin: str | bytes = b"") -> Told:
        content = stdin if isinstance(stdin, bytes) else stdin.encode()
        with monkeypatch.context() as patch:
            patch.setenv("SPARKLOG_BOOTSTRAP_SERVER", shared_broker.bootstrap_servers)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
            capfd.readouterr()
            code = main(list(arguments))
            sys.stdout.flush()
            return Told(code, *capfd.readouterr())

    return tell
