"""Whether a range of a file can be read without waiting for the disk, and how to make it so.

Linux answers through preadv2 with RWF_NOWAIT. Where the system or the file system cannot tell, everything counts as resident.
"""

import errno
import os
from typing import Final

# The kernel reads ahead in steps of at least this, so between two probes it has left no hole.
PROBE_STEP_BYTES: Final = 128 << 10
PAGE_BYTES: Final = 4096
ADVISE: Final = getattr(os, "posix_fadvise", None)
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


def read_ahead(descriptor: int, position: int, length: int) -> None:
    """Return once the range is in the page cache, as far as memory allows, and close the descriptor. Blocks: call it beside the loop.

    A byte of each step is waited for and nothing else is copied: the processor belongs to those who are served meanwhile.
    """
    scratch = bytearray(1)
    try:
        if ADVISE is not None:
            # Twice as far as is waited for: the disk works on the next range while this one is sent.
            ADVISE(descriptor, position, 2 * length, os.POSIX_FADV_WILLNEED)
        step = PROBE_STEP_BYTES if ADVISE is not None else PAGE_BYTES
        for awaited in (*range(position, position + length - 1, step), position + length - 1):
            if os.preadv(descriptor, (scratch,), awaited) == 0:
                return
    finally:
        os.close(descriptor)
