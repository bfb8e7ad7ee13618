"""Removal of the files that retention or a deleted topic leaves on a disk: one large file, or several small
ones, per step.

On some file systems no sync returns while space is freed: 1.7 ms per MiB were measured where freed blocks are
discarded at once. A file is not truncated in parts before its removal: its pages may wait in a socket, and
truncation would zero them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from sparklog_server.disk.door import Disk

STEP_BYTES: Final = 4 << 20
_PATHS_PER_STEP: Final = 64


class Removal(Protocol):
    """A job that removes some files and returns the job that continues, or None when all are removed.
    Blocks. Raises StorageError.
    """

    def __call__(self) -> "Removal | None": ...


def removal(disk: Disk, paths: Sequence[str]) -> Removal:
    """The job that removes files, and directories with the files in them; missing paths are ignored."""

    def begin() -> Removal | None:
        files = [f"{path}/{name}" for path in paths for name in disk.list(path)]
        return _remove_some(disk, (*files, *paths))

    return begin


def _remove_some(disk: Disk, paths: Sequence[str]) -> Removal | None:
    count, size = 0, 0
    for path in paths[:_PATHS_PER_STEP]:
        size += disk.size(path)
        if count > 0 and size > STEP_BYTES:
            break
        count += 1
    disk.remove(*paths[:count])
    rest = paths[count:]
    return partial(_remove_some, disk, rest) if rest else None


def remove_all(removal: Removal) -> None:
    """Take all steps at once. Blocks. Raises StorageError."""
    rest: Removal | None = removal
    while rest is not None:
        rest = rest()
