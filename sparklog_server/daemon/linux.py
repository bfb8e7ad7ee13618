"""Two system calls that Python has no name for. Where they do not exist, or are not allowed, nothing is lost but what they are good for."""

import ctypes
import os
import struct
import sys
from typing import Final

_IS_HERE: Final = sys.platform == "linux"
_CACHESTAT: Final = 451  # the same on every architecture
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}.get(os.uname().machine)
_SCHED_ATTR: Final = struct.Struct("<IIQiIQQQ")  # size, policy, flags, nice, priority, runtime, deadline, period
_SLICE_NS_MAX: Final = 100_000_000
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
# Keeps the GIL: a call takes a microsecond or two, and whoever lets go of it may wait for a job to give it back.
_libc: Final = ctypes.PyDLL(None, use_errno=True)


def lengthen_slice() -> None:
    """Have whoever wakes up go before this thread, which shares its processor as before: it gets fewer and longer slices.

    The scheduler takes from a running thread only what is due later, and a slice of 100 ms is (EEVDF, Linux 6.12; before, without effect).
    """
    if _IS_HERE and _SCHED_SETATTR is not None:
        _libc.syscall(_SCHED_SETATTR, 0, _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, 0, 0, _SLICE_NS_MAX, 0, 0), 0)


def count_cached(descriptor: int, position: int, length: int) -> tuple[int, int] | None:
    """(pages of `[position, position + length)` in the page cache or on their way there, pages in all); None where nobody counts them.

    Unlike a read that must not wait, asking begins none (cachestat, Linux 6.5).
    """
    found = ctypes.create_string_buffer(40)
    if not _IS_HERE or _libc.syscall(_CACHESTAT, descriptor, struct.pack("=QQ", position, length), found, 0) != 0:
        return None
    pages = (position + length - 1) // _PAGE_BYTES - position // _PAGE_BYTES + 1
    return struct.unpack_from("=Q", found)[0], pages
