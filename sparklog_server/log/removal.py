"""How what retention or a topic leaves behind goes off the disk: a file at a time, or few small ones.

To free space takes some file systems time in which no other sync returns: where freed blocks are
discarded at once 1.7 ms per MiB was seen. A file is not cut bit by bit before it goes: pages of it may
wait in a socket, and would be zeroed there.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from sparklog_server.disk.door import Disk

STEP_BYTES: Final = 4 << 20
_PATHS_PER_STEP: Final = 64

Removal = Callable[[], object]
"""A job that removes some, and returns the one that goes on, or None when all is gone. Blocks. Raises
StorageError.
"""


def removal(disk: Disk, paths: Sequence[str]) -> Removal:
    """The job that removes files, and directories with the files in them; nothing happens to what is
    missing.
    """

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
        rest = go_on(rest())


def go_on(result: object) -> Removal | None:
    """The job to go on with, from what one returned or raised."""
    return cast(Removal, result) if callable(result) else None
