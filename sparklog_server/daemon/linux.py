"""System calls and C library functions that Python does not expose.

Where one does not exist or is not allowed, only its benefit is lost.
"""

import contextlib
import ctypes
import os
import struct
import sys
from typing import Final

_IS_HERE: Final = sys.platform == "linux"
_CACHESTAT: Final = 451  # the same on every architecture
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}.get(os.uname().machine)
_SCHED_ATTR: Final = struct.Struct(
    "<IIQiIQQQ"
)  # size, policy, flags, nice, priority, runtime, deadline, period
_SLICE_NS_MAX: Final = 100_000_000
_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
# Keeps the GIL: a call takes a microsecond or two, and a thread that releases it may wait for a job to return
# it.
_libc: Final = ctypes.PyDLL(None, use_errno=True)
_libc_without_gil: Final = ctypes.CDLL(None)
# M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc: the memory of a large frame is kept for the next one. Given
# back and asked for again with each frame, its page faults were half of all processor time while librdkafka
# wrote batches of 1 MB: 1.5 s/GB, 0.7 without them.
_MALLOC_OPTIONS: Final = ((-1, 16 << 20), (-3, 4 << 20))


class _Mallinfo(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def set_malloc_options() -> None:
    """Have the allocator keep memory for large frames. Other allocators than glibc's have their own ways."""
    with contextlib.suppress(AttributeError):
        for parameter, value in _MALLOC_OPTIONS:
            _libc.mallopt(parameter, value)


def free_heap_bytes() -> int | None:
    """The bytes that the allocator holds and nothing uses, given back or not; None where they are not
    counted (before glibc 2.33).

    It walks the free pieces: 16 ms for 50 000, in which other threads run but may wait for memory.
    """
    try:
        mallinfo = _libc_without_gil.mallinfo2
    except AttributeError:
        return None
    mallinfo.restype = _Mallinfo
    found: int = mallinfo().fordblks
    return found


def trim_heap(free_before: int, bytes_min: int) -> int:
    """Give free memory back to the system if there are `bytes_min` more of it than `free_before`; returns
    this for the next call. Blocks.

    To give back 90 MiB that lie between used pieces takes 40 ms, in which other threads run but may wait
    for memory.
    """
    free = free_heap_bytes()
    if free is None or free - free_before < bytes_min:
        return min(free_before, free or 0)
    _libc_without_gil.malloc_trim(0)
    return free


def lengthen_slice() -> None:
    """Have whoever wakes up go before this thread, which shares its processor as before: it gets fewer and
    longer slices.

    The scheduler takes from a running thread only what is due later, and a slice of 100 ms is (EEVDF,
    Linux 6.12; before, without effect).
    """
    if _IS_HERE and _SCHED_SETATTR is not None:
        _libc.syscall(
            _SCHED_SETATTR,
            0,
            _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, 0, 0, _SLICE_NS_MAX, 0, 0),
            0,
        )


def count_cached(descriptor: int, position: int, length: int) -> tuple[int, int] | None:
    """(pages of `[position, position + length)` in the page cache or on their way there, pages in all); None
    without cachestat.

    Unlike a read that must not wait, asking begins none (cachestat, Linux 6.5).
    """
    found = ctypes.create_string_buffer(40)
    if (
        not _IS_HERE
        or _libc.syscall(_CACHESTAT, descriptor, struct.pack("=QQ", position, length), found, 0) != 0
    ):
        return None
    pages = (position + length - 1) // _PAGE_BYTES - position // _PAGE_BYTES + 1
    return struct.unpack_from("=Q", found)[0], pages
