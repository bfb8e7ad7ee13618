"""Three live nodes under faults: clients of every kind lose no acknowledged record and see none change.

A long attack takes SPARKLOG_LIVE_SECONDS, ten minutes by default.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.faults import FAULTS
from tests.live.networks import UNSHARED
from tests.tools import PROJECT

SHORT_S = 20.0
LONG_S = float(os.environ.get("SPARKLOG_LIVE_SECONDS", "600"))
SETTLE_S = 400.0
"""The start, the last fault, and reading every record at the end."""


@pytest.fixture(autouse=True)
def namespaces() -> None:
    """Skip the test where nodes cannot have networks of their own."""
    missing = [tool for tool in ("unshare", "nsenter", "ip", "ss", "tc", "cc") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}")
    attempt = [*UNSHARED, "ip", "link", "add", "probe", "type", "bridge"]
    probe = subprocess.run(attempt, capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"no network namespaces: {probe.stderr.strip()}")


def attack(directory: Path, seconds: float, *faults: str) -> None:
    """Run the attack in namespaces of its own, and expect no violations."""
    options = ["--directory", str(directory), "--seconds", str(seconds), "--faults", ",".join(faults)]
    run = subprocess.run(
        [*UNSHARED, sys.executable, "-m", "tests.live.attack", *options],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=seconds + SETTLE_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]


@pytest.mark.timeout(240)
def test_killed_cut_and_restarted_nodes_lose_no_acknowledged_record(tmp_path: Path) -> None:
    attack(tmp_path, SHORT_S, "kill_leader", "kill_controller", "cut_one_way", "kill_all", "restart_all")


@pytest.mark.long
@pytest.mark.timeout(LONG_S + SETTLE_S)
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_one_fault_again_and_again_loses_no_acknowledged_record(tmp_path: Path, fault: str) -> None:
    attack(tmp_path, LONG_S, fault)


@pytest.mark.long
@pytest.mark.timeout(LONG_S + SETTLE_S)
def test_all_faults_in_turns_lose_no_acknowledged_record(tmp_path: Path) -> None:
    attack(tmp_path, LONG_S, *FAULTS)
