"""System calls of the disk that Python does not provide, or that differ between systems."""

import ctypes
import fcntl
import os
import sys
from collections.abc import Callable

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
"""Only the user of the broker reads records and SCRAM keys. What exists keeps its mode."""


def _find_syncfs() -> Callable[[int], int] | None:
    """Linux's syncfs, which since 5.8 also reports write errors; elsewhere files are synced one by one."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int]
    function.restype = ctypes.c_int
    found: Callable[[int], int] = function
    return found


syncfs = _find_syncfs()


def sync_descriptor(fd: int) -> None:
    """Make the content of a file durable. Blocks."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync alone leaves the data in the drive's cache there
    else:
        os.fdatasync(fd)


def take_lock(path: str, *, is_read_only: bool) -> int:
    """The descriptor of a lock file, locked exclusively, as Kafka locks it; raises BlockingIOError if it
    is held.
    """
    fd = os.open(path, os.O_CLOEXEC | (os.O_RDONLY if is_read_only else os.O_RDWR | os.O_CREAT), FILE_MODE)
    try:
        # flock excludes two brokers of sparklog, even in one process; lockf (POSIX) excludes a Java process.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A read-only descriptor can only have POSIX's shared lock, which excludes Java's exclusive one as
        # well.
        fcntl.lockf(fd, (fcntl.LOCK_SH if is_read_only else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, PermissionError):  # POSIX allows either
            raise BlockingIOError(error.errno, error.strerror) from error
        raise
    return fd
