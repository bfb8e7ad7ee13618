"""The daemon's calls of the C library."""

from pathlib import Path

import pytest

from sparklog_server.daemon.linux import free_heap_bytes, trim_heap

MIB = 1 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_that_lies_free_between_what_is_used_goes_back_to_the_system() -> None:
    if free_heap_bytes() is None:
        pytest.skip("this C library does not count free memory")
    freed = [bytes(2000) for _ in range(40_000)]
    kept = [bytes(600) for _ in range(1)]
    for index in range(0, len(freed), 50):
        kept.append(freed[index])
    before = resident_bytes()
    free = free_heap_bytes()
    freed.clear()
    assert (free_heap_bytes() or 0) - (free or 0) > 50 * MIB
    assert trim_heap(0, 1 << 40) == 0
    assert before - resident_bytes() < 40 * MIB
    assert trim_heap(free or 0, 40 * MIB) > 50 * MIB
    assert before - resident_bytes() > 40 * MIB
    assert len(kept) == 801
