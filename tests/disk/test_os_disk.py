"""The disk interface over the real file system."""

import contextlib
import errno
import os
import resource
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest

from sparklog_server.disk import os_disk
from sparklog_server.disk.checkpoint import (
    CheckpointCorrupt,
    parse_offsets,
    parse_properties,
    render_offsets,
    render_properties,
)
from sparklog_server.disk.door import DirectoryInUse, StorageError, replace_all
from sparklog_server.disk.os_disk import SYNC_ONE_BY_ONE_MAX, OsDisk


def descriptors(directory: Path) -> int:
    """The number of descriptors of this process for files below a directory; those of other tests' threads
    vary.
    """
    count = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith(f"{directory}/")  # noqa: PTH115
    return count


def test_what_is_appended_is_read_back_and_truncated(tmp_path: Path) -> None:
    file = OsDisk().open(f"{tmp_path}/f", create=True)
    assert [file.append(b"abc"), file.append(memoryview(b"defg")), file.append(bytearray())] == [0, 3, 7]
    assert (file.size, file.pread(2, 3), file.pread(5, 100), file.pread(9, 1)) == (7, b"cde", b"fg", b"")
    file.truncate(4)
    assert (file.append(b"X"), file.pread(0, 10)) == (4, b"abcdX")
    assert OsDisk().open(f"{tmp_path}/f").size == 5


def test_a_missing_file_is_an_error_to_open_and_none_to_read(tmp_path: Path) -> None:
    disk = OsDisk()
    with pytest.raises(StorageError, match="No such file"):
        disk.open(f"{tmp_path}/missing")
    assert disk.read(f"{tmp_path}/missing") is None
    assert disk.list(f"{tmp_path}/missing") == []
    disk.remove(f"{tmp_path}/missing")


def test_open_descriptors_are_bounded_and_files_answer_all_the_same(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=8)
    files = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(100)]
    random = Random(1)
    for _ in range(1000):
        file = random.choice(files)
        file.append(file.path.encode())
        assert file.pread(0, len(file.path)) == file.path.encode()
        assert descriptors(tmp_path) <= 8
    disk.sync(files)
    assert [disk.open(file.path).size for file in files] == [file.size for file in files]


def test_a_closed_file_keeps_its_descriptor_until_its_last_reader_has_released_it(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=1)
    held = disk.open(f"{tmp_path}/held", create=True)
    held.append(b"still here")
    held.retain()
    held.retain()
    held.close()
    disk.remove(f"{tmp_path}/held")
    others = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(5)]
    held.release()
    assert held.pread(0, 20) == b"still here"
    held.release()
    for other in others:
        other.close()
    assert descriptors(tmp_path) == 0


def test_closed_files_that_readers_hold_count_towards_the_bound_and_half_of_it_is_theirs(
    tmp_path: Path,
) -> None:
    disk = OsDisk(open_files_max=8)
    live = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(8)]
    held = [disk.open(f"{tmp_path}/held-{index}", create=True) for index in range(20)]
    for file in held:
        file.append(b"still here")
        file.retain()
        file.close()
        disk.remove(file.path)
        for other in live:
            other.append(b"x")
            assert descriptors(tmp_path) <= 8
    assert [file.pread(0, 20) for file in held[-4:]] == [b"still here"] * 4
    with pytest.raises(StorageError, match="closed"):
        held[0].pread(0, 20)
    for file in held:
        file.release()
    for other in live:
        assert other.pread(0, 30) == b"x" * 20
    assert descriptors(tmp_path) == 8


def test_a_directory_whose_parent_could_not_be_synced_is_made_durable_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        if not synced:
            synced.append("")
            raise OSError(errno.ENOSPC, "No space left on device")
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", sync)
    disk = OsDisk()
    with pytest.raises(StorageError):
        disk.make_directory(f"{tmp_path}/made")
    disk.make_directory(f"{tmp_path}/made")
    assert synced == ["", str(tmp_path)]


def test_a_file_without_a_reader_is_closed_at_once(tmp_path: Path) -> None:
    disk = OsDisk()
    file = disk.open(f"{tmp_path}/file", create=True)
    assert descriptors(tmp_path) == 1
    file.close()
    assert descriptors(tmp_path) == 0
    with pytest.raises(StorageError, match="closed"):
        file.fileno()


def test_a_closed_file_whose_descriptor_was_taken_away_stays_readable_under_a_new_name(
    tmp_path: Path,
) -> None:
    disk = OsDisk(open_files_max=1)
    held = disk.open(f"{tmp_path}/held", create=True)
    held.append(b"still here")
    others = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(5)]
    for other in others:
        other.append(b"x")  # takes the descriptor of `held`
    held.retain()
    held.close()
    disk.rename(f"{tmp_path}/held", f"{tmp_path}/held.deleted")
    assert held.pread(0, 20) == b"still here"
    held.release()


def test_a_pinned_file_keeps_its_descriptor_through_a_new_name(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=1)
    pinned = disk.open(f"{tmp_path}/pinned", create=True)
    pinned.append(b"still here")
    pinned.pin()
    disk.rename(f"{tmp_path}/pinned", f"{tmp_path}/renamed")
    others = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(5)]
    assert (pinned.pread(0, 20), len(others)) == (b"still here", 5)
    before = descriptors(tmp_path)
    pinned.close()
    assert descriptors(tmp_path) == before - 1


def test_a_replaced_file_changes_only_when_it_is_synced(tmp_path: Path) -> None:
    disk = OsDisk()
    path = f"{tmp_path}/small"
    disk.write(path, b"old")
    pending = disk.replace(path, b"new")
    assert disk.read(path) == b"old"
    disk.sync([pending])
    assert disk.read(path) == b"new"
    assert disk.list(str(tmp_path)) == ["small"]


@pytest.mark.parametrize("count", [2, 50])
def test_what_was_removed_while_it_was_to_be_synced_is_no_error(tmp_path: Path, count: int) -> None:
    disk = OsDisk(open_files_max=1)
    disk.make_directory(f"{tmp_path}/doomed")
    disk.make_directory(f"{tmp_path}/kept")
    files = [
        disk.open(f"{tmp_path}/{'doomed' if index % 2 else 'kept'}/{index}", create=True)
        for index in range(count)
    ]
    files += [disk.replace(f"{tmp_path}/doomed/small", b"x"), disk.replace(f"{tmp_path}/kept/small", b"x")]
    disk.rename(f"{tmp_path}/doomed", f"{tmp_path}/gone")
    disk.sync(files)
    assert "small" in disk.list(f"{tmp_path}/kept")


def test_small_files_that_a_job_writes_hold_no_descriptor_until_they_are_synced(tmp_path: Path) -> None:
    disk = OsDisk()
    with ThreadPoolExecutor(1) as job:
        files = [job.submit(disk.replace, f"{tmp_path}/{index}", b"new").result() for index in range(40)]
        assert descriptors(tmp_path) == 0
        job.submit(disk.sync, files[:8]).result()
        job.submit(disk.sync, files[8:]).result()
    assert [disk.read(f"{tmp_path}/{index}") for index in range(40)] == [b"new"] * 40


def test_without_a_descriptor_left_idle_files_give_theirs_back_and_a_job_waits_for_one(
    tmp_path: Path,
) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        alone.submit(starve, f"{tmp_path}").result()


def starve(directory: str) -> None:
    """Runs in its own process, so that no other test's thread takes descriptors."""
    disk = OsDisk()
    files = [disk.open(f"{directory}/{index}", create=True) for index in range(8)]
    disk.write(f"{directory}/small", b"content")
    with ThreadPoolExecutor(1) as job:
        highest = job.submit(lambda: max(int(one.name) for one in Path("/proc/self/fd").iterdir())).result()
        held = [os.dup(0) for _ in range(highest + 1)]
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, before[1]))
        try:
            waiting = job.submit(disk.read, f"{directory}/small")
            with pytest.raises(TimeoutError):
                waiting.result(0.05)
            assert disk.open(f"{directory}/new", create=True).size == 0
            assert waiting.result(10) == b"content"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert all(file.size == 0 for file in files)


def test_two_replacements_under_way_at_once_each_take_their_place(tmp_path: Path) -> None:
    disk = OsDisk()
    first = disk.replace(f"{tmp_path}/small", b"first")
    second = disk.replace(f"{tmp_path}/small", b"second")
    disk.sync([first])
    assert disk.read(f"{tmp_path}/small") == b"first"
    disk.sync([second])
    assert disk.read(f"{tmp_path}/small") == b"second"


def test_many_files_are_synced_at_once(tmp_path: Path) -> None:
    disk = OsDisk()
    files = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(40)]
    pending = [disk.replace(f"{tmp_path}/small-{index}", b"x") for index in range(5)]
    for file in files:
        file.append(b"content")
    disk.sync([*files, *pending])
    assert len(disk.list(str(tmp_path))) == 45


def test_replacements_in_many_directories_take_their_places_whichever_directories_are_gone(
    tmp_path: Path,
) -> None:
    disk = OsDisk()
    directories = [f"{tmp_path}/{index:02d}" for index in range(80)]
    for directory in directories:
        disk.make_directory(directory)
    pending = [disk.replace(f"{directory}/small", b"x") for directory in directories]
    for directory in directories[:40]:
        disk.remove(directory)
    disk.sync([*pending, disk.open(f"{directories[-1]}/new", create=True)])
    assert [disk.read(f"{directory}/small") for directory in directories] == [None] * 40 + [b"x"] * 40
    assert disk.list(directories[-1]) == ["new", "small"]


def test_syncing_beside_appends_never_meets_a_descriptor_that_was_taken_away(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=2)
    files = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(10)]
    errors: list[BaseException] = []

    def syncing() -> None:
        try:
            for _ in range(20):
                disk.sync(files)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=syncing)
    thread.start()
    for index in range(2000):
        files[index % 10].append(b"x" * 10)
    thread.join()
    assert errors == []
    assert sum(file.size for file in files) == 20_000


def test_a_write_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk().open(f"{tmp_path}/f", create=True)
    file.append(b"whole")
    real = os.pwrite

    def half_then_full(fd: int, data: bytes, position: int) -> int:
        if position > 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, memoryview(data)[: len(data) // 2], position)

    monkeypatch.setattr(os, "pwrite", half_then_full)
    with pytest.raises(StorageError, match="No space left") as caught:
        file.append(b"a batch")
    assert caught.value.is_full
    monkeypatch.undo()
    assert (file.size, Path(file.path).read_bytes()) == (5, b"whole")
    assert file.append(b"!") == 5


def test_a_directory_held_by_another_process_is_refused(tmp_path: Path) -> None:
    script = (
        "import sys; from sparklog_server.disk.os_disk import OsDisk; disk = OsDisk(); "
        "disk.lock(sys.argv[1]);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryInUse, match=str(tmp_path)):
            OsDisk().lock(str(tmp_path))
        child.communicate(b"")
    disk = OsDisk()
    disk.lock(str(tmp_path))
    with pytest.raises(DirectoryInUse):
        OsDisk().lock(str(tmp_path))
    disk.unlock(str(tmp_path))
    OsDisk().lock(str(tmp_path))


def test_directories_are_made_renamed_and_removed_whole(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.make_directory(f"{tmp_path}/a/b/c")
    disk.write(f"{tmp_path}/a/b/c/f", b"x")
    disk.rename(f"{tmp_path}/a/b", f"{tmp_path}/z")
    assert disk.read(f"{tmp_path}/z/c/f") == b"x"
    disk.remove(f"{tmp_path}/z")
    assert disk.list(str(tmp_path)) == ["a"]


def test_checkpoints_and_properties_are_read_as_they_were_written() -> None:
    from sparklog.model import Offset, TopicPartition

    offsets = {TopicPartition("b", 1): Offset(5), TopicPartition("a", 0): Offset(1 << 40)}
    assert render_offsets(offsets) == b"0\n2\na 0 1099511627776\nb 1 5\n"
    assert parse_offsets(render_offsets(offsets)) == offsets
    assert parse_properties(b"# made by hand\n\n" + render_properties({"node.id": "1"})) == {"node.id": "1"}
    for wrong in (b"", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\nx\n"):
        with pytest.raises(CheckpointCorrupt):
            parse_offsets(wrong)


def test_a_closed_file_that_gave_up_its_descriptor_is_not_taken_for_another_of_its_name(
    tmp_path: Path,
) -> None:
    disk = OsDisk(open_files_max=1)
    (tmp_path / "t-0").mkdir()
    old = disk.open(f"{tmp_path}/t-0/log", create=True)
    old.append(b"of the old topic")
    for index in range(4):
        disk.open(f"{tmp_path}/{index}", create=True).append(b"x")  # takes the descriptor of `old`
    old.close()
    disk.rename(f"{tmp_path}/t-0", f"{tmp_path}/t-0.delete")
    (tmp_path / "t-0").mkdir()
    disk.open(f"{tmp_path}/t-0/log", create=True).append(b"of the new topic")
    with pytest.raises(StorageError, match="closed"):
        old.pread(0, 16)


def test_a_descriptor_that_a_job_opened_is_not_taken_away_before_the_job_is_done_with_it(
    tmp_path: Path,
) -> None:
    disk = OsDisk(open_files_max=1)
    disk.write(f"{tmp_path}/log", b"content")
    with ThreadPoolExecutor(1) as job:
        file = job.submit(disk.open, f"{tmp_path}/log").result()
        assert job.submit(file.pread, 0, 1).result() == b"c"
        others = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(5)]
        disk.rename(f"{tmp_path}/log", f"{tmp_path}/log.deleted")
        assert job.submit(file.pread, 0, 7).result() == b"content"
        before = descriptors(tmp_path)
        job.submit(file.close).result()
    assert (descriptors(tmp_path) - before, len(others)) == (-1, 5)


def test_a_job_that_reads_a_file_of_the_loop_never_reads_another_under_its_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(open_files_max=1)
    read = disk.open(f"{tmp_path}/read", create=True)
    read.append(b"right")
    is_about_to_read, may_read = threading.Event(), threading.Event()
    real = os.pread

    def late(fd: int, length: int, position: int) -> bytes:
        is_about_to_read.set()
        assert may_read.wait(10)
        return real(fd, length, position)

    monkeypatch.setattr(os, "pread", late)
    with ThreadPoolExecutor(1) as job:
        reading = job.submit(read.pread, 0, 5)
        assert is_about_to_read.wait(10)
        others = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(3)]
        for other in others:
            other.append(b"wrong")
        may_read.set()
        assert reading.result() == b"right"
    read.close()
    assert read.pread(0, 0) == b""


def test_a_job_is_refused_a_closed_file_whose_descriptor_is_gone(tmp_path: Path) -> None:
    disk = OsDisk(open_files_max=1)
    old = disk.open(f"{tmp_path}/old", create=True)
    old.append(b"x")
    others = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(3)]
    for other in others:
        other.append(b"x")
    old.close()
    with ThreadPoolExecutor(1) as job, pytest.raises(StorageError, match="closed"):
        job.submit(old.pread, 0, 1).result()


def no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_that_does_not_let_a_half_written_batch_be_cut_off_again_is_no_full_disk_but_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk().open(f"{tmp_path}/f", create=True)
    monkeypatch.setattr(os, "pwrite", no_space)
    monkeypatch.setattr(os, "ftruncate", no_space)
    with pytest.raises(StorageError, match="No space left") as caught:
        file.append(b"a batch")
    assert not caught.value.is_full


def test_a_sync_that_finds_no_space_is_a_failed_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk()
    file = disk.open(f"{tmp_path}/f", create=True)
    file.append(b"x")
    monkeypatch.setattr(os, "fdatasync", no_space)
    with pytest.raises(StorageError, match="No space left") as caught:
        disk.sync([file])
    assert not caught.value.is_full
    assert "make room" in caught.value.remedy


def test_small_files_for_which_there_is_no_room_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    disk.write(f"{tmp_path}/a", b"old")
    real = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, at: no_space() if data == b"second" else real(fd, data, at)
    )
    with pytest.raises(StorageError) as caught:
        replace_all(disk, [(f"{tmp_path}/a", b"first"), (f"{tmp_path}/b", b"second")])
    assert caught.value.is_full
    with pytest.raises(StorageError):
        disk.write(f"{tmp_path}/a", b"second")
    monkeypatch.setattr(os, "rename", no_space)
    with pytest.raises(StorageError):
        disk.write(f"{tmp_path}/a", b"new")
    assert disk.list(str(tmp_path)) == ["a"]
    assert disk.read(f"{tmp_path}/a") == b"old"


@pytest.mark.parametrize("is_ours", [False, True])
def test_where_the_file_system_cannot_be_synced_whole_each_file_tells_its_own_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    disk = OsDisk()
    files = [disk.open(f"{tmp_path}/{index}", create=True) for index in range(SYNC_ONE_BY_ONE_MAX + 1)]
    synced: list[int] = []
    monkeypatch.setattr(os_disk, "syncfs", lambda _: -1)
    monkeypatch.setattr(os, "fdatasync", no_space if is_ours else synced.append)
    if is_ours:
        with pytest.raises(StorageError, match="No space left"):
            disk.sync(files)
    else:
        disk.sync(files)
        assert len(synced) == len(files)
