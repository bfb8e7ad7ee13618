"""The replacement of segments by a cleaned segment, safe against a crash at any step.

    X.log.cleaned   job: written, synced; durable, counts for nothing: a crash leaves garbage
         ▼
    X.log.swap      commit: index files first, the log last; from here on recovery completes this list
         ▼
    old indexes removed, old logs renamed to .deleted, from the last to X
         ▼          X.log does not exist: the files X.index … belong to the new segment from here on
    X.index …       index files first, the log last; done

In memory the turn of the broker replaces the segments at once, before the commit: the new segment is read
through an open handle that does not depend on a name, and after a crash either the old records or the new
ones are found. A reader may therefore read a record again that compaction had removed, and never misses one.
Every rename is durable when it returns, so a job does all of this.
"""

from collections.abc import Sequence

import msgspec

from sparklog.model import Offset
from sparklog_server.disk.door import Disk
from sparklog_server.log.segment.offset_index import OffsetIndex
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    Segment,
    file_name,
    header_at,
    offset_of,
    walk,
)
from sparklog_server.log.segment.time_index import TimeIndex
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX, AbortedTxn, TxnIndex

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"


class Swap(msgspec.Struct, frozen=True):
    """The segment at `base_offset` replaces those at `replaced`, of which it is the first."""

    directory: str
    base_offset: Offset
    replaced: tuple[Offset, ...]


def commit(disk: Disk, swap: Swap) -> None:
    """Rename the cleaned files to their final names, and the old logs to `.deleted`. Blocks. Raises
    StorageError.
    """
    _rename(disk, swap, CLEANED_SUFFIX, SWAP_SUFFIX)
    finish(disk, swap)


def finish(disk: Disk, swap: Swap) -> None:
    """Complete a swap that was committed."""
    names = frozenset(disk.list(swap.directory))
    for base_offset in sorted(swap.replaced, reverse=True):
        log = file_name(base_offset, LOG_SUFFIX)
        if base_offset == swap.base_offset and log not in names:
            break  # the indexes with this name may be the new ones
        suffixes = INDEX_SUFFIXES if base_offset == swap.base_offset else (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX)
        old = (file_name(base_offset, suffix) for suffix in suffixes)
        disk.remove(*(f"{swap.directory}/{name}" for name in old if name in names))
        if log in names:
            disk.rename(f"{swap.directory}/{log}", f"{swap.directory}/{log}{DELETED_SUFFIX}")
    _rename(disk, swap, SWAP_SUFFIX, "")
    disk.remove(
        *(
            f"{swap.directory}/{file_name(base_offset, LOG_SUFFIX)}{DELETED_SUFFIX}"
            for base_offset in swap.replaced
        )
    )


def _rename(disk: Disk, swap: Swap, old_suffix: str, new_suffix: str) -> None:
    """Rename the files of the new segment, its log once the names of the others are durable."""
    names = frozenset(disk.list(swap.directory))
    for suffixes in (INDEX_SUFFIXES, (LOG_SUFFIX,)):
        new = (file_name(swap.base_offset, suffix) for suffix in suffixes)
        found = (f"{swap.directory}/{name}" for name in new if name + old_suffix in names)
        disk.rename_all([(path + old_suffix, path + new_suffix) for path in found])


def discard(disk: Disk, directory: str, base_offset: Offset) -> None:
    """Remove the cleaned files of a segment that will not be used. Blocks. Raises StorageError."""
    disk.remove(
        *(
            f"{directory}/{file_name(base_offset, suffix)}{CLEANED_SUFFIX}"
            for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX)
        )
    )


def settle_swaps(disk: Disk, directory: str) -> None:
    """Complete the swaps that a crash interrupted after their commit; remove the files of the others. Raises
    StorageError.
    """
    names = disk.list(directory)
    swaps = [name.removesuffix(SWAP_SUFFIX) for name in names if name.endswith(SWAP_SUFFIX)]
    if not swaps and not any(name.endswith(CLEANED_SUFFIX) for name in names):
        return
    bases = sorted(offset for name in names if (offset := offset_of(name, LOG_SUFFIX)) is not None)
    for name in swaps:
        base_offset = offset_of(name, LOG_SUFFIX)
        if base_offset is None:
            continue
        end_offset = _end_of(disk, directory, base_offset)
        replaced = tuple(offset for offset in bases if base_offset < offset < end_offset)
        finish(disk, Swap(directory, base_offset, (base_offset, *replaced)))
    disk.remove(
        *(
            f"{directory}/{name}"
            for name in disk.list(directory)
            if name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX))
        )
    )


def _end_of(disk: Disk, directory: str, base_offset: Offset) -> int:
    """The offset after the last batch of a new segment."""
    log = disk.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{SWAP_SUFFIX}")
    path = f"{directory}/{file_name(base_offset, INDEX_SUFFIX)}"
    content = disk.read(f"{path}{SWAP_SUFFIX}")
    index = OffsetIndex(disk.read(path) if content is None else content)
    begin = index.positions[-1] if len(index) and index.is_plausible else 0
    header = header_at(log, begin)
    if header is None or header.base_offset < base_offset:
        begin = 0
    end_offset: int = base_offset
    for _, header in walk(log, begin):
        end_offset = header.next_offset
    log.close()
    return end_offset


class Cleaned(msgspec.Struct, frozen=True):
    """A cleaned segment, durable under its `.cleaned` names, that replaces others.

    `before` has the base offset and the size of each segment it was made from, in order; the new one begins
    at the first of these offsets.
    """

    directory: str
    base_offset: Offset
    before: tuple[tuple[Offset, int], ...]
    offset_index: OffsetIndex
    time_index: TimeIndex
    max_timestamp: int
    max_timestamp_offset: int
    aborted: tuple[AbortedTxn, ...]

    @property
    def replaced(self) -> tuple[Offset, ...]:
        """The base offsets of the segments it was made from."""
        return tuple(base_offset for base_offset, _ in self.before)

    @property
    def swap(self) -> Swap:
        """The swap that the commit job performs."""
        return Swap(self.directory, self.base_offset, self.replaced)


def take_over(disk: Disk, cleaned: Cleaned, replaced: Sequence[Segment]) -> Segment:
    """Open the new segment under its `.cleaned` name, and close the old ones; retained slices of them stay
    readable.

    Raises StorageError.
    """
    file = disk.open(f"{cleaned.directory}/{file_name(cleaned.base_offset, LOG_SUFFIX)}{CLEANED_SUFFIX}")
    file.pin()  # the file is renamed under this handle
    for segment in replaced:
        segment.close()
    segment = Segment(disk, cleaned.directory, cleaned.base_offset, file)
    segment.index, segment.time_index = cleaned.offset_index, cleaned.time_index
    segment.max_timestamp, segment.max_timestamp_offset = cleaned.max_timestamp, cleaned.max_timestamp_offset
    segment.has_aborted = bool(cleaned.aborted)
    segment.txn_index = TxnIndex(disk, segment.path(TXN_INDEX_SUFFIX), cleaned.base_offset, cleaned.aborted)
    return segment
