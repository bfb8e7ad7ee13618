"""System calls and C library functions that Python does not expose.

Where one does not exist or is not allowed, only its benefit is lost.
"""

import contextlib
import ctypes
import os
import socket
import sys
import threading
from typing import Final

_IS_HERE: Final = sys.platform == "linux"
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30, "riscv64": 30}.get(os.uname().machine)
_IOPRIO_WHO_PROCESS: Final = 1
_IOPRIO_LOWEST: Final = 2 << 13 | 7  # of the class best-effort
# Low, but not the lowest: the loop waits while a thread that holds the GIL has no processor (decision 0009).
_NICE: Final = 5
# Keeps the GIL: a call takes a microsecond or two, and a thread that releases the GIL may wait for a job to
# release it again.
_libc: Final = ctypes.PyDLL(None, use_errno=True)
_libc_without_gil: Final = ctypes.CDLL(None)
# M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc: the memory of a large frame is kept for the next one. Page
# faults of memory that is returned and allocated again with each frame were half of all processor time while
# librdkafka wrote batches of 1 MB: 1.5 s/GB, 0.7 without them.
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


def boot_id() -> str:
    """The id that the kernel chose when this machine was started; empty where there is none (macOS)."""
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY)
        try:
            return os.read(descriptor, 64).decode().strip()
        finally:
            os.close(descriptor)
    return ""


def set_malloc_options() -> None:
    """Have the allocator keep memory for large frames. No effect with allocators other than glibc's."""
    with contextlib.suppress(AttributeError):
        for parameter, value in _MALLOC_OPTIONS:
            _libc.mallopt(parameter, value)


def free_heap_bytes() -> int | None:
    """The free bytes of the heap, returned to the system or not; None where the C library does not count
    them (before glibc 2.33).

    The call walks the free pieces: 16 ms for 50 000, during which other threads run but may wait for memory.
    """
    try:
        mallinfo = _libc_without_gil.mallinfo2
    except AttributeError:
        return None
    mallinfo.restype = _Mallinfo
    found: int = mallinfo().fordblks
    return found


def trim_heap(free_before: int, bytes_min: int) -> int:
    """Return free memory to the system if there are `bytes_min` more of it than `free_before`; returns the
    `free_before` of the next call. Blocks.

    Returning 90 MiB that lie between used pieces takes 40 ms, during which other threads run but may wait for
    memory.
    """
    free = free_heap_bytes()
    if free is None or free - free_before < bytes_min:
        return min(free_before, free or 0)
    _libc_without_gil.malloc_trim(0)
    return free


def lower_priority() -> None:
    """Have the scheduler and the disk prefer other threads to the calling one.

    The I/O priority has an effect only under the I/O schedulers bfq and mq-deadline.
    """
    if not _IS_HERE:
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
    if _IOPRIO_SET is not None:
        _libc.syscall(_IOPRIO_SET, _IOPRIO_WHO_PROCESS, 0, _IOPRIO_LOWEST)


def disable_pacing(connected: socket.socket) -> None:
    """Send as fast as the peer reads, under the congestion control Reno.

    BBR, the default of some systems, waits for a timer before most segments. On a connection within one
    machine, which loses nothing, that takes half of the processor time of a large reply.
    """
    if _IS_HERE:
        with contextlib.suppress(OSError):  # a system may allow other algorithms only
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
