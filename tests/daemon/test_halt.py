"""When the broker itself is at fault, or does not come to an end."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.daemon.broker_process import PATIENCE_S, receive_until_closed


@contextmanager
def faulty(kind: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The daemon with that fault, and the port it listens on."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.daemon.faulty", kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    ) as child:
        try:
            assert child.stdout is not None
            ready = dict(word.partition("=")[::2] for word in child.stdout.readline().split())
            yield child, int(ready["listen"].rpartition(":")[2])
        finally:
            child.kill()


def test_a_bug_ends_the_process_with_an_account_of_what_came_before() -> None:
    with faulty("crash") as (child, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"anything\n")
            assert receive_until_closed(client) == b""
        _, err = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 1
        halt = err.index(" halt reason=")
        assert "the high watermark moved back" in err[halt:]
        assert " ready node=1" in err[halt:]


def test_a_second_signal_ends_a_stop_that_does_not_end() -> None:
    with faulty("hang") as (child, _):
        assert child.stderr is not None
        child.send_signal(signal.SIGTERM)
        while "stopping" not in child.stderr.readline():
            pass
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=PATIENCE_S) == 1
