"""`sparklog tutorial`: every step runs, and shows what its text says."""

import os
import pty
import re
import subprocess
import sys

import pytest

from sparklog_server.cli.tutorial import END, STEPS
from tests.cli.conftest import PROGRAM

ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    "SPARKLOG_PROFILE": "absent",
}


@pytest.mark.timeout(120)  # a broker, and eleven starts of Python
def test_every_step_runs_and_shows_what_it_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "tutorial", "--yes"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^\d+/\d+  .*$", done.stdout, flags=re.MULTILINE)
    assert len(parts) == len(STEPS) + 1
    printed = dict(zip([step.title for step in STEPS], parts[1:], strict=True))
    read = [line for line in printed["Reading takes nothing away"].splitlines() if line.startswith("part")]
    assert sorted(line.partition(": ")[2] for line in read) == ["B6 -3", "DL 7", "UA 12", "UA 40"]
    lags = [row.split("\t") for row in printed["The lag is what is left to read"].splitlines() if "\t" in row]
    assert sum(int(row[5]) for row in lags if row[5]) <= 4
    assert END in done.stdout
    assert "created flights (2 partitions)" in done.stderr
    assert "wrote 4 records to copy" in done.stderr


def test_a_terminal_is_asked_before_each_step() -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "tutorial"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=ENVIRONMENT | {"TERM": "xterm"},
    )
    os.close(theirs)
    printed = b""
    while b"Enter runs it" not in printed:
        printed += os.read(ours, 1 << 16)
    os.write(ours, b"q\n")
    assert child.wait(30) == 0
    os.close(ours)
    assert STEPS[0].line.encode() in printed
    assert b"created" not in printed
