"""Residence of file ranges in the page cache: probing for it without waiting for the disk, and reading ahead.

preadv2 with RWF_NOWAIT reports whether a read would wait for the disk. Where the system has no such call,
every range counts as resident.
"""

import errno
import os
from collections.abc import Callable
from typing import Final

# The kernel reads ahead in steps of at least this, so no hole lies between two probes.
PROBE_STEP_BYTES: Final = 128 << 10
# A kernel without preemption runs no other thread on this processor during a system call: this much takes
# about 10 us.
READ_STEP_BYTES: Final = 256 << 10
NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)

_PROBE: Final = bytearray(1)


def is_resident(descriptor: int, position: int, length: int) -> bool:
    """Whether probes every 128 KiB and of the last byte find `[position, position + length)` in the page
    cache.
    """
    if NOWAIT is None:
        return True
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
    """The bytes, fewer at the end of the file; None if they are not all in the page cache."""
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


def read_ahead(borrow: Callable[[], int], position: int, limit: int) -> None:
    """Read `[position, limit)` into the page cache and wait for each page. Blocks.

    `borrow` returns a descriptor of the file, which is closed at the end: a job that waits for its thread
    holds none. Raises OSError, and what `borrow` raises.

    The file is read in order, into /dev/null, so that the kernel detects a sequential reader and reads ahead
    with large pages. POSIX_FADV_WILLNEED takes small ones, at eight times the processor time.
    """
    descriptor = borrow()
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        try:
            while position < limit:
                size = os.sendfile(sink, descriptor, position, min(READ_STEP_BYTES, limit - position))
                if size == 0:
                    break
                position += size
        finally:
            os.close(sink)
    finally:
        os.close(descriptor)
