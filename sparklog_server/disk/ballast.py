"""A file that reserves disk space, so that a broker can start and metadata can change after other programs
have filled the disk.

    kept ── no space for the metadata log, or for a name ──► halved ── no space at a start ──► removed
     ▲                                                         │                                  │
     └──────────────────────── space is available again ───────┴──────────────────────────────────┘

Without it a full disk would keep the broker from writing its vote, without which it cannot take part in the
metadata quorum, and an operator from deleting a topic. A running broker may free one half; the other half is
left for its next start. A file system that compresses zeros away frees no space.
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
"""With less free space than this no ballast is created."""


def keep(disk: Disk, directory: str) -> None:
    """Create the ballast unless it exists or the disk has little space. The file need not survive a crash."""
    path = f"{directory}/{FILE_NAME}"
    try:
        if (size := disk.size(path)) < BALLAST_BYTES and disk.room(directory)[1] >= _ROOM_BYTES_MIN:
            file = disk.open(path, create=True)
            file.append(
                bytes(BALLAST_BYTES - size)
            )  # an existing file stays: another program may take the space before it is written again
            file.close()
    except StorageError:
        pass  # a disk that fails is reported by the next write of data


def halve(disk: Disk, directory: str) -> bool:
    """Free the half that a running broker may use; returns whether it was there. Blocks. Raises
    StorageError.
    """
    path = f"{directory}/{FILE_NAME}"
    if disk.size(path) <= START_BYTES:
        return False
    file = disk.open(path)
    file.truncate(START_BYTES)
    disk.sync([file])
    file.close()
    return True


def give_up_if_full(disk: Disk, directory: str) -> None:
    """Remove the ballast at a start if the disk has less free space than the ballast takes. Blocks. Raises
    StorageError.
    """
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
    """Rename all files; if a full disk has no space for the names, free half of the ballast of `directory`
    and try again.

    If the second attempt fails too, some files may have their new names: a call with `is_again` renames the
    others. Blocks. Raises StorageError.
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
    """Rename one file as `rename_all` does; the file keeps its name if no descriptor is available. Blocks.
    Raises StorageError.
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
    )  # the last sync makes the renames before it durable, also if no file is left to rename
