"""The disk in memory: as strict as a power cut allows, and the same for the same seed."""

from random import Random

import pytest

from sparklog_server.disk.door import StorageError, replace_all
from sparklog_server.simulation.disk import SimulatedDisk


def crashed(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("d")
    synced = disk.open("d/synced", create=True)
    synced.append(b"s" * 1000)
    disk.sync([synced])
    synced.append(b"u" * 3000)
    disk.open("d/never", create=True).append(b"n" * 3000)
    disk.write("d/small", b"old")
    disk.replace("d/small", b"new")
    disk.crash(Random(seed))
    return disk


@pytest.mark.parametrize("seed", range(50))
def test_what_was_synced_comes_back_and_small_files_are_never_torn(seed: int) -> None:
    disk = crashed(seed)
    content = disk.read("d/synced")
    assert content is not None
    assert content[:1000] == b"s" * 1000
    assert set(content[1000:]) <= set(b"u\0")
    assert disk.read("d/small") == b"old"


def test_all_kinds_of_loss_happen() -> None:
    tails = [len(crashed(seed).read("d/synced") or b"") - 1000 for seed in range(50)]
    assert min(tails) == 0
    assert max(tails) == 3000
    assert any(0 < tail < 3000 for tail in tails)
    assert {crashed(seed).read("d/never") is None for seed in range(50)} == {True, False}
    assert any(b"\0" in (crashed(seed).read("d/synced") or b"") for seed in range(50))


def test_the_same_seed_loses_the_same() -> None:
    for seed in range(10):
        one, two = crashed(seed), crashed(seed)
        assert [(name, one.read(f"d/{name}")) for name in one.list("d")] == [
            (name, two.read(f"d/{name}")) for name in two.list("d")
        ]


def test_an_unsynced_truncation_may_be_lost_together_with_what_followed() -> None:
    seen = set()
    for seed in range(40):
        disk = SimulatedDisk()
        disk.make_directory("d")
        file = disk.open("d/f", create=True)
        file.append(b"aaaa")
        disk.sync([file])
        file.truncate(2)
        file.append(b"b")
        disk.crash(Random(seed))
        seen.add(disk.read("d/f"))
    assert seen >= {b"aaaa", b"aa", b"aab"}


def test_a_killed_process_loses_nothing() -> None:
    disk = SimulatedDisk()
    disk.make_directory("d")
    disk.open("d/f", create=True).append(b"x")
    disk.restart()
    assert disk.read("d/f") == b"x"


def test_a_full_disk_and_a_failing_call_say_so() -> None:
    disk = SimulatedDisk(capacity_bytes=5)
    disk.make_directory("d")
    file = disk.open("d/f", create=True)
    file.append(b"12345")
    with pytest.raises(StorageError) as caught:
        file.append(b"6")
    assert (caught.value.is_full, file.size) == (True, 5)
    file.truncate(0)
    file.append(b"again")
    disk.fault = lambda call, path: "broken" if call == "sync" and path == "d/f" else None
    with pytest.raises(StorageError, match="sync d/f: broken"):
        disk.sync([file])


def test_a_read_only_disk_gives_what_it_has_and_takes_nothing() -> None:
    disk = SimulatedDisk()
    disk.make_directory("d")
    disk.write("d/f", b"kept")
    disk.is_read_only = True
    file = disk.open("d/f")
    for change in (
        lambda: file.append(b"x"),
        lambda: file.truncate(0),
        lambda: disk.write("d/f", b"x"),
        lambda: disk.open("d/g", create=True),
        lambda: disk.rename("d/f", "d/g"),
        lambda: disk.remove("d/f"),
        lambda: disk.make_directory("e"),
        lambda: disk.lock("d"),
    ):
        with pytest.raises(StorageError, match="Read-only file system"):
            change()
    assert disk.read("d/f") == b"kept"


def test_small_files_for_which_there_is_no_room_leave_nothing_behind() -> None:
    disk = SimulatedDisk(capacity_bytes=10)
    disk.make_directory("d")
    with pytest.raises(StorageError) as caught:
        replace_all(disk, [("d/a", b"12345678"), ("d/b", b"12345678")])
    assert caught.value.is_full
    assert (disk.list("d"), disk.used_bytes) == ([], 0)


def test_a_sync_covers_the_bytes_that_were_written_before_it_began() -> None:
    for seed in range(40):
        disk = SimulatedDisk()
        disk.make_directory("/d")
        file = disk.open("/d/f", create=True)
        file.append(b"before")
        pending = disk.begin_sync([file])
        file.append(b"after")
        disk.finish_sync(pending)
        disk.crash(Random(seed))
        assert (disk.read("/d/f") or b"").startswith(b"before")
        if disk.read("/d/f") == b"before":
            return
    raise AssertionError("no crash dropped the bytes written after the sync began")


def test_a_sync_that_began_before_a_truncation_vouches_for_no_byte_written_since() -> None:
    fates = set()
    for seed in range(40):
        disk = SimulatedDisk()
        disk.make_directory("/d")
        file = disk.open("/d/f", create=True)
        disk.sync([file])
        file.append(b"old")
        pending = disk.begin_sync([file])
        file.truncate(0)
        file.append(b"new")
        disk.finish_sync(pending)
        disk.crash(Random(seed))
        fates.add(disk.read("/d/f"))
    assert b"" in fates
    assert b"new" in fates


def test_an_older_image_of_a_disk_comes_back_whole_and_a_lost_disk_comes_back_empty() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    disk.write("/d/f", b"older")
    image = disk.image()
    disk.write("/d/f", b"newer")
    disk.write("/d/g", b"newer")
    disk.restore(image)
    assert (disk.read("/d/f"), disk.list("/d")) == (b"older", ["f"])
    disk.crash(Random(1))
    assert disk.read("/d/f") == b"older"
    disk.wipe()
    assert (disk.read("/d/f"), disk.list("/d"), disk.used_bytes) == (None, [], 0)
