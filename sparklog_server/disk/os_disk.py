"""The door onto the real file system: positioned writes, lazily opened files under a bound, group sync,
and the lock of a data directory.

The loop appends and reads while one sync thread per log directory calls `sync`; the lock of this module
guards only what they share: the table of open descriptors, so that none is closed between being looked up
and being duplicated for a sync.
"""

import contextlib
import os
import shutil
import stat
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock, get_ident
from typing import TypeVar

from .door import Buffer, DirectoryInUse, DiskFile, OutOfDescriptors, StorageError
from .failures import OUT_OF_DESCRIPTORS, Storage, storage_error, unless_gone
from .syscalls import sync_descriptor, syncfs, take_lock

OPEN_FILES_MAX = 512
SYNC_ONE_BY_ONE_MAX = 32  # above it one syncfs is cheaper: 500 files take 3–7 ms instead of 73 ms
LOCK_NAME = ".lock"
ASIDE_SUFFIX = ".tmp"
_WAIT_FOR_DESCRIPTOR_S = 0.02
_CLOSED = -1
_Made = TypeVar("_Made")


class OsFile:
    """A file of the operating system, its descriptor opened on need.

    Invariants: only `[0, size)` counts, even if a failed write left bytes behind it; a pinned file keeps
    its descriptor regardless of the bound on open files; the descriptor of a closed file goes with the
    last `release`, or to make way, and is never opened again. Other threads than the loop's may read it;
    what they opened is theirs alone.
    """

    __slots__ = (
        "__weakref__",
        "_disk",
        "_fd",
        "_has_new_name",
        "_is_of_job",
        "_place",
        "_retained",
        "_seen_size",
        "_was_read",
        "is_closed",
        "is_pinned",
        "path",
        "size",
    )

    def __init__(
        self, disk: "OsDisk", path: str, size: int, *, has_new_name: bool = False, place: str | None = None
    ) -> None:
        self.path = path
        self.size = size
        self.is_closed = False
        self.is_pinned = False
        self._disk = disk
        self._fd = _CLOSED
        self._has_new_name = has_new_name
        self._is_of_job = not disk.is_loop
        self._place = place
        self._retained = 0
        self._seen_size = size
        self._was_read = False

    def append(self, data: Buffer) -> int:
        """Write `data` at the end, whole, and return the position where it begins; on failure the file is
        cut back to where it was.
        """
        position = self.size
        fd = self._fd
        try:
            written = os.pwrite(fd if fd >= 0 else self.fileno(), data, position)
            if written != len(data):
                self._write_rest(data, written)
        except OSError as error:
            raise storage_error(self.path, "append", error, is_undone=self._is_cut_back()) from error
        self.size = position + len(data)
        return position

    def _is_cut_back(self) -> bool:
        """Cut off what a failed write left; whether that worked."""
        try:
            os.ftruncate(self.fileno(), self.size)
        except (OSError, StorageError):
            return False
        return True

    def _write_rest(self, data: Buffer, written: int) -> None:
        """Linux writes at most 2 GiB - 4 KiB at once, and less where the space ends: the next call then
        names the reason.
        """
        rest = memoryview(data)
        while written < len(rest):
            written += os.pwrite(self.fileno(), rest[written:], self.size + written)

    def pread(self, position: int, length: int) -> bytes:
        """The bytes `[position, position + length)`, fewer at the end of the file."""
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        try:
            if self._is_of_job or self._disk.is_loop:
                return os.pread(self.fileno(), length, position)
            fd = self._disk.borrow_descriptor(self)
            try:
                return os.pread(fd, length, position)
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_error(self.path, "read", error) from error

    def fileno(self) -> int:
        """The open descriptor, valid until control returns to the loop; opened again if it was taken away."""
        self._was_read = True
        return self._fd if self._fd >= 0 else self._disk.open_descriptor(self)

    def borrow(self) -> int:
        """A descriptor for one call of another thread, which closes it. Raises StorageError."""
        return self._disk.borrow_descriptor(self)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, which must not exceed what it has."""
        assert size <= self.size, self.path
        with Storage(self.path, "truncate"):
            os.ftruncate(self.fileno(), size)
        self.size = size

    def pin(self) -> None:
        """Open it now and keep it open until `close`, since its name is about to change. Raises
        StorageError.
        """
        self.fileno()
        self.is_pinned = True

    def retain(self) -> None:
        """Keep the file readable after `close`, until the `release` that belongs to this call."""
        self._retained += 1

    def release(self) -> None:
        """The reader that called `retain` is done; the last one closes a file that its owner has closed."""
        self._retained -= 1
        assert self._retained >= 0, self.path
        if self.is_closed and not self._retained:
            self._disk.take_descriptor(self)

    def close(self) -> None:
        """The owner is done with the file: it closes at once, or with the last `release`."""
        if self._retained and self._fd < 0 and not self.is_closed:
            # Its name may soon be another file's. A slice of a file that cannot be opened now fails when it
            # is sent.
            with contextlib.suppress(StorageError):
                self.fileno()
        self.is_closed = True
        if not self._retained:
            self._disk.take_descriptor(self)
        elif self._fd >= 0:
            self._disk.leave_descriptor(self)

    def __del__(self) -> None:
        fd, self._fd = self._fd, _CLOSED
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


class OsDisk:
    """The file system of this machine, with at most `open_files_max` descriptors of files, up to half of
    them of closed ones that are read.

    Only the thread that made it, the loop's, opens descriptors under this bound and takes them away: one
    that a job of another thread has opened could go between being looked up and being used, and its number
    name another file by then. So jobs must drop what they open. Invariant: `_open` has one entry per file
    that holds a descriptor of the loop's, in the order of a clock hand: who was used since the hand last
    passed stays.
    """

    def __init__(self, *, open_files_max: int = OPEN_FILES_MAX, is_read_only: bool = False) -> None:
        """`is_read_only` is for tools that look at files which they may not, or must not, change."""
        assert open_files_max > 0
        self._is_read_only = is_read_only
        self._open_files_max = open_files_max
        self._open: deque[Callable[[], OsFile | None]] = deque()
        self._lingering: dict[OsFile, None] = {}  # closed and still read, in the order of closing
        self._guard = Lock()
        self._loop_thread = get_ident()
        self._locks: dict[str, int] = {}
        self._replaced_count = 0

    @property
    def is_loop(self) -> bool:
        """Whether this is the loop's thread."""
        return get_ident() == self._loop_thread

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for appending and reading; with `create`, a missing file is made empty."""
        with Storage(path, "open"):
            try:
                return OsFile(self, path, os.stat(path).st_size)  # noqa: PTH116 (thousands of times at a start: Path takes most of it)
            except FileNotFoundError:
                if not create:
                    raise
        file = OsFile(self, path, 0, has_new_name=True)
        self.open_descriptor(file, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        return file

    def open_descriptor(self, file: OsFile, flags: int | None = None) -> int:
        """Give `file` a descriptor, and take one away from a file that was not used lately if there are
        too many.
        """
        fd = self._with_descriptor(lambda: self._opened(file, flags))
        if not self.is_loop:
            file._fd = fd
            return fd
        with self._guard:
            file._fd = fd
            self._open.append(weakref.ref(file))
            self._take_away(max(1, self._open_files_max - len(self._lingering)))
        return fd

    def borrow_descriptor(self, file: OsFile) -> int:
        """A descriptor of a file of the loop's for one call of another thread, which closes it."""

        def borrowed() -> int:
            with self._guard:
                return os.dup(file._fd) if file._fd >= 0 else self._opened(file)

        return self._with_descriptor(borrowed)

    def leave_descriptor(self, file: OsFile) -> None:
        """Let a closed file be read on; of too many, the one closed first loses its descriptor, and its
        readers their connections.
        """
        self._lingering[file] = None
        if len(self._lingering) > max(1, self._open_files_max // 2):
            self.take_descriptor(next(iter(self._lingering)))

    def take_descriptor(self, file: OsFile) -> None:
        """Close the descriptor of a file that has no reader left; no other thread is duplicating it
        meanwhile.
        """
        with self._guard:
            self._lingering.pop(file, None)
            fd, file._fd = file._fd, _CLOSED
        if fd >= 0:
            os.close(fd)

    def _with_descriptor(self, call: Callable[[], _Made]) -> _Made:
        """Make a call that takes a descriptor. Where there is none, the loop takes one from idle files,
        and another thread waits for one.

        Raises what the call raises; on the loop, where no file is idle, also OutOfDescriptors or OSError
        for want of a descriptor.
        """
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                refusal: OSError | OutOfDescriptors = error
            except OutOfDescriptors as error:
                refusal = error
            if self.is_loop:
                if not self._give_back_idle():
                    raise refusal
            else:
                time.sleep(_WAIT_FOR_DESCRIPTOR_S)

    def _give_back_idle(self) -> bool:
        """Close half of the descriptors of files, those not used lately first; whether there was one to
        close.
        """
        with self._guard:
            count = len(self._open)
            self._take_away(count // 2)
            return len(self._open) < count

    def _opened(self, file: OsFile, flags: int | None = None) -> int:
        if file.is_closed:
            # Its path may name another file by now: a topic was deleted, and another has its name.
            raise StorageError(file.path, "open", "the file was closed meanwhile")
        if flags is None:
            flags = os.O_RDONLY if self._is_read_only else os.O_RDWR
        with Storage(file.path, "open"):
            return os.open(file.path, flags | os.O_CLOEXEC, 0o644)

    def _take_away(self, count_max: int) -> None:
        for _ in range(2 * len(self._open)):
            if len(self._open) <= count_max:
                return
            reference = self._open.popleft()
            file = reference()
            if file is None or file.is_closed or file.is_pinned or file._fd < 0:
                continue
            if file._was_read or file.size != file._seen_size:
                file._was_read = False
                file._seen_size = file.size
                self._open.append(reference)
                continue
            fd, file._fd = file._fd, _CLOSED
            os.close(fd)

    def read(self, path: str) -> bytes | None:
        """A small file, whole; None if there is none."""
        with Storage(path, "read"):
            try:
                with self._with_descriptor(lambda: open(path, "rb", buffering=0)) as file:  # noqa: PTH123
                    return file.readall()
            except FileNotFoundError:
                return None

    def replace(self, path: str, content: bytes) -> OsFile:
        """Write a small file aside; the `sync` that gets the returned file makes it durable and puts it in
        place of `path`.
        """
        # A name of its own: an earlier one for the same path may still be on its way into place.
        self._replaced_count += 1
        aside = f"{path}.{self._replaced_count}{ASIDE_SUFFIX}"
        file = OsFile(self, aside, 0, place=path)
        self.open_descriptor(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            file.append(content)
        except StorageError:
            _remove_aside(aside)
            raise
        if not self.is_loop:
            self.take_descriptor(
                file
            )  # a job may write many of them, and none falls under the bound on open files
        return file

    def write(self, path: str, content: bytes) -> None:
        """`replace` and `sync` at once; on a full disk nothing is left behind. Blocks."""
        file = self.replace(path, content)
        try:
            self.sync([file])
        except StorageError:
            if file._place is not None:
                _remove_aside(file.path)
            raise

    def rename(self, old: str, new: str, *, is_lasting: bool = True) -> None:
        """Rename a file or directory and, if it is to last, sync the parent directory."""
        if is_lasting:
            self.rename_all([(old, new)])
            return
        with Storage(old, "rename"):
            os.rename(old, new)  # noqa: PTH104 (the words of the system call)

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename (from, to) in this order and sync the parent directories once: a crash before it returns
        may undo any of them.
        """
        for old, new in moves:
            with Storage(old, "rename"):
                os.rename(old, new)  # noqa: PTH104 (the words of the system call)
        for parent in dict.fromkeys(_parent(new) for _, new in moves):
            self._sync_directory(parent)

    def size(self, path: str) -> int:
        """How many bytes a file holds; 0 if there is none of that name."""
        with Storage(path, "stat"):
            try:
                found = os.stat(path)  # noqa: PTH116 (as in `open`)
            except (FileNotFoundError, NotADirectoryError):
                return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def remove(self, *paths: str) -> None:
        """Remove files, or directories with all they hold, for good; nothing happens to what is missing."""
        parents: dict[str, None] = {}
        for path in paths:
            target = Path(path)
            with Storage(path, "remove"), contextlib.suppress(FileNotFoundError):
                if target.is_dir() and not target.is_symlink():
                    self._with_descriptor(partial(shutil.rmtree, target))
                    parents = {one: None for one in parents if one != path and not one.startswith(f"{path}/")}
                else:
                    target.unlink()
                parents[_parent(path)] = None
        for parent in parents:
            self._sync_directory(parent)

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it is missing, or none."""
        with Storage(directory, "list"):
            try:
                return sorted(self._with_descriptor(lambda: os.listdir(directory)))  # noqa: PTH208
            except (FileNotFoundError, NotADirectoryError):
                return []

    def room(self, directory: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system that a directory lies in; usable by us, who are not the
        superuser.
        """
        with Storage(directory, "statvfs"):
            found = os.statvfs(directory)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def make_directory(self, *paths: str) -> None:
        """Make directories and their parents, and make their entries durable."""
        parents: dict[str, None] = {}
        for path in paths:
            missing = [path]
            while missing:
                directory = missing[-1]
                with Storage(directory, "mkdir"):
                    try:
                        os.mkdir(directory)  # noqa: PTH102 (a thousand at a time: Path takes as long as the call)
                    except FileNotFoundError:
                        if not (parent := _parent(directory)):
                            raise
                        missing.append(parent)
                        continue
                    except FileExistsError:  # perhaps made by a call whose sync failed
                        if not Path(directory).is_dir():
                            raise
                parents[_parent(directory)] = None
                missing.pop()
        for parent in parents:
            self._sync_directory(parent)

    def sync(self, files: Sequence[DiskFile]) -> None:
        """Return once what was appended to these files before the call survives a power cut. Blocks: call
        it beside the loop.
        """
        own = [file for file in files if isinstance(file, OsFile)]
        assert len(own) == len(files), "a file of another disk"
        is_whole = len(own) > SYNC_ONE_BY_ONE_MAX and self._sync_file_system(
            [_parent(file.path) for file in own]
        )
        if not is_whole:
            for file in own:
                self._sync_content(file)
        parents: dict[str, None] = {}
        for file in own:
            if file._place is not None:
                self._put_in_place(file)
                parents[_parent(file.path)] = None
            elif file._has_new_name and not is_whole:
                parents[_parent(file.path)] = None
        if len(parents) <= SYNC_ONE_BY_ONE_MAX or not self._sync_file_system(list(parents)):
            for parent in parents:
                with unless_gone(parent):
                    self._sync_directory(parent)
        for file in own:
            file._has_new_name = False

    def _sync_content(self, file: OsFile) -> None:
        def duplicated() -> int:
            with self._guard:
                return os.dup(file._fd) if file._fd >= 0 else os.open(file.path, os.O_RDWR | os.O_CLOEXEC)

        with unless_gone(file.path), Storage(file.path, "sync"):
            fd = self._with_descriptor(duplicated)
            try:
                sync_descriptor(fd)
            finally:
                os.close(fd)

    def _put_in_place(self, file: OsFile) -> None:
        assert file._place is not None
        with unless_gone(file.path), Storage(file.path, "rename"):
            os.rename(file.path, file._place)  # noqa: PTH104
            file.path, file._place = file._place, None

    def _sync_file_system(self, directories: Sequence[str]) -> bool:
        """Sync the one file system that all of these lie on; False where that cannot be done.

        It fails for a file of another program too, for which a full disk had no room. Our own files keep
        their errors, so the caller, which syncs each of them then, meets those and no others.
        """
        directory = next((directory for directory in directories if Path(directory).is_dir()), None)
        if syncfs is None or directory is None:
            return False
        with Storage(directory, "sync"):
            fd = self._directory_descriptor(directory)
            try:
                return syncfs(fd) == 0
            finally:
                os.close(fd)

    def _directory_descriptor(self, directory: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        return self._with_descriptor(lambda: os.open(directory, flags))

    def _sync_directory(self, directory: str) -> None:
        with Storage(directory, "sync"):
            fd = self._directory_descriptor(directory or ".")
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def lock(self, directory: str) -> None:
        """Hold the directory for this process until it ends or `unlock`: an exclusive lock on its `.lock`
        file, as Kafka takes.

        A read-only disk makes no such file: where there is none, no broker has ever held the directory,
        and nothing is locked.
        """
        if directory in self._locks:
            raise DirectoryInUse(directory)
        path = f"{directory}/{LOCK_NAME}"
        if self._is_read_only and not Path(path).exists():
            return
        with Storage(directory, "lock"):
            try:
                fd = take_lock(path, is_read_only=self._is_read_only)
            except BlockingIOError as error:
                raise DirectoryInUse(directory) from error
        self._locks[directory] = fd

    def unlock(self, directory: str) -> None:
        """Let the directory go; nothing happens if it is not held."""
        if (fd := self._locks.pop(directory, None)) is not None:
            os.close(fd)


def _remove_aside(path: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).unlink()


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else "")
