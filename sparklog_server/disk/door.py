"""The port to files: the calls of the broker to a disk, and their errors.

`os_disk` implements it on the real file system, `simulation/disk` in memory with crashes. Paths are strings
with `/`; every error of the operating system is raised as `StorageError`, so callers never catch OSError.

    open ─► append … ─┐
    replace ──────────┴─► sync ─► durable: content, name, and the directory entry

Nothing is durable before `sync` (or `write`, `rename`, `make_directory`, which sync by themselves) has
returned; a crash may keep any part of the unsynced bytes, and any of their names.
"""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class StorageError(Exception):
    """An error of the disk: the path, the call, the message of the operating system and, if known, the
    remedy.

    `is_full` marks ENOSPC and EDQUOT of calls that changed nothing: the same call may succeed once there is
    space. A failed sync is never `is_full`, because it is unknown which pages the kernel dropped.
    `is_of_path` marks that the disk works, but something else has the path, such as a directory that has the
    name of a file.
    """

    def __init__(
        self,
        path: str,
        call: str,
        reason: str,
        *,
        is_full: bool = False,
        is_of_path: bool = False,
        remedy: str = "",
    ) -> None:
        assert not remedy or remedy not in reason, "`fields` and `with_remedy` add it"
        super().__init__(f"{call} {path}: {reason}")
        self.path = path
        self.call = call
        self.reason = reason
        self.is_full = is_full
        self.is_of_path = is_of_path
        self.remedy = remedy

    @property
    def fields(self) -> dict[str, str]:
        """The reason and, if known, the remedy, as fields of a log line."""
        return {"reason": str(self)} | ({"remedy": self.remedy} if self.remedy else {})

    @property
    def with_remedy(self) -> str:
        """The reason and, if known, the remedy, as one sentence."""
        return f"{self}; {self.remedy}" if self.remedy else str(self)


class OutOfDescriptors(StorageError):
    """The process, or the system, has no descriptor left, which is not a fault of the disk. Nothing was
    changed, and the same call may succeed later.

    It counts as `is_full`, because both are retried later.
    """

    def __init__(self, path: str, call: str, reason: str) -> None:
        super().__init__(path, call, reason, is_full=True)


class DirectoryInUse(StorageError):
    """Another process holds the lock of this directory."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "lock", "the directory is in use by another process")


class DiskFile(Protocol):
    """An open file that grows at its end. `size` is its length, known without a system call."""

    path: str
    size: int

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end, and return its position; on failure the file is truncated to its
        former size.

        If the disk is full and the file cannot be truncated either, the error is not `is_full`.
        """

    def pread(self, position: int, length: int) -> bytes:
        """The bytes `[position, position + length)`, fewer at the end of the file."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes, which must not exceed its size."""

    def pin(self) -> None:
        """Open the file now and keep it open until `close`, because its name is about to change. Raises
        StorageError.
        """

    def retain(self) -> None:
        """Keep the file readable after `close`, until the matching `release`."""

    def release(self) -> None:
        """End one `retain`; the last one closes a file that its owner has closed."""

    def close(self) -> None:
        """The owner closes the file: at once, or with the last `release`."""


class Disk(Protocol):
    """A file system in which changes are durable only once they are synced."""

    @property
    def boot_id(self) -> str:
        """The boot of the machine: while it stays the same, written bytes can be read, synced or not. Empty
        where it is unknown.
        """

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for appending and reading; with `create`, a missing file is created empty."""

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None if it does not exist."""

    def replace(self, path: str, content: bytes) -> DiskFile:
        """Write a small file under a temporary name; the `sync` of the returned file makes it durable and
        renames it to `path`.

        Until then `path` keeps its former content, also after a crash.
        """

    def write(self, path: str, content: bytes) -> None:
        """`replace` and `sync` at once; on a full disk no temporary file is left. Blocks."""

    def rename(self, old: str, new: str, *, is_lasting: bool = True) -> None:
        """Rename a file or directory and sync the parent directory.

        Without the sync a crash may undo the rename, until a synced rename in the same directory follows,
        which may be one of `new` to itself.
        """

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename (from, to) in this order and sync the parent directories once: a crash before it returns
        may undo any of them.
        """

    def size(self, path: str) -> int:
        """The size of a file in bytes; 0 if it does not exist."""

    def remove(self, *paths: str) -> None:
        """Remove files, or directories with their content, and sync the parent directories; missing paths
        are ignored.
        """

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it is missing, or not a directory."""

    def room(self, directory: str) -> tuple[int, int]:
        """The total and usable bytes of the file system of a directory."""

    def make_directory(self, *paths: str) -> None:
        """Make directories and their parents, and make their entries durable."""

    def sync(self, files: Sequence[DiskFile]) -> None:
        """Return when the bytes appended to these files before the call survive a power cut. Blocks: call it
        outside the event loop.
        """

    def lock(self, directory: str) -> None:
        """Lock the directory for this process until it ends or `unlock`. Raises DirectoryInUse."""

    def unlock(self, directory: str) -> None:
        """Release the lock; no effect if it is not held."""


def replace_all(disk: Disk, contents: Iterable[tuple[str, bytes]]) -> list[DiskFile]:
    """`replace` each (path, content), all of them or none: if one fails, the files written so far are
    removed. Raises StorageError.
    """
    files: list[DiskFile] = []
    try:
        for path, content in contents:
            files.append(disk.replace(path, content))
    except StorageError:
        discard(disk, files)
        raise
    return files


def discard(disk: Disk, files: Sequence[DiskFile]) -> None:
    """Remove temporary files of `replace` that are not needed; if the disk fails they stay until the next
    start.
    """
    for file in files:
        file.close()
    with contextlib.suppress(StorageError):
        disk.remove(*(file.path for file in files))
