"""A cleaned segment as the result of a job, and the turn of the broker that begins to read from it; `swap`
renames its files.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sparklog.model import Offset
from sparklog_server.disk.door import Disk
from sparklog_server.log.segment.offset_index import OffsetIndex
from sparklog_server.log.segment.segment import LOG_SUFFIX, Segment, file_name
from sparklog_server.log.segment.time_index import TimeIndex
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX, AbortedTxn, TxnIndex

from .swap import CLEANED_SUFFIX, Swap


class Cleaned(NamedTuple):
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
