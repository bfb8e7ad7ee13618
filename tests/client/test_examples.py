"""The programs under examples/ that need no Spark run as described."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples import clients
from sparklog.local_broker import EmbeddedBroker

PROJECT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.compat


def test_readings_are_sent_and_counted_by_a_group(
    sparklog_broker: EmbeddedBroker, sparklog_topic: str
) -> None:
    servers = sparklog_broker.bootstrap_servers
    clients.send_readings(servers, sparklog_topic)
    counts = clients.count_readings(servers, sparklog_topic, "examples", 100)
    assert counts == {f"sensor {number}": 25 for number in range(4)}


def test_a_test_of_ones_own_finds_its_fixtures() -> None:
    command = [sys.executable, "-m", "pytest", str(PROJECT / "examples" / "test_orders.py")]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert "1 passed" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
