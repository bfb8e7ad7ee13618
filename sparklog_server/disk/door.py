"""The port to files: the calls that the broker may make to a disk, and their errors.

`os_disk` opens it onto the real file system, `simulation/disk` onto one that can crash. Paths are strings
with `/`; every failure of the operating system arrives as `StorageError`, so no caller ever catches
OSError.

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

    `is_full` tells ENOSPC and EDQUOT apart, for calls that changed nothing: the same call may succeed once
    there is room. A failed sync is never `is_full`, since it is unknown which pages the kernel dropped.
    """

    def __init__(self, path: str, call: str, reason: str, *, is_full: bool = False, remedy: str = "") -> None:
        super().__init__(f"{call} {path}: {reason}")
        self.path = path
        self.call = call
        self.reason = reason
        self.is_full = is_full
        self.remedy = remedy


class OutOfDescriptors(StorageError):
    """The process, or the system, has no descriptor left: not the disk's fault. Nothing was changed, and
    the same call may succeed later.

    It counts as `is_full`, which has the same remedy: to try again.
    """

    def __init__(self, path: str, call: str, reason: str) -> None:
        super().__init__(path, call, reason, is_full=True)


class DirectoryInUse(StorageError):
    """Another process holds the lock of this directory."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "lock", "the directory is in use by another process")


class DiskFile(Protocol):
    """An open file that grows at its end. `size` is the length known to us, without a system call."""

    path: str
    size: int

    def append(self, data: Buffer) -> int:
        """Write `data` at the end, whole, and return the position where it begins; on failure the file is
        cut back to where it was.

        A full disk on which the file cannot be cut back either is not `is_full`.
        """

    def pread(self, position: int, length: int) -> bytes:
        """The bytes `[position, position + length)`, fewer at the end of the file."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes, which must not exceed its size."""

    def pin(self) -> None:
        """Open it now and keep it open until `close`, since its name is about to change. Raises
        StorageError.
        """

    def retain(self) -> None:
        """Keep the file readable after `close`, until the `release` that belongs to this call."""

    def release(self) -> None:
        """The reader that called `retain` is done; the last one closes a file that its owner has closed."""

    def close(self) -> None:
        """The owner is done with the file: it closes at once, or with the last `release`."""


class Disk(Protocol):
    """A file system of which nothing is durable until it was synced."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for appending and reading; with `create`, a missing file is made empty."""

    def read(self, path: str) -> bytes | None:
        """A small file, whole; None if there is none."""

    def replace(self, path: str, content: bytes) -> DiskFile:
        """Write a small file aside, whole; the `sync` that gets the returned file makes it durable and
        puts it in place of `path`.

        Until then `path` keeps its former content, also after a crash.
        """

    def write(self, path: str, content: bytes) -> None:
        """`replace` and `sync` at once; on a full disk nothing is left behind. Blocks."""

    def rename(self, old: str, new: str, *, is_lasting: bool = True) -> None:
        """Rename a file or directory and sync the parent directory.

        Without the sync a crash may undo it, until a lasting rename in the same directory: of `new` to
        itself, if of nothing else.
        """

    def rename_all(self, moves: Sequence[tuple[str, str]]) -> None:
        """Rename (from, to) in this order and sync the parent directories once: a crash before it returns
        may undo any of them.
        """

    def size(self, path: str) -> int:
        """How many bytes a file holds; 0 if there is none of that name."""

    def remove(self, *paths: str) -> None:
        """Remove files, or directories with their content, and sync the parent directories; missing paths
        are ignored.
        """

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it is missing, or none."""

    def room(self, directory: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system that a directory lies in."""

    def make_directory(self, *paths: str) -> None:
        """Make directories and their parents, and make their entries durable."""

    def sync(self, files: Sequence[DiskFile]) -> None:
        """Return when the bytes appended to these files before the call survive a power cut. Blocks: call
        it beside the loop.
        """

    def lock(self, directory: str) -> None:
        """Hold the directory for this process until it ends or `unlock`. Raises DirectoryInUse."""

    def unlock(self, directory: str) -> None:
        """Let the directory go; nothing happens if it is not held."""


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
    """Remove files that `replace` wrote aside and that are not to be put in place; a disk that fails keeps
    them until the next start.
    """
    for file in files:
        file.close()
    with contextlib.suppress(StorageError):
        disk.remove(*(file.path for file in files))
