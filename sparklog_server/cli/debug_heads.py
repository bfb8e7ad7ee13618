"""Headers of the batches at both ends of a segment. No byte of a record is read."""

import os
from collections import deque
from pathlib import Path
from struct import unpack_from
from typing import Final

from sparklog.errors import DecodeError
from sparklog.record.batch import HEADER_SIZE, read_header
from sparklog_server.cli.inspect import batch_row

FIRST: Final = 5
LAST: Final = 20
WALKED_MAX: Final = 20_000
"""Headers read from the last entry of the index, or from the start, to the end."""
_ENTRY_BYTES: Final = 8


def head_of(segment: Path, directory: Path) -> dict[str, object]:
    """The first and last headers of a segment, and where they cannot be read."""
    told: dict[str, object] = {"segment": str(segment.relative_to(directory))}
    try:
        with segment.open("rb", buffering=0) as log:
            size = os.fstat(log.fileno()).st_size
            told["bytes"] = size
            first, flaw = _walk(log.fileno(), 0, size, FIRST)
            start = min(_indexed(segment.with_suffix(".index")), size)
            last, last_flaw = _walk(log.fileno(), start, size, WALKED_MAX)
            told |= {"first": first, "last": last[-LAST:], "flaw": last_flaw or flaw}
    except OSError as error:
        told["error"] = str(error)
    return told


def _walk(descriptor: int, position: int, size: int, count: int) -> tuple[list[dict[str, object]], str]:
    """The headers from a position on, the last of at most `count`, and why the walk ended before the end."""
    found: deque[dict[str, object]] = deque(maxlen=LAST)
    for _ in range(count):
        if position >= size:
            break
        try:
            header = read_header(os.pread(descriptor, HEADER_SIZE, position))
        except DecodeError as error:
            return list(found), f"at {position}: {error}"
        found.append(batch_row(position, header))
        position += header.size
    return list(found), ""


def _indexed(index: Path) -> int:
    """The position of the last entry of an offset index; 0 without one. An index of an open segment ends in
    zeros.
    """
    try:
        content = index.read_bytes()
    except OSError:
        return 0
    used = len(content.rstrip(b"\0"))
    end = -(-used // _ENTRY_BYTES) * _ENTRY_BYTES
    if not 0 < end <= len(content):
        return 0
    position: int = unpack_from(">i", content, end - _ENTRY_BYTES // 2)[0]
    return max(0, position)
