"""Files out of the page cache, and the state of a file that was read into it."""

import os
from collections.abc import Callable

import pytest

from sparklog_server.daemon.page_cache import is_resident

TRIES = 5


def chill(descriptor: int) -> None:
    """Have the whole file leave the page cache, or skip the test where it does not."""
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if is_resident(descriptor, os.fstat(descriptor).st_size // 2, 1):
        pytest.skip("this file system keeps its pages whatever one asks")


def is_resident_after(read: Callable[[], object], descriptor: int, position: int, length: int) -> bool:
    """Whether `read` brings a range of a cold file into the page cache.

    A kernel may take single pages back at once, however much memory is free (DAMON's proactive reclaim
    does): then all is tried again. A file with a hole of its own keeps it.
    """
    for _ in range(TRIES):
        chill(descriptor)
        read()
        if is_resident(descriptor, position, length):
            return True
    return False
