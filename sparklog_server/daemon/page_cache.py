"""Whether a range of a file can be read without waiting for the disk, and how to make it so.

Linux counts the pages (cachestat), and preadv2 with RWF_NOWAIT reports whether a read would wait. preadv2
alone is not enough, because it starts read-ahead: 8 MiB on some disks. Where neither call exists, every
range counts as resident.
"""

import errno
import os
from collections.abc import Callable
from typing import Final

from sparklog.effects import Steps
from sparklog_server.daemon.linux import count_cached

# The kernel reads ahead in steps of at least this, so between two probes it has left no hole.
PROBE_STEP_BYTES: Final = 128 << 10
# A system call is not always preempted for a waiting thread: this much takes about 10 us.
READ_STEP_BYTES: Final = 256 << 10
# Further than the kernel's own read-ahead.
COLD_BEYOND_BYTES: Final = 20 << 20
NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)

_PROBE: Final = bytearray(1)
_uncounted: Final[set[int]] = set()
"""Devices of whose files the kernel counts no page though they have some: overlayfs keeps them under
another file.
"""


def is_resident(descriptor: int, position: int, length: int) -> bool:
    """Whether `[position, position + length)` is in the page cache, as far as probing every 128 KiB and
    the last byte can tell.
    """
    if NOWAIT is None:
        return True
    counted = count_cached(descriptor, position, length)
    if (
        counted is not None
        and counted[0] < counted[1]
        and (counted[0] or os.fstat(descriptor).st_dev not in _uncounted)
    ):
        return False
    # The count includes pages being read from the disk.
    try:
        for probed in range(position, position + length - 1, PROBE_STEP_BYTES):
            os.preadv(descriptor, (_PROBE,), probed, NOWAIT)
        os.preadv(descriptor, (_PROBE,), position + length - 1, NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    return True


def read_if_resident(descriptor: int, position: int, length: int) -> bytes | bytearray | None:
    """The bytes, fewer at the end of the file; None if they are not in the page cache, or only in part."""
    if NOWAIT is None:
        return os.pread(descriptor, length, position)
    content = bytearray(length)
    try:
        size = os.preadv(descriptor, (content,), position, NOWAIT)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return os.pread(descriptor, length, position)
    if size == length:
        return content
    # Short: the rest is cold, or the file ends here.
    return content[:size] if os.fstat(descriptor).st_size <= position + size else None


def read_ahead(
    borrow: Callable[[], int], position: int, limit: int, *, looks_beyond: bool = False
) -> Steps[bool]:
    """Return once `[position, limit)` is in the page cache, as far as memory allows. A job in steps. If
    asked for, tells whether the file is cold further on than the kernel reads ahead by itself (the
    question makes a page resident).

    `borrow` gives a descriptor of the file, which is closed at the end: a job that waits for its thread
    holds none. Raises what it raises.

    The kernel's own read-ahead sees one who reads in order and takes large pages. Asked by
    POSIX_FADV_WILLNEED for 2 MiB it takes 512 small ones, at eight times the processor time, and while it
    does (0.3 to 0.7 ms) nobody else gets that processor. But it reads ahead by as much as the disk is set
    to (8 MiB on some): requests that a sync of others waits behind, and half a millisecond of one
    processor. So while others are heard, the file is read as if at random, little at a time.
    """
    descriptor, at_random = borrow(), -1
    try:
        limit = min(limit, os.fstat(descriptor).st_size)
        begin = position
        while position < limit:
            if (yield):
                if at_random < 0:
                    at_random = _opened_at_random(descriptor)
                while position < limit and is_resident(
                    at_random, position, min(limit - position, READ_STEP_BYTES)
                ):
                    position += READ_STEP_BYTES
                position = _pass_by(at_random, position, min(limit, position + READ_STEP_BYTES))
            else:
                position = _pass_by(descriptor, position, min(limit, position + READ_STEP_BYTES))
        if begin < limit and count_cached(descriptor, limit - 1, 1) == (0, 1):
            _uncounted.add(os.fstat(descriptor).st_dev)
        return looks_beyond and not is_resident(
            descriptor, max(0, min(limit + COLD_BEYOND_BYTES, os.fstat(descriptor).st_size) - 1), 1
        )
    finally:
        os.close(descriptor)
        if at_random >= 0:
            os.close(at_random)


def _opened_at_random(descriptor: int) -> int:
    """The file once more, which the kernel shall not read ahead: how a file is read is told of its open
    file, which a duplicate shares.
    """
    try:
        opened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.dup(descriptor)
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_RANDOM)
    return opened


def _pass_by(descriptor: int, position: int, limit: int) -> int:
    """Read a range into the page cache and wait for each page, without copying bytes to user space.

    Returns `limit`, also where the file ends before it.
    """
    nobody = os.open(os.devnull, os.O_WRONLY)
    try:
        while position < limit:
            size = os.sendfile(nobody, descriptor, position, limit - position)
            if size == 0:
                break
            position += size
    finally:
        os.close(nobody)
    return limit
