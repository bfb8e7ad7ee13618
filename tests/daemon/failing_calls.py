"""A broker process whose system calls fail as a broken disk has them fail; `failing_calls.c` says how."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.broker_process import BrokerProcess

SOURCE = Path(__file__).with_suffix(".c")


class FailingCalls:
    """The library, built in a directory, and its control files."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None or not sys.platform.startswith("linux"):
            pytest.skip("this system has no C compiler, or does not preload libraries as Linux does")
        self._library = directory / "failing_calls.so"
        self._told = directory / "failing-calls"
        self.fail()
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE), "-ldl"], check=True
        )

    def fail(self, *calls: tuple[str, str, int]) -> None:
        """From now on these (call, part of a path, errno) fail, and no others."""
        aside = self._told.with_suffix(".new")
        aside.write_text("".join(f"{call} {part} {number}\n" for call, part, number in calls))
        aside.replace(self._told)

    def broker(self, *directories: Path, listen: str = "127.0.0.1:0", **settings: object) -> BrokerProcess:
        """A broker that meets these failures; settings with `_` in place of dots."""
        settings["log.dirs"] = ",".join(map(str, directories))
        given = [
            word for key, value in settings.items() for word in ("--set", f"{key.replace('_', '.')}={value}")
        ]
        return BrokerProcess(
            *given,
            "--listen",
            listen,
            environment={"LD_PRELOAD": str(self._library), "FAILING_CALLS": str(self._told)},
        )
