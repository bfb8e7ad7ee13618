"""`sparklog log repair`: a dry run that names every step and changes nothing, and a repair after which the
broker serves.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog import Consumer, Producer, TopicPartition, embedded
from sparklog.record.batch import iterate_headers
from sparklog_server.cli.main import main
from tests.cli.conftest import PROGRAM

Repair = Callable[..., subprocess.CompletedProcess[str]]
COUNT = 20


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that kept twenty records and one commit, and stopped cleanly."""
    path = tmp_path_factory.mktemp("stopped") / "data"
    with embedded(data_dir=path) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for at in range(COUNT):
            producer.send("flights", value=b"%d" % at).result()
    return path


@pytest.fixture
def data(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "data"))


@pytest.fixture
def repair(tmp_path: Path) -> Repair:
    """Run `sparklog log repair` in the directory above `data`."""

    def run(*arguments: str, command: str = "repair") -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        line = [sys.executable, "-c", PROGRAM, "log", command, *arguments]
        return subprocess.run(
            line, capture_output=True, text=True, check=False, timeout=60, env=environment, cwd=tmp_path
        )

    return run


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def values(path: Path) -> dict[int, bytes]:
    """The records that a consumer reads from a broker over this directory."""
    found: dict[int, bytes] = {}
    with (
        embedded(data_dir=path) as broker,
        Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition("flights", 0)])
        while COUNT - 1 not in found:
            found |= {record.offset: record.value or b"" for record in consumer.poll(5000)}
    return found


def damage(data: Path, number: int) -> tuple[Path, int, int]:
    """Alter a byte in the middle of a batch; gives the file, where the batch begins, and where it ends."""
    path = data / "flights-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    position, header = list(iterate_headers(content))[number]
    content[position + 65] ^= 1
    path.write_bytes(content)
    return path, position, position + header.size


def test_a_dry_run_names_what_is_taken_out_and_lost_and_changes_nothing(data: Path, repair: Repair) -> None:
    _, begin, end = damage(data, 7)
    before = contents(data)
    told = repair("data")
    assert (told.returncode, told.stderr) == (
        1,
        "1 steps planned, nothing was changed: add --execute to do them\n",
    )
    kind, file, position, what, action, lost = told.stdout.rstrip("\n").split("\t")
    assert (kind, file, position, lost) == (
        "planned",
        f"data/flights-0/{0:020d}.log",
        str(begin),
        "offsets [7, 8)",
    )
    assert "CRC-32C does not match" in what
    assert action.startswith(f"bytes [{begin}, {end}) are copied to {0:020d}.log.cut-")
    assert contents(data) == before
    (step,) = [json.loads(line) for line in repair("--json", "data").stdout.splitlines()]
    assert (step["kind"], step["partition"], step["position"]) == ("planned", "flights-0", begin)


def test_after_the_repair_verify_is_clean_and_a_consumer_reads_every_other_record(
    data: Path, repair: Repair
) -> None:
    path, begin, end = damage(data, 7)
    held = path.read_bytes()[begin:end]
    done = repair("--execute", "data")
    assert (done.returncode, done.stderr) == (0, "1 steps done, `sparklog log verify` finds no damage\n")
    (copy,) = path.parent.glob(f"*.log.cut-*-{begin}")
    assert copy.read_bytes() == held
    assert repair("data", command="verify").returncode == 0
    assert values(data) == {at: b"%d" % at for at in range(COUNT) if at != 7}
    assert repair("data").stderr == "nothing to repair\n"


def test_a_directory_that_a_broker_holds_is_refused(data: Path, repair: Repair) -> None:
    with embedded(data_dir=data):
        refused = repair("--execute", "data")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "data is held by a running broker: stop it first" in refused.stderr


def test_meta_properties_are_made_anew_where_their_ids_are_known_from_elsewhere(
    data: Path, repair: Repair
) -> None:
    file = data / "meta.properties"
    was = file.read_text()
    cluster_id = next(line for line in was.splitlines() if line.startswith("cluster.id=")).removeprefix(
        "cluster.id="
    )
    file.unlink()
    impossible = repair("--execute", "data")
    assert impossible.returncode == 1
    assert "impossible\tdata/meta.properties" in impossible.stdout
    assert "give --cluster-id" in impossible.stdout
    assert not file.exists()
    assert repair("--execute", "--cluster-id", cluster_id, "data").returncode == 0
    assert sorted(file.read_text().splitlines()) == sorted(
        line for line in was.splitlines() if not line.startswith("#")
    )
    assert len(values(data)) == COUNT


def test_every_command_of_the_page_about_files_runs(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tools.md").read_text()
    commands = [
        line.removeprefix("$ sparklog ").split()
        for line in page.splitlines()
        if line.startswith(("$ sparklog inspect", "$ sparklog log"))
    ]
    assert len(commands) >= 10
    shutil.copytree(stopped, tmp_path / "sparklog-data")
    newest = sorted((tmp_path / "sparklog-data" / "flights-0").glob("*.snapshot"))[-1]
    newest.rename(newest.with_name(f"{50:020d}.snapshot"))  # the page's broker kept fifty records
    for name in ("broken", "torn"):
        shutil.copytree(stopped, tmp_path / name)
    damage(tmp_path / "broken", 7)
    monkeypatch.chdir(tmp_path)
    codes = {" ".join(command): main(command) for command in commands}
    assert all(code in (0, 1) for code in codes.values()), codes
    assert codes["log repair --execute broken"] == 0


def test_what_is_no_log_directory_is_refused(tmp_path: Path, repair: Repair) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.txt").write_text("hello")
    refused = repair("data")
    assert refused.returncode == 1
    assert "no log directory" in refused.stderr
