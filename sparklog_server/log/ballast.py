"""A file that reserves disk space, so that a broker can start and metadata can change after other programs
have filled the disk.

    kept ── no space for the metadata log, or for a name ──► halved ── no space at a start ──► removed
     ▲                                                         │                                  │
     └──────────────────────── space is available again ───────┴──────────────────────────────────┘

Without it a full disk would keep the broker from writing its vote, without which it serves nothing, and an
operator from deleting a topic. A running broker may use one half, so that the other is left for its next
start. A file system that compresses zeros away frees no space.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from sparklog_server.disk.door import Disk, OutOfDescriptors, StorageError

Written = TypeVar("Written")

FILE_NAME = ".sparklog-ballast"
BALLAST_BYTES = 256 << 10
START_BYTES = BALLAST_BYTES // 2
"""The half that only a start may use."""
_ROOM_BYTES_MIN = 64 * BALLAST_BYTES
"""Less room than this is worth more than the ballast."""


def keep(disk: Disk, directory: str) -> None:
    """Have the ballast there, unless the disk has little room. It need not survive a crash."""
    path = f"{directory}/{FILE_NAME}"
    try:
        if (size := disk.size(path)) < BALLAST_BYTES and disk.room(directory)[1] >= _ROOM_BYTES_MIN:
            file = disk.open(path, create=True)
            file.append(
                bytes(BALLAST_BYTES - size)
            )  # what is there stays: others may take the room before it is written
            file.close()
    except StorageError:
        pass  # a disk that fails is met by the next write that counts


def halve(disk: Disk, directory: str) -> bool:
    """Give up the half of a running broker; whether it was there. Blocks. Raises StorageError."""
    path = f"{directory}/{FILE_NAME}"
    if disk.size(path) <= START_BYTES:
        return False
    file = disk.open(path)
    file.truncate(START_BYTES)
    disk.sync([file])
    file.close()
    return True


def give_up_if_full(disk: Disk, directory: str) -> None:
    """At a start: remove the ballast where there is less room than it takes. Blocks. Raises StorageError."""
    if disk.room(directory)[1] < BALLAST_BYTES:
        disk.remove(f"{directory}/{FILE_NAME}")


def written(
    disk: Disk, directory: str, write: Callable[[], Written], halved: Callable[[], None] = lambda: None
) -> Written:
    """The result of `write`; if a full disk refuses it, half of the ballast is freed, `halved` is called,
    and `write` is called again.

    Blocks. Raises StorageError.
    """
    try:
        return write()
    except StorageError as error:
        if not error.is_full or isinstance(error, OutOfDescriptors) or not halve(disk, directory):
            raise
    halved()
    return write()


def rename_all(
    disk: Disk, directory: str, moves: Sequence[tuple[str, str]], *, is_again: bool = False
) -> None:
    """Rename all, at the price of half the ballast of `directory` if a full disk has no room for the names.

    Where that fails too, some may have been renamed: `is_again` goes on with the others. Blocks. Raises
    StorageError.
    """
    try:
        if is_again:
            _rename_rest(disk, moves)
        else:
            disk.rename_all(moves)
    except StorageError as error:
        if not error.is_full or isinstance(error, OutOfDescriptors) or not halve(disk, directory):
            raise
    else:
        return
    _rename_rest(disk, moves)


def rename(disk: Disk, directory: str, old: str, new: str) -> None:
    """As `rename_all`, of one name, which is as it was where a descriptor is wanting. Blocks. Raises
    StorageError.
    """
    try:
        rename_all(disk, directory, [(old, new)])
    except OutOfDescriptors:
        with contextlib.suppress(StorageError):
            disk.rename(new, old, is_lasting=False)  # only the sync after a rename takes a descriptor
        raise


def _rename_rest(disk: Disk, moves: Sequence[tuple[str, str]]) -> None:
    names = {
        parent: frozenset(disk.list(parent))
        for parent in dict.fromkeys(old.rpartition("/")[0] for old, _ in moves)
    }
    left = [(old, new) for old, new in moves if old.rpartition("/")[2] in names[old.rpartition("/")[0]]]
    disk.rename_all(
        [*left, *((new, new) for _, new in moves[-1:])]
    )  # the last makes those before it lasting, also where none is left
