"""The port to files on the real file system: a limit on open descriptors, group sync, and the lock of a data
directory.

The loop appends and reads while one sync thread per log directory calls `sync`; see `Descriptors` for
what they share.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from functools import partial

from .descriptors import Descriptors, OsFile
from .door import DirectoryInUse, DiskFile, StorageError
from .failures import Storage, unless_gone
from .syscalls import DIRECTORY_MODE, sync_descriptor, syncfs, take_lock

OPEN_FILES_MAX = 512
SYNC_ONE_BY_ONE_MAX = 32  # for more files one syncfs is faster: 500 files take 3–7 ms instead of 73 ms
LOCK_NAME = ".lock"
ASIDE_SUFFIX = ".tmp"


class OsDisk:
    """The file system of this machine, with at most `open_files_max` descriptors of files, up to half of them
    of closed files that are still being read.

    Only the loop's thread keeps files open under this limit (see `Descriptors`): jobs must close the files
    that they open.
    """

    def __init__(
        self, *, open_files_max: int = OPEN_FILES_MAX, is_read_only: bool = False, boot_id: str = ""
    ) -> None:
        """`is_read_only` is for tools that examine files which they must not change."""
        self.boot_id = boot_id
        self._is_read_only = is_read_only
        self._descriptors = Descriptors(open_files_max, is_read_only=is_read_only)
        self._locks: dict[str, int] = {}
        self._replaced_count = 0

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for appending and reading; with `create`, a missing file is created empty."""
        with Storage(path, "open"):
            try:
                found = os.stat(path)
                _refuse_if_no_file(found.st_mode)
                return OsFile(self._descriptors, path, found.st_size)
            except FileNotFoundError:
                if not create:
                    raise
        file = OsFile(self._descriptors, path, 0, has_new_name=True)
        self._descriptors.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        return file

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None if it does not exist."""
        with Storage(path, "read"):
            try:
                with self._descriptors.retried(
                    lambda: open(path, "rb", buffering=0, opener=_open_unblocked)
                ) as file:
                    _refuse_if_no_file(os.fstat(file.fileno()).st_mode)
                    return file.readall()
            except FileNotFoundError:
                return None

    def replace(self, path: str, content: bytes) -> OsFile:
        """Write a small file under a temporary name; the `sync` of the returned file makes it durable and
        renames it to `path`.
        """
        # A unique name: an earlier file for the same path may not be renamed yet.
        self._replaced_count += 1
        aside = f"{path}.{self._replaced_count}{ASIDE_SUFFIX}"
        file = OsFile(self._descriptors, aside, 0, place=path)
        self._descriptors.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            file.append(content)
        except StorageError:
            _remove_aside(aside)
            raise
        if not self._descriptors.is_loop:
            # A job may write many of them, and the limit on open files does not cover them.
            self._descriptors.take(file)
        return file

    def write(self, path: str, content: bytes) -> None:
        """`replace` and `sync` at once; on a full disk no temporary file is left. Blocks."""
        file = self.replace(path, content)
        try:
            self.sync([file])
        except StorageError:
            if file.place is not None:
                _remove_aside(file.path)
            raise

    def rename(self, old: str, new: str, *, is_lasting: bool = True) -> None:
        """Rename a file or directory and, if it must be durable, sync the parent directory."""
        if is_lasting:
            self.rename_all([(old, new)])
            return
        with Storage(old, "rename"):
            os.rename(old, new)

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename (from, to) in this order and sync the parent directories once: a crash before it returns
        may undo any of them.
        """
        for old, new in moves:
            with Storage(old, "rename"):
                os.rename(old, new)
        for parent in dict.fromkeys(_parent(new) for _, new in moves):
            self._sync_directory(parent)

    def size(self, path: str) -> int:
        """The size of a file in bytes; 0 if it does not exist."""
        with Storage(path, "stat"):
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def remove(self, *paths: str) -> None:
        """Remove files, or directories with their content; missing paths are ignored."""
        parents: dict[str, None] = {}
        for path in paths:
            with Storage(path, "remove"), contextlib.suppress(FileNotFoundError):
                if os.path.isdir(path) and not os.path.islink(path):
                    self._descriptors.retried(partial(_remove_tree, path))
                    parents = {one: None for one in parents if one != path and not one.startswith(f"{path}/")}
                else:
                    os.unlink(path)
                parents[_parent(path)] = None
        for parent in parents:
            self._sync_directory(parent)

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it is missing, or not a directory."""
        with Storage(directory, "list"):
            try:
                return sorted(self._descriptors.retried(lambda: os.listdir(directory)))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def room(self, directory: str) -> tuple[int, int]:
        """The total and usable bytes of the file system of a directory; usable without the superuser's
        reserve.
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
                        os.mkdir(directory, DIRECTORY_MODE)
                    except FileNotFoundError:
                        if not (parent := _parent(directory)):
                            raise
                        missing.append(parent)
                        continue
                    except FileExistsError:  # perhaps created by a call whose sync failed
                        if not os.path.isdir(directory):
                            raise
                parents[_parent(directory)] = None
                missing.pop()
        for parent in parents:
            self._sync_directory(parent)

    def sync(self, files: Sequence[DiskFile]) -> None:
        """Return when the bytes appended to these files before the call survive a power cut. Blocks: call it
        outside the event loop.
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
            if file.place is not None:
                self._put_in_place(file)
                parents[_parent(file.path)] = None
            elif file.has_new_name and not is_whole:
                parents[_parent(file.path)] = None
        if len(parents) <= SYNC_ONE_BY_ONE_MAX or not self._sync_file_system(list(parents)):
            for parent in parents:
                with unless_gone(parent):
                    self._sync_directory(parent)
        for file in own:
            file.has_new_name = False

    def _sync_content(self, file: OsFile) -> None:
        with unless_gone(file.path), Storage(file.path, "sync"):
            fd = self._descriptors.duplicate_for_sync(file)
            try:
                sync_descriptor(fd)
            finally:
                os.close(fd)

    def _put_in_place(self, file: OsFile) -> None:
        assert file.place is not None
        with unless_gone(file.path), Storage(file.path, "rename"):
            os.rename(file.path, file.place)
            file.path, file.place = file.place, None

    def _sync_file_system(self, directories: Sequence[str]) -> bool:
        """Sync the file system of all these files; False if that is not possible.

        It also fails for a file of another program for which the disk had no space. The kernel keeps the
        errors per file, so the caller, which then syncs each of its files, finds only their errors.
        """
        directory = next((directory for directory in directories if os.path.isdir(directory)), None)
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
        return self._descriptors.retried(lambda: os.open(directory, flags))

    def _sync_directory(self, directory: str) -> None:
        with Storage(directory, "sync"):
            fd = self._directory_descriptor(directory or ".")
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def lock(self, directory: str) -> None:
        """Lock the directory for this process until it ends or `unlock`: an exclusive lock on its `.lock`
        file, as in Kafka.

        A read-only disk does not create the file: if it is missing, no broker has ever used the directory,
        and nothing is locked.
        """
        if directory in self._locks:
            raise DirectoryInUse(directory)
        path = f"{directory}/{LOCK_NAME}"
        if self._is_read_only and not os.path.exists(path):
            return
        with Storage(directory, "lock"):
            try:
                fd = take_lock(path, is_read_only=self._is_read_only)
            except BlockingIOError as error:
                raise DirectoryInUse(directory) from error
        self._locks[directory] = fd

    def unlock(self, directory: str) -> None:
        """Release the lock; no effect if it is not held."""
        if (fd := self._locks.pop(directory, None)) is not None:
            os.close(fd)


def _remove_tree(directory: str) -> None:
    import shutil  # imported at its only use: it imports compression modules, which a start does not need

    shutil.rmtree(directory)


def _remove_aside(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else "")


def _open_unblocked(path: str, flags: int) -> int:
    """Open a file; a pipe that has its name does not block the caller."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _refuse_if_no_file(mode: int) -> None:
    """Refuse a directory, pipe, socket or device that has the name of a file: reading it could block."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.ENXIO, "not a regular file")
