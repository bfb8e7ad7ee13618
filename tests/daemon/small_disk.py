"""A small file system of its own for a broker process: tmpfs in a mount namespace, which goes with its
last process.
"""

import contextlib
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.daemon.broker_process import BrokerProcess


class SmallDisk:
    """`size` bytes mounted at `path`, which only processes begun with `prefix` see there; `inside` is the
    same directory for the test.
    """

    def __init__(self, path: Path, size: int) -> None:
        path.mkdir()
        self.path = path
        self._size = size
        mount = f'mount -t tmpfs -o size={size} none "{path}" && echo mounted && exec cat'
        self._keeper = subprocess.Popen(
            ["unshare", "-r", "-m", "sh", "-c", mount],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._keeper.stdout is not None
        self._is_mounted = self._keeper.stdout.readline() == b"mounted\n"
        self.prefix = ("nsenter", "-t", str(self._keeper.pid), "-U", "-m", "--preserve-credentials", "--")
        self.inside = Path(f"/proc/{self._keeper.pid}/root{path}")

    def broker(self, *settings: str) -> BrokerProcess:
        """A broker with its data on this disk."""
        given = [part for setting in settings for part in ("--set", setting)]
        return BrokerProcess(
            "--data-dir", f"{self.path}/data", "--listen", "127.0.0.1:0", *given, prefix=self.prefix
        )

    def room(self) -> int:
        """The bytes that are free."""
        found = os.statvfs(self.inside)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        """Another program takes all the room there is."""
        with (self.inside / "of-another").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self, at_least: int) -> None:
        """It gives the room back, and the disk grows besides."""
        (self.inside / "of-another").unlink()
        grown = ["mount", "-o", f"remount,size={self._size + 2 * at_least}", str(self.path)]
        subprocess.run([*self.prefix, *grown], check=True)

    def __enter__(self) -> Self:
        if not self._is_mounted:
            self.__exit__(None, None, None)
            pytest.skip("this system lets no test mount a file system")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            assert pipe is not None
            pipe.close()
        self._keeper.wait()
