"""The removal of files from the disk."""

from pathlib import Path
from random import Random

import pytest

from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.disk.os_disk import OsDisk
from sparklog_server.disk.removal import STEP_BYTES, Removal, removal, remove_all
from sparklog_server.simulation.disk import SimulatedDisk

MIB = 1 << 20


@pytest.fixture(params=[OsDisk, SimulatedDisk])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.chdir(tmp_path)
    made: Disk = request.param()
    return made


def fill(disk: Disk, sizes: dict[str, int]) -> None:
    disk.make_directory(*{path.rpartition("/")[0]: None for path in sizes})
    files = []
    for path, size in sizes.items():
        files.append(disk.open(path, create=True))
        files[-1].append(bytes(size))
    disk.sync(files)


def left_after_each_step(disk: Disk, paths: list[str]) -> list[list[str]]:
    left = []
    step: Removal | None = removal(disk, paths)
    while step is not None:
        step = step()
        left.append(disk.list("d"))
    return left


def test_small_files_go_together(disk: Disk) -> None:
    names = [f"{number:02}" for number in range(60)]
    fill(disk, {f"d/{name}": 100_000 for name in names})
    assert left_after_each_step(disk, [f"d/{name}" for name in names]) == [names[41:], []]


def test_no_more_than_64_go_at_once(disk: Disk) -> None:
    names = [f"{number:03}" for number in range(65)]
    fill(disk, {f"d/{name}": 1 for name in names})
    assert left_after_each_step(disk, [f"d/{name}" for name in names]) == [["064"], []]


def test_a_large_file_goes_alone(disk: Disk) -> None:
    fill(disk, {"d/a": 10, "d/large": STEP_BYTES + 1, "d/z": 10})
    assert left_after_each_step(disk, ["d/a", "d/large", "d/z"]) == [["large", "z"], ["z"], []]


def test_what_is_read_meanwhile_stays_as_it_was(disk: Disk) -> None:
    fill(disk, {"d/large": STEP_BYTES + 1})
    file = disk.open("d/large")
    assert file.pread(0, 1) == b"\0"
    remove_all(removal(disk, ["d/large"]))
    assert file.pread(STEP_BYTES - 10, 100) == bytes(11)


def test_directories_go_after_all_they_hold(disk: Disk) -> None:
    fill(disk, {"d/a/large": STEP_BYTES, "d/a/small": 7, "d/b/small": 8, "d/kept": 9})
    assert left_after_each_step(disk, ["d/a", "d/b"]) == [["a", "b", "kept"], ["kept"]]


def test_what_is_missing_is_passed_over(disk: Disk) -> None:
    fill(disk, {"d/kept": 9})
    remove_all(removal(disk, ["d/missing", "elsewhere/missing"]))
    remove_all(removal(disk, []))
    assert disk.list("d") == ["kept"]


def test_a_disk_that_refuses_is_told() -> None:
    disk = SimulatedDisk()
    fill(disk, {"d/file": 1})
    disk.fault = lambda call, _: "Input/output error" if call == "remove" else None
    with pytest.raises(StorageError, match="remove d/file: Input/output error"):
        remove_all(removal(disk, ["d/file"]))


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_brings_back_any_of_what_was_being_removed_and_it_can_be_removed_then(seed: int) -> None:
    disk = SimulatedDisk()
    fill(disk, {f"d/t-delete/{number}": MIB for number in range(3)})
    calls = iter(range(seed % 9))

    def fault(_call: str, _path: str) -> str | None:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return None

    disk.fault = fault
    with pytest.raises(KeyboardInterrupt):
        remove_all(removal(disk, ["d/t-delete"]))
    disk.fault = None
    disk.crash(Random(seed))
    remove_all(removal(disk, ["d/t-delete"]))
    assert disk.list("d") == []
