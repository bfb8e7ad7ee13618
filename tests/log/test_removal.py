"""How files leave the disk."""

from random import Random

import pytest

from sparklog_server.disk.door import StorageError
from sparklog_server.log.removal import STEP_BYTES, Removal, go_on, removal, remove_all
from sparklog_server.simulation.disk import SimulatedDisk

MIB = 1 << 20


def disk_with(sizes: dict[str, int]) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(*{path.rpartition("/")[0]: None for path in sizes})
    files = []
    for path, size in sizes.items():
        files.append(disk.open(path, create=True))
        files[-1].append(bytes(size))
    disk.sync(files)
    return disk


def sizes_after_each_step(disk: SimulatedDisk, paths: list[str]) -> list[int]:
    sizes = []
    step: Removal | None = removal(disk, paths)
    while step is not None:
        step = go_on(step())
        sizes.append(disk.used_bytes)
    return sizes


def test_small_files_go_together() -> None:
    disk = disk_with({f"d/{number}": 100_000 for number in range(60)})
    assert sizes_after_each_step(disk, [f"d/{number}" for number in range(60)]) == [60 * 100_000 - 41 * 100_000, 0]
    assert disk.list("d") == []


def test_a_large_file_gets_shorter_step_by_step() -> None:
    disk = disk_with({"d/large": 3 * STEP_BYTES + 5, "d/index": 10})
    sizes = sizes_after_each_step(disk, ["d/large", "d/index"])
    assert sizes == [2 * STEP_BYTES + 15, STEP_BYTES + 15, 15, 0]
    assert disk.list("d") == []


def test_a_directory_goes_with_all_it_holds_the_large_files_first() -> None:
    disk = disk_with({"d/a/large": 2 * STEP_BYTES, "d/a/small": 7, "d/b/small": 8, "d/kept": 9})
    assert sizes_after_each_step(disk, ["d/a", "d/b"]) == [STEP_BYTES + 24, 9]
    assert disk.list("d") == ["kept"]


def test_what_is_missing_is_passed_over() -> None:
    disk = disk_with({"d/kept": 9})
    remove_all(removal(disk, ["d/missing", "elsewhere/missing"]))
    assert disk.list("d") == ["kept"]


def test_a_disk_that_refuses_is_told() -> None:
    disk = disk_with({"d/large": 2 * STEP_BYTES})
    disk.fault = lambda call, _: "Input/output error" if call == "truncate" else None
    with pytest.raises(StorageError, match="truncate d/large: Input/output error"):
        remove_all(removal(disk, ["d/large"]))


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_brings_back_any_of_what_was_being_removed_and_it_can_be_removed_then(seed: int) -> None:
    disk = disk_with({f"d/{number}": MIB for number in range(3)})
    calls = iter(range(seed % 6))

    def fault(_call: str, _path: str) -> str | None:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return None

    disk.fault = fault
    with pytest.raises(KeyboardInterrupt):
        remove_all(removal(disk, [f"d/{number}" for number in range(3)]))
    disk.fault = None
    disk.crash(Random(seed))
    remove_all(removal(disk, [f"d/{name}" for name in disk.list("d")]))
    assert disk.list("d") == []
