"""Errors of the operating system as errors of the port to files."""

import contextlib
import errno
from collections.abc import Iterator
from types import TracebackType

from .door import OutOfDescriptors, StorageError

OUT_OF_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE))
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OF_PATH = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENXIO))
_MOVE_AWAY = (
    "the broker did not write this: move it out of the data directory, restore the file from a copy or a "
    "replica, then start the broker again"
)
_MAKE_ROOM = "make room on that file system, then start the broker again"
_REMEDIES = {
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENXIO), _MOVE_AWAY),
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EROFS: (
        "look in the kernel's log for why it is read-only, mount it read-write, then start the broker again"
    ),
    errno.EACCES: (
        "give the user of the broker the right to read and write there, then start the broker again"
    ),
    errno.EPERM: "give the user of the broker the right to read and write there, then start the broker again",
    errno.EIO: "look in the kernel's log for the device that fails, replace it, then start the broker again",
}


class Storage:
    """Turns an error of the operating system into a StorageError; a class, because a generator takes longer
    than many of the calls.
    """

    __slots__ = ("_call", "_path")

    def __init__(self, path: str, call: str) -> None:
        self._path = path
        self._call = call

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise storage_error(self._path, self._call, error) from error


def storage_error(path: str, call: str, error: OSError, *, is_undone: bool = True) -> StorageError:
    """The StorageError for an error of the operating system; `is_undone` tells that the call changed
    nothing.
    """
    if error.errno in OUT_OF_DESCRIPTORS:
        return OutOfDescriptors(path, call, error.strerror or str(error))
    # With delayed allocation a sync may be the first call to find the disk full; the data that it could not
    # write is lost (fsync(2)).
    is_full = error.errno in _FULL and is_undone and call != "sync"
    return StorageError(
        path,
        call,
        error.strerror or str(error),
        is_full=is_full,
        is_of_path=error.errno in _OF_PATH,
        remedy=_REMEDIES.get(error.errno or 0, ""),
    )


@contextlib.contextmanager
def unless_gone(path: str) -> Iterator[None]:
    """Ignore a missing path: a file that was removed during its sync (a deleted topic, a truncated
    segment) needs no sync.
    """
    try:
        yield
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        from pathlib import Path  # imported at its only use: a start does not need it

        if Path(path).exists():
            raise
