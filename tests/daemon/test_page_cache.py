"""Residence of file ranges in the page cache, and reading ahead."""

import os
from pathlib import Path

import pytest

from sparklog_server.daemon.page_cache import read_ahead
from tests.daemon.cold import chill, is_resident_after

pytestmark = pytest.mark.disk

MIB = 1 << 20
SIZE = 16 * MIB


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    path = tmp_path / "cold"
    path.write_bytes(bytes(SIZE))
    chill(_opened(path))
    return path


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY)


def test_a_range_that_was_read_ahead_is_resident(cold: Path) -> None:
    assert is_resident_after(
        lambda: read_ahead(lambda: _opened(cold), MIB, 3 * MIB), _opened(cold), MIB, 2 * MIB
    )


def test_reading_ahead_beyond_the_end_of_a_file_ends_there(cold: Path) -> None:
    assert is_resident_after(
        lambda: read_ahead(lambda: _opened(cold), SIZE - 10, SIZE + MIB), _opened(cold), SIZE - 10, 10
    )


def test_the_descriptor_to_read_ahead_with_is_closed_also_after_a_failure(cold: Path) -> None:
    descriptor = _opened(cold)
    read_ahead(lambda: descriptor, 0, MIB)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    directory = _opened(cold.parent)
    with pytest.raises(OSError, match=r"directory|Invalid"):
        read_ahead(lambda: directory, 0, MIB)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(directory)
