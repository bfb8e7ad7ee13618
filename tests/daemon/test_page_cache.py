"""What is asked of the page cache before a slice is sent."""

import mmap
import os
import time
from itertools import cycle
from pathlib import Path

import pytest

from sparklog.effects import take_all
from sparklog_server.daemon.jobs import REST_S_MIN, take_calmly
from sparklog_server.daemon.linux import count_cached
from sparklog_server.daemon.page_cache import COLD_BEYOND_BYTES, READ_STEP_BYTES, is_resident, read_ahead
from tests.daemon.cold import chill, is_resident_after

MIB = 1 << 20
SIZE = COLD_BEYOND_BYTES + 16 * MIB


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    path = tmp_path / "cold"
    path.write_bytes(bytes(SIZE))
    chill(_opened(path))
    return path


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY)


def test_a_range_that_was_read_ahead_is_resident_and_the_file_cold_further_on(cold: Path) -> None:
    def read() -> None:
        assert take_all(read_ahead(lambda: _opened(cold), MIB, 3 * MIB, looks_beyond=True))

    assert is_resident_after(read, _opened(cold), MIB, 2 * MIB)


def test_a_range_that_is_read_while_others_are_heard_is_resident_and_nothing_beyond_it(cold: Path) -> None:
    def read() -> None:
        began_s = time.monotonic()
        assert take_calmly(read_ahead(lambda: _opened(cold), MIB, 3 * MIB, looks_beyond=True), lambda: True)
        assert time.monotonic() - began_s >= (2 * MIB // READ_STEP_BYTES - 1) * REST_S_MIN
        assert not is_resident(_opened(cold), 3 * MIB + READ_STEP_BYTES, 1)

    assert is_resident_after(read, _opened(cold), MIB, 2 * MIB)


def test_to_ask_whether_a_range_is_resident_has_nothing_read(cold: Path) -> None:
    take_calmly(
        read_ahead(lambda: _opened(cold), 0, 8 * MIB), lambda: True
    )  # whoever goes on after so much has much read ahead
    descriptor = _opened(cold)
    for _ in range(100):
        assert not is_resident(descriptor, 8 * MIB, MIB)
    cached = count_cached(descriptor, 0, SIZE)
    if cached is None:
        pytest.skip("this system does not count pages")
    assert cached[0] * mmap.PAGESIZE < 9 * MIB


def test_the_rest_of_a_range_is_read_at_once_when_nobody_is_heard_any_more(cold: Path) -> None:
    def read() -> None:
        heard = iter([True] * 3)
        assert take_calmly(
            read_ahead(lambda: _opened(cold), MIB, 3 * MIB, looks_beyond=True), lambda: next(heard, False)
        )

    assert is_resident_after(read, _opened(cold), MIB, 2 * MIB)


def test_a_range_is_read_whole_though_others_are_heard_now_and_then(cold: Path) -> None:
    def read() -> None:
        heard = cycle([False, True, True])
        take_calmly(read_ahead(lambda: _opened(cold), 0, SIZE), lambda: next(heard))

    assert is_resident_after(read, _opened(cold), 0, SIZE)


def test_near_the_end_of_a_file_nothing_is_cold_further_on(cold: Path) -> None:
    assert not take_all(read_ahead(lambda: _opened(cold), SIZE - MIB, SIZE, looks_beyond=True))


def test_reading_ahead_beyond_the_end_of_a_file_ends_there(cold: Path) -> None:
    assert is_resident_after(
        lambda: take_all(read_ahead(lambda: _opened(cold), SIZE - 10, SIZE + MIB)),
        _opened(cold),
        SIZE - 10,
        10,
    )


def test_the_descriptor_to_read_ahead_with_is_closed_whatever_happens(cold: Path) -> None:
    descriptor = _opened(cold)
    take_all(read_ahead(lambda: descriptor, 0, MIB))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    directory = _opened(cold.parent)
    with pytest.raises(OSError, match=r"directory|Invalid"):
        take_all(read_ahead(lambda: directory, 0, MIB))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(directory)
