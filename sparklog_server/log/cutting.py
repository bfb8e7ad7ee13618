"""Files that a truncation removes, and files of an unfinished sync that become stale by it."""

from collections.abc import Sequence

from sparklog.model import Offset
from sparklog_server.disk.door import Disk
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
    offset_of,
)
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX


def remove_segment_files(disk: Disk, segment: Segment) -> None:
    """Remove the files of a segment, its log first, because recovery ignores the others without it. Raises
    StorageError.
    """
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
        disk.remove(segment.path(suffix))


def remove_stale_snapshots(
    disk: Disk, directory: str, segments: Sequence[Segment], snapshot_offset: Offset
) -> None:
    """Remove the snapshots of truncated offsets that a sync in flight may have renamed into place. Raises
    StorageError.
    """
    bases = frozenset(segment.base_offset for segment in segments)
    for name in disk.list(directory):
        offset = offset_of(name, SNAPSHOT_SUFFIX)
        if offset is not None and offset not in bases and offset != snapshot_offset:
            disk.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")


def is_of_rest(path: str, active_base_offset: int) -> bool:
    """Whether a file to be synced describes only the log before the active segment."""
    digits, _, suffix = path.rpartition("/")[2].partition(".")
    if not digits.isdecimal():
        return True
    return int(digits) < active_base_offset or (
        int(digits) == active_base_offset and f".{suffix}".startswith(SNAPSHOT_SUFFIX)
    )
