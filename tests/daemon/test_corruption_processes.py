"""The corruption matrix by real processes: `sparklog start` over the damaged files, `sparklog log repair`,
and `sparklog start` again.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog import Consumer, TopicPartition
from tests.daemon.broker_process import BrokerProcess, broker
from tests.log_tools.corruption import ROOT, Case, served
from tests.log_tools.test_corruption_matrix import CASES, IDS, REMEDY, files_with

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]
PROGRAM = "import sys; from sparklog_server.cli.main import main; sys.exit(main())"


def sparklog(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment,
    )


def said(process: BrokerProcess) -> tuple[bool, str]:
    """Whether the broker became ready, and its output until it was stopped."""
    try:
        process.address()
    except AssertionError as refused:
        return False, str(refused)
    return True, process.end(signal.SIGTERM)[2]


def read(process: BrokerProcess) -> dict[int, bytes]:
    """The records of `t-0`, whose end may lie below that of the undamaged log."""
    servers = process.bootstrap_servers()
    partition = TopicPartition("t", 0)
    found: dict[int, bytes] = {}
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            found |= {record.offset: record.value or b"" for record in consumer.poll(2000)}
    return found


@pytest.mark.parametrize("is_clean", [False, True], ids=["kill", "clean"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_damaged_directory_is_refused_or_served_and_repaired(
    case: Case, tmp_path: Path, *, is_clean: bool
) -> None:
    before = served(is_clean=is_clean)
    files, damaged = files_with(case, before)
    data = tmp_path / "data"
    for path, content in files.items():
        file = data / path.removeprefix(f"{ROOT}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    with broker(data) as process:
        is_ready, text = said(process)
    assert "Traceback" not in text
    if not is_ready:
        assert damaged.rpartition("/")[2] in text or "__cluster_metadata-0" in text
        assert any(word in text for word in REMEDY.split("|")[:1]) or "estore" in text
    assert (
        sparklog(
            "log", "repair", "--execute", "--cluster-id", "the-cluster-of-the-test", str(data)
        ).returncode
        == 0
    )
    verified = sparklog("log", "verify", str(data))
    assert verified.returncode == 0, verified.stdout
    with broker(data) as process:
        if "directory" in case.name or "metadata log" in case.name:
            assert said(process)[0]
            return
        records = read(process)
    altered = [
        offset
        for offset, value in records.items()
        if offset in before.records and before.records[offset] != value
    ]
    assert not altered
    assert len(before.records.keys() - records.keys()) <= max(case.lost_max, 4)
