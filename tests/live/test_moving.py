"""A live cluster grows, is emptied, gets new disks and is restarted, while nodes are killed: its clients lose
no acknowledged record, and nothing is left behind.

It takes SPARKLOG_LIVE_SECONDS, three minutes by default.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import PROJECT

LONG_S = float(os.environ.get("SPARKLOG_LIVE_SECONDS", "180"))
SETTLE_S = 900.0
"""The first turn of all steps, and reading every record at the end."""


@pytest.mark.long
@pytest.mark.timeout(LONG_S + SETTLE_S)
@pytest.mark.parametrize("seed", [1])
def test_moves_and_kills_lose_no_acknowledged_record(tmp_path: Path, seed: int) -> None:
    options = ["--directory", f"{tmp_path}", "--seconds", f"{LONG_S}", "--seed", f"{seed}"]
    run = subprocess.run(
        [sys.executable, "-m", "tests.live.moving", *options],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=LONG_S + SETTLE_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-8_000:]
