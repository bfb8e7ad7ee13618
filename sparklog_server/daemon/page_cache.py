"""Whether a range of a file can be read without waiting for the disk, and how to make it so.

Linux answers through preadv2 with RWF_NOWAIT. Where the system or the file system cannot tell, everything counts as resident.
"""

import errno
import os
import sys
import time
from collections.abc import Callable
from typing import Final

# The kernel reads ahead in steps of at least this, so between two probes it has left no hole.
PROBE_STEP_BYTES: Final = 128 << 10
# A system call is not always interrupted for somebody who waits for the processor: this much takes about 10 us.
READ_STEP_BYTES: Final = 256 << 10
# While others are heard: less than a request's worth of the processor at a time, and a disk that others' syncs find free after one of them.
CALM_STEP_BYTES: Final = 64 << 10
CALM_BYTES_PER_SECOND: Final = 128_000_000
CALM_SHARE: Final = 4
"""Of the time, one part is spent reading, however slow the disk is; but a rest is no longer than this:"""
CALM_REST_S_MAX: Final = 0.005
# Further than what the kernel reads ahead by itself.
COLD_BEYOND_BYTES: Final = 20 << 20
NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)

_PROBE: Final = bytearray(1)


def is_resident(descriptor: int, position: int, length: int) -> bool:
    """Whether `[position, position + length)` is in the page cache, as far as probing every 128 KiB and the last byte can tell."""
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


def _never() -> bool:
    return False


def read_ahead(
    descriptor: int, position: int, limit: int, *, looks_beyond: bool = False, hears_others: Callable[[], bool] = _never
) -> bool:
    """Return once `[position, limit)` is in the page cache, as far as memory allows, and close the descriptor. Blocks: call it beside the
    loop. If asked for, tells whether the file is cold further on than the kernel reads ahead by itself (the probe makes a page resident).

    The kernel's own read-ahead sees one who reads in order and takes large pages. Asked by POSIX_FADV_WILLNEED for 2 MiB it takes 512
    small ones, at eight times the processor time, and while it does (0.3 to 0.7 ms) nobody else gets that processor. As long as it
    `hears_others`, it reads little at a time, and rests.
    """
    try:
        if sys.platform == "linux":
            reached = -1
            while reached < position < limit:  # until the file ends, if it does so before
                reached = _pass_by_calmly(descriptor, position, limit, hears_others) if hears_others() else position
                position = _pass_by(descriptor, reached, limit, hears_others)
        else:
            _read(descriptor, position, limit)
        return looks_beyond and not is_resident(descriptor, max(0, min(limit + COLD_BEYOND_BYTES, os.fstat(descriptor).st_size) - 1), 1)
    finally:
        os.close(descriptor)


def _read(descriptor: int, position: int, limit: int) -> None:
    scratch = memoryview(bytearray(min(limit - position, READ_STEP_BYTES)))
    while position < limit:
        size = os.preadv(descriptor, (scratch[: limit - position],), position)
        if size == 0:
            return
        position += size


def _pass_by(descriptor: int, position: int, limit: int, hears_others: Callable[[], bool] = _never) -> int:
    """Have every page of the range handed to nobody, which waits for each to be there, and copies no byte: the processor belongs to those
    who are served meanwhile. Gives where it ended: before `limit` where the file does, or as soon as others are heard.
    """
    nobody = os.open(os.devnull, os.O_WRONLY)
    try:
        while position < limit:
            size = os.sendfile(nobody, descriptor, position, min(limit - position, READ_STEP_BYTES))
            if size == 0:
                break
            position += size
            if hears_others():
                break
    finally:
        os.close(nobody)
    return position


def _pass_by_calmly(descriptor: int, position: int, limit: int, hears_others: Callable[[], bool]) -> int:
    """Pass by what lies below `limit` while others are heard; gives where that ended.

    Whoever reads in order has the kernel read ahead by as much as the disk is set to (8 MiB on some): requests that a sync of others waits
    behind, and half a millisecond of one processor.
    """
    try:
        # How a file is read is told of its open file, which a duplicate shares.
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return position
    try:
        os.posix_fadvise(own, 0, 0, os.POSIX_FADV_RANDOM)
        while position < limit and hears_others():
            size = min(limit - position, CALM_STEP_BYTES)
            if not is_resident(own, position, size):
                began_s = time.monotonic()
                _pass_by(own, position, position + size)
                took_s = time.monotonic() - began_s
                time.sleep(max(size / CALM_BYTES_PER_SECOND - took_s, min((CALM_SHARE - 1) * took_s, CALM_REST_S_MAX)))
            position += size
    finally:
        os.close(own)
    return position
