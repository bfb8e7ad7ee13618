"""`sparklog selftest`: what it says of measured values, and that it leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog_server.cli import selftest_runs as runs
from sparklog_server.cli.findings import Finding, exit_code
from sparklog_server.cli.selftest import Measured, judged
from sparklog_server.cli.selftest_runs import BrokerSpeed, DiskSpeed, Spread
from tests.cli.conftest import PROGRAM, Tell

ASKED_EVERY_S = 0.02
FAST = Measured(
    DiskSpeed(500.0, Spread(1.0, 5.0)),
    Spread(0.02, 0.1),
    6.0,
    BrokerSpeed(40_000.0, 40.0, Spread(1.2, 6.0)),
    "compiled",
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("APPEND_S", "SYNC_S", "NETWORK_S", "CRC_S", "PRODUCE_S", "ACKED_S"):
        monkeypatch.setattr(runs, name, 0.05)
    monkeypatch.setattr(runs, "APPEND_BYTES_MAX", 4 << 20)


def by_subject(measured: Measured) -> dict[str, Finding]:
    return {one.subject: one for one in judged(measured)}


def test_a_fast_machine_has_no_warning() -> None:
    found = judged(FAST)
    assert exit_code(found) == 0
    assert [one.subject for one in found] == [
        *("disk append", "disk sync", "loopback network", "crc32c", "produce", "acks=all")
    ]
    assert all("reference" in one.found and not one.remedy for one in found)


def slow_append(measured: Measured) -> Measured:
    return measured._replace(disk=measured.disk._replace(append_mb_s=20.0))


def synced(p50_ms: float, p99_ms: float) -> Callable[[Measured], Measured]:
    return lambda measured: measured._replace(disk=measured.disk._replace(sync=Spread(p50_ms, p99_ms)))


@pytest.mark.parametrize(
    ("change", "subject", "remedy"),
    [
        (slow_append, "disk append", "log.dirs"),
        (synced(0.001, 0.002), "disk sync", "a directory on a disk"),
        (synced(25.0, 80.0), "disk sync", "sparklog.ack.flush=never"),
        (synced(2.0, 400.0), "disk sync", "metadata.log.dir"),
        (lambda one: one._replace(round_trip=Spread(0.5, 3.0)), "loopback network", "processors"),
        (lambda one: one._replace(kernels="reference"), "kernels", "C compiler"),
    ],
)
def test_what_is_slow_is_named_with_the_setting_to_change(
    change: Callable[[Measured], Measured], subject: str, remedy: str
) -> None:
    found = by_subject(change(FAST))
    assert [name for name, one in found.items() if one.state == "WARN"] == [subject]
    assert remedy in found[subject].remedy
    assert exit_code(list(found.values())) == 1


@pytest.mark.usefixtures("short")
def test_the_command_measures_and_leaves_the_directory_as_it_was(tell: Tell, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    told = tell("selftest", "--directory", str(tmp_path), "--json")
    answer = told.json
    assert told.code == answer["exit_code"]
    measured = answer["measured"]
    assert measured["append_mb_s"] > 0
    assert 0 < measured["sync_ms"]["p50_ms"] <= measured["sync_ms"]["p99_ms"]
    assert 0 < measured["round_trip_ms"]["p50_ms"] <= measured["round_trip_ms"]["p99_ms"]
    assert measured["crc_gb_s"] > 0
    assert measured["records_s"] > 0
    assert 0 < measured["acked_ms"]["p50_ms"] <= measured["acked_ms"]["p99_ms"]
    assert set(answer["reference"]) >= {"append_mb_s", "crc_gb_s"}
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_disk_without_room_is_left_alone(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("sparklog_server.cli.selftest.disk_usage", lambda _: usage._replace(free=1_000))
    told = tell("selftest", "--directory", str(tmp_path))
    assert told.code == 1
    assert "has 1000 bytes free" in told.err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_missing_is_a_usage_error(tell: Tell, tmp_path: Path) -> None:
    assert tell("selftest", "--directory", str(tmp_path / "missing")).code == 2


def test_a_killed_test_leaves_no_file(tmp_path: Path) -> None:
    """The broker removes its directory once its parent is gone."""
    program = PROGRAM.replace(
        "sys.exit",
        "import sparklog_server.cli.selftest_runs as runs; "
        "runs.APPEND_S = runs.SYNC_S = runs.NETWORK_S = 0.01; runs.PRODUCE_S = 60; sys.exit",
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, "selftest", "--directory", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.DEVNULL,
    )
    while not (logs := list(tmp_path.glob("sparklog-*/data/selftest-0"))):
        assert child.poll() is None
        time.sleep(ASKED_EVERY_S)
    child.send_signal(signal.SIGKILL)
    child.wait()
    while logs[0].parent.parent.exists():
        time.sleep(ASKED_EVERY_S)  # the suite's own timeout ends this
    assert list(tmp_path.iterdir()) == []
