"""The command line as a shell runs it, against a broker that all these tests share."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import sparklog
from sparklog.local_broker import EmbeddedBroker

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

    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "SPARKLOG_BOOTSTRAP_SERVER": shared_broker.bootstrap_servers,
        }
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments], input=stdin, capture_output=True, check=False, timeout=60, env=environment
        )

    return run


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(TOPIC_NUMBERS)}"
