"""Only the user of the broker reads what it writes, regardless of the umask."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparklog_server.cli.format import format_directories
from sparklog_server.disk.os_disk import OsDisk


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root.parent)): oct(path.stat().st_mode & 0o777)
        for path in (root, *root.rglob("*"))
    }


def test_files_directories_and_locks_are_the_users_alone(tmp_path: Path) -> None:
    disk, root = OsDisk(), tmp_path / "data"
    disk.make_directory(f"{root}/t-0")
    disk.open(f"{root}/t-0/log", create=True).append(b"record")
    disk.write(f"{root}/meta.properties", b"x")
    disk.lock(str(root))
    disk.unlock(str(root))
    assert set(modes(root).values()) == {"0o700", "0o600"}
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o600}


def test_a_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir(mode=0o750)
    OsDisk().make_directory(str(root))
    assert root.stat().st_mode & 0o777 == 0o750


def test_format_leaves_scram_keys_to_the_user_alone(tmp_path: Path) -> None:
    root = tmp_path / "data"
    arguments = ["--standalone", "--set", f"log.dirs={root}"]
    arguments += ["--set", "process.roles=broker,controller", "--set", "controller.listener.names=CONTROLLER"]
    arguments += ["--set", "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"]
    arguments += ["--add-scram", "SCRAM-SHA-256=[name=alice,password=secret-1]"]
    done = CliRunner().invoke(format_directories, arguments)
    assert done.exit_code == 0, done.output
    found = modes(root)
    assert any(name.endswith("bootstrap.checkpoint") for name in found)
    assert set(found.values()) == {"0o700", "0o600"}, found
