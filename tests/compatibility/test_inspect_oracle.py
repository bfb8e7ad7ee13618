"""Our tools and Kafka's, side by side: the same batches and index entries, and no objection to a directory
that a real Kafka wrote.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from sparklog.record.compression import Codec
from tests.cli.conftest import PROGRAM
from tests.cli.test_inspect import environment
from tests.compatibility import kafka_tools as tools
from tests.compatibility.kafka_broker import RealKafka
from tests.compatibility.kafka_tools import kafka_tool
from tests.compatibility.test_log_oracle import NOW, fill, make_topic, new_log, produce, record_values

pytestmark = pytest.mark.compat


class Shown(NamedTuple):
    """The output of `sparklog`, object by object, and its exit code."""

    rows: list[dict[str, object]]
    returncode: int

    def of(self, kind: str, *columns: str) -> list[tuple[int, ...]]:
        return [
            tuple(int(str(row[column])) for column in columns) for row in self.rows if row.get("kind") == kind
        ]


def sparklog(*arguments: str | Path) -> Shown:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment())
    assert done.stderr == ""
    return Shown([json.loads(line) for line in done.stdout.split("\n") if line], done.returncode)


def numbers(pattern: str, text: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, found.groups())) for found in re.finditer(pattern, text, re.MULTILINE)]


def agrees_with_kafkas_dump(directory: Path) -> None:
    """Batches, offset index and time index of every segment, as Kafka's own tool reads them."""
    for log in sorted(directory.glob("*.log")):
        index, times = log.with_suffix(".index"), log.with_suffix(".timeindex")
        files = ",".join(str(file) for file in (log, index, times) if file.stat().st_size)
        is_first = int(log.stem) == 0
        starts = (
            [] if is_first else [f"Non-consecutive offsets in {log}", f"  -1 is followed by {int(log.stem)}"]
        )
        dumped = kafka_tool(tools.DUMP_LOG, "--deep-iteration", "--files", files, complaints=starts)
        ours = sparklog("inspect", "--deep", log)
        assert ours.returncode == 0
        fields = r"^baseOffset: (-?\d+) lastOffset: (-?\d+) count: (-?\d+) .* partitionLeaderEpoch: (-?\d+) .* position: (\d+) .* size: (\d+) "  # noqa: E501
        columns = ("base_offset", "last_offset", "records", "leader_epoch", "position", "bytes")
        assert ours.of("batch", *columns) == numbers(fields, dumped)
        assert len(ours.of("batch", "position")) > 10
        assert [offset for (offset,) in ours.of("record", "offset")] == [
            at for (at,) in numbers(r"^\| offset: (\d+) ", dumped)
        ]
        entries = sparklog("inspect", index, times)
        assert entries.of("offset-index", "offset", "position") == numbers(
            r"^offset: (\d+) position: (\d+)$", dumped
        )
        assert entries.of("time-index", "timestamp", "offset") == numbers(
            r"^timestamp: (\d+) offset: (\d+)$", dumped
        )


def test_our_tool_and_kafkas_see_the_same_in_what_we_wrote(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    for at, codec in enumerate((Codec.NONE, Codec.ZSTD)):
        fill(log, codec, begin=300 * at, count=300)
    log.close(NOW)
    agrees_with_kafkas_dump(tmp_path / "t-0")


def test_nothing_is_damaged_in_a_real_kafkas_directory_stopped_or_killed(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path)
    with kafka.running() as admin:
        make_topic(admin, "theirs")
        produce(kafka, "theirs", record_values(0, 9_000), "none")
        produce(kafka, "theirs", record_values(9_000, 10_000), "zstd")
        running = sparklog("inspect", kafka.data_dir)
        assert running.returncode == 0, [row for row in running.rows if row["kind"] == "damage"]
    stopped = sparklog("log", "verify", "--deep", kafka.data_dir)
    states = {str(row["partition"]): row["state"] for row in stopped.rows}
    assert stopped.returncode == 0, stopped.rows
    assert (states["theirs-0"], states["__cluster_metadata-0"]) == ("sound", "sound"), stopped.rows
    assert next(row["records"] for row in stopped.rows if row["partition"] == "theirs-0") == 10_000
    agrees_with_kafkas_dump(kafka.data_dir / "theirs-0")
    metadata = kafka.data_dir / "__cluster_metadata-0"
    shown = sparklog(
        "inspect", "--deep", *sorted(metadata.glob("*.log")), *sorted(metadata.glob("*.checkpoint"))
    )
    names = {str(row["name"]) for row in shown.rows if row["kind"] in ("metadata", "control")}
    assert {
        "LEADER_CHANGE",
        "TopicRecord",
        "PartitionRecord",
        "RegisterBrokerRecord",
        "FeatureLevelRecord",
    } <= names
    assert "unreadable" not in names

    with kafka.running(is_killed=True):
        produce(kafka, "theirs", record_values(10_000, 12_000), "lz4")
    killed = sparklog("log", "verify", "--deep", kafka.data_dir)
    assert killed.returncode == 0, [row for row in killed.rows if row["state"] == "damaged"]
    assert next(row["records"] for row in killed.rows if row["partition"] == "theirs-0") == 12_000
