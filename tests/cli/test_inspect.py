"""`sparklog inspect` and `sparklog log verify`: their output for a directory that a broker of ours left,
and of the same one damaged.
"""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog import Producer, embedded
from sparklog.model import Instant, LeaderEpoch, Micros, Millis, NodeId, TopicPartition, Uuid
from sparklog.record.batch import build_batch
from sparklog.record.compression import Codec
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.log.directory.log_dir import LogDir
from sparklog_server.log.log_config import LogConfig
from tests.cli.conftest import PROGRAM

NOW = Instant(Micros(0), Millis(1_700_000_000_000))
T0 = TopicPartition("t", 0)
Sparklog = Callable[..., subprocess.CompletedProcess[str]]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture
def sparklog(tmp_path: Path) -> Sparklog:
    """Run `sparklog` in the directory above `data`, so that paths in its output are short and the same on
    every machine.
    """

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env=environment(), cwd=tmp_path
        )

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with one partition of three small batches, stopped cleanly."""
    path = tmp_path / "data"
    log_dir = LogDir.open(
        OsDisk(),
        str(path),
        node_id=NodeId(1),
        cluster_id="AAAAAAAAAAAAAAAAAAAAAA",
        entropy=bytes,
        defaults=LogConfig(),
        now=NOW,
    )
    log = log_dir.create(T0, Uuid(bytes(range(16))), LogConfig(), NOW)
    for at in range(3):
        records = [
            (b"k\t1", b"value %d" % (2 * at + one), (("h", b"x"),), NOW.wall_ms + one) for one in range(2)
        ]
        codec = Codec.GZIP if at == 1 else Codec.NONE
        batch = build_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=2 * at)
        log.append(memoryview(batch), LeaderEpoch(3), NOW)
    log_dir.close({T0: log.log_end_offset}, NOW)
    return path


def flip(path: Path, byte: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


def columns(output: str) -> list[list[str]]:
    return [line.split("\t") for line in output.splitlines()]


def test_a_segment_is_shown_batch_by_batch(sparklog: Sparklog, data: Path) -> None:
    shown = sparklog("inspect", "data/t-0/00000000000000000000.log")
    assert (shown.returncode, shown.stderr) == (0, "")
    rows = columns(shown.stdout)
    assert [row[:9] for row in rows[:3]] == [
        ["batch", "0", "0", "1", "2", rows[0][5], "3", "none", "CreateTime"],
        ["batch", rows[0][5], "2", "3", "2", rows[1][5], "3", "gzip", "CreateTime"],
        [
            "batch",
            str(int(rows[0][5]) + int(rows[1][5])),
            "4",
            "5",
            "2",
            rows[0][5],
            "3",
            "none",
            "CreateTime",
        ],
    ]
    assert [row[9:13] for row in rows[:3]] == [
        ["1700000000001", "7", "0", str(sequence)] for sequence in (0, 2, 4)
    ]
    size = (data / "t-0/00000000000000000000.log").stat().st_size
    assert rows[3] == ["file", "data/t-0/00000000000000000000.log", "segment", str(size), "3", "0", "5"]
    assert len(rows) == 4


def test_deep_shows_the_records_and_keeps_each_on_its_line(sparklog: Sparklog, data: Path) -> None:
    shown = sparklog("inspect", "--deep", "data/t-0/00000000000000000000.log")
    records = [line for line in shown.stdout.splitlines() if line.startswith("record")]
    assert records == [
        f'record\t{at}\t{1700000000000 + at % 2}\tk\\t1\tvalue {at}\t[["h","x"]]' for at in range(6)
    ]  # fmt: skip


def test_json_has_one_object_per_line_that_names_its_file(sparklog: Sparklog, data: Path) -> None:
    shown = sparklog("inspect", "--deep", "--json", "data/t-0/00000000000000000000.log")
    objects = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [one["kind"] for one in objects] == ["batch", "record", "record"] * 3 + ["file"]
    assert {one["file"] for one in objects[:-1]} == {"data/t-0/00000000000000000000.log"}
    assert objects[1] | {"kind": "record"} == {
        "kind": "record",
        "file": "data/t-0/00000000000000000000.log",
        "offset": 0,
        "timestamp": 1700000000000,
        "key": "k\t1",
        "value": "value 0",
        "headers": [["h", "x"]],
    }


def test_a_directory_is_shown_file_by_file(sparklog: Sparklog, data: Path) -> None:
    shown = sparklog("inspect", "data")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert {row[1].removeprefix("data/"): row[2] for row in columns(shown.stdout)} == {
        ".kafka_cleanshutdown": "clean-shutdown",
        ".lock": "unknown",
        ".sparklog-ballast": "unknown",
        "log-start-offset-checkpoint": "offsets",
        "meta.properties": "properties",
        "recovery-point-offset-checkpoint": "offsets",
        "replication-offset-checkpoint": "offsets",
        "t-0/00000000000000000000.index": "offset-index",
        "t-0/00000000000000000000.log": "segment",
        "t-0/00000000000000000000.timeindex": "time-index",
        "t-0/00000000000000000006.snapshot": "producer-snapshot",
        "t-0/leader-epoch-checkpoint": "leader-epochs",
        "t-0/partition.metadata": "partition-metadata",
    }


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("t-0/leader-epoch-checkpoint", ["leader-epochs\t3\t0"]),
        (
            "t-0/partition.metadata",
            ["partition-metadata\tversion\t0", "partition-metadata\ttopic_id\tAAECAwQFBgcICQoLDA0ODw"],
        ),
        ("recovery-point-offset-checkpoint", ["offsets\tt\t0\t6"]),
        ("t-0/00000000000000000006.snapshot", ["producer-snapshot\t7\t0\t5\t5\t1700000000000\t-1\t-1"]),
        ("t-0/00000000000000000000.timeindex", ["time-index\t1700000000001\t1"]),
        (".kafka_cleanshutdown", ["clean-shutdown\tversion\t0", "clean-shutdown\tbrokerEpoch\t-1"]),
    ],
)
def test_each_small_file_is_shown_row_by_row(
    sparklog: Sparklog, data: Path, file: str, shown: list[str]
) -> None:
    printed = sparklog("inspect", f"data/{file}")
    assert printed.returncode == 0
    assert printed.stdout.splitlines()[:-1] == shown


def test_the_first_bad_byte_is_named_with_what_is_wrong_and_what_to_do(
    sparklog: Sparklog, data: Path
) -> None:
    log = data / "t-0/00000000000000000000.log"
    flip(log, 90, bit=3)
    shown = sparklog("inspect", "data/t-0/00000000000000000000.log")
    assert shown.returncode == 1
    damage = [row for row in columns(shown.stdout) if row[0] == "damage"]
    assert [row[1:3] for row in damage] == [["data/t-0/00000000000000000000.log", "90"]]
    assert "CRC-32C does not match in the batch [0, " in damage[0][3]
    assert "this one altered byte would explain it" in damage[0][3]
    assert "restore the file" in damage[0][4]
    assert next(row[2:4] for row in columns(shown.stdout) if row[0] == "batch") == ["2", "3"]


def test_verify_says_per_partition_what_it_found(sparklog: Sparklog, data: Path) -> None:
    size = (data / "t-0/00000000000000000000.log").stat().st_size
    sound = sparklog("log", "verify", "data")
    assert (sound.returncode, sound.stderr) == (0, "")
    assert sound.stdout.splitlines() == [
        "partition\t.\tsound\t0\t0\t0\t0\t-1\t-1\t0",
        f"partition\tt-0\tsound\t1\t3\t6\t{size}\t0\t6\t0",
    ]
    shutil.copytree(data / "t-0", data / "u-0")
    flip(data / "u-0/00000000000000000000.timeindex", 7)
    damaged = sparklog("log", "verify", "--deep", "data")
    assert damaged.returncode == 1
    assert [row[:3] for row in columns(damaged.stdout)] == [
        ["partition", ".", "sound"],
        ["partition", "t-0", "sound"],
        ["partition", "u-0", "damaged"],
        ["damage", "data/u-0/00000000000000000000.timeindex", "7"],
    ]
    (*_, last) = [
        json.loads(line) for line in sparklog("log", "verify", "--json", "data").stdout.splitlines()
    ]
    assert (last["partition"], last["state"], last["findings"][0]["position"]) == ("u-0", "damaged", 7)


def test_verify_looks_at_one_partition_too(sparklog: Sparklog, data: Path) -> None:
    assert columns(sparklog("log", "verify", "data/t-0").stdout)[0][:3] == ["partition", "t-0", "sound"]


def test_verify_changes_nothing(sparklog: Sparklog, data: Path) -> None:
    def state() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(data.rglob("*"))
            if path.is_file()
        }

    (data / "t-0/leader-epoch-checkpoint.3.tmp").write_text("x")
    before = state()
    assert sparklog("log", "verify", "data").returncode == 0
    assert sparklog("inspect", "data").returncode == 0
    assert state() == before


def test_what_is_no_log_directory_is_refused(sparklog: Sparklog, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused = sparklog("log", "verify", "empty")
    assert refused.returncode == 1
    assert "empty is no log directory" in refused.stderr
    assert sparklog("log", "verify", "nowhere").returncode == 2
    assert sparklog("inspect", "nowhere").returncode == 2


def test_a_running_brokers_directory_is_inspected_but_not_verified_and_is_sound_once_it_stopped(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    with embedded(data_dir=tmp_path / "live") as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for at in range(20):
                producer.send("flights", value=b"%d" % at).result()
        for directory in ("live", "live/flights-0"):
            refused = sparklog("log", "verify", directory)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert "held by a running broker: stop it first" in refused.stderr
        assert sparklog("inspect", "live").returncode == 0
    assert sparklog("log", "verify", "--deep", "live").returncode == 0
    decoded = sparklog("inspect", "--deep", "--json", "live/__cluster_metadata-0/00000000000000000000.log")
    objects = [json.loads(line) for line in decoded.stdout.splitlines()]
    names = [one["name"] for one in objects if one["kind"] in ("metadata", "control")]
    assert {"LEADER_CHANGE", "RegisterBrokerRecord", "TopicRecord", "PartitionRecord"} <= set(names)
    assert [one["fields"]["name"] for one in objects if one.get("name") == "TopicRecord"] == ["flights"]


def test_a_reader_that_has_enough_ends_the_command_well(data: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "inspect",
        "--deep",
        *["data/t-0/00000000000000000000.log"] * 400,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"batch")
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")


def test_ctrl_c_ends_the_command_without_complaint(data: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "inspect",
        "--deep",
        *["data/t-0/00000000000000000000.log"] * 4000,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=60)
        assert (process.returncode, complaints) == (130, b"\n")


def test_a_terminal_gets_tables(data: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, "log", "verify", "data"]
    done = subprocess.run(
        command,
        stdout=theirs,
        stderr=theirs,
        check=False,
        timeout=60,
        env=environment() | {"COLUMNS": "160"},
        cwd=tmp_path,
    )
    os.close(theirs)
    printed = b""
    while piece := _read(ours):
        printed += piece
    os.close(ours)
    assert done.returncode == 0
    assert all(part in printed.decode() for part in ("─────────  ", "partition", "t-0", "sound"))


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux says so when the other end of a terminal is gone
        return b""
