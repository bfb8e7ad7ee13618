"""A broker by the command `sparklog start`, which can be killed and started again at its address."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from sparklog.errors import SparklogError

LOG: Final = "broker.log"
STOP_S_MAX: Final = 10.0


class DemoFailed(SparklogError):
    """What was to be shown did not happen, or a flight is missing or doubled; the message says which."""


class Broker:
    """A broker on the loopback address, on a free port; it ends when its parent ends."""

    def __init__(self, output: Path) -> None:
        self.address = "127.0.0.1:0"
        self._output = output
        self._child = self._started()

    def start_again(self) -> float:
        """Start it on the same directory, at the same address; returns the seconds until it is ready."""
        asked_s = time.monotonic()
        self._child = self._started()
        return time.monotonic() - asked_s

    def kill(self) -> None:
        """Send SIGKILL."""
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()
        _close_pipes(self._child)

    def close(self) -> None:
        """Stop it cleanly."""
        self._child.terminate()
        try:
            self._child.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
        _close_pipes(self._child)

    def _started(self) -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-P", "-m", "sparklog_server.cli.program", "start", "--listen", self.address),
            *("--data-dir", str(self._output / "data"), "--owner-pid", str(os.getpid())),
        ]
        with (self._output / LOG).open("ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert child.stdout is not None
        ready = child.stdout.readline().decode()
        words = dict(word.partition("=")[::2] for word in ready.split())
        if "listen" not in words:
            child.wait()
            _close_pipes(child)
            raise DemoFailed(f"the broker did not start: see {self._output / LOG}")
        self.address = words["listen"]
        return child


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
