"""The aborted transactions of a log, from the `.txnindex` files of its segments: read, checked, and
rebuilt from the batches if needed.

The file has no checksum, so an entry counts only if the log confirms it: the transaction ends with an
ABORT marker of that producer, and the first batch of the transaction, and of the next open one, lies where
the entry says. The index of a segment with a wrong entry is rebuilt. So is an index without entries: the
file is created for a first entry, and Kafka, which trusts it, would return aborted records.

Checking many entries takes long, so readers do it in a job: an `IndexReading` holds the parts of the log
that it needs.
"""

from bisect import bisect_right
from collections.abc import Sequence

from sparklog.model import Offset
from sparklog.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from sparklog.record.control import ControlType
from sparklog_server.disk.door import Disk, DiskFile
from sparklog_server.log.producers.ongoing_transactions import OngoingTransactions, marker_of
from sparklog_server.log.producers.producer_recovery import producers_before, replay_transactions
from sparklog_server.log.segment.segment import LOG_SUFFIX, Segment, Twins, base_offset_of, parts_of
from sparklog_server.log.segment.txn_index import (
    TXN_INDEX_SUFFIX,
    AbortedTxn,
    TxnIndex,
    TxnIndexCorrupt,
    render,
)


def aborted_in(disk: Disk, segments: list[Segment], start: Offset, limit: Offset) -> list[AbortedTxn]:
    """The aborted transactions with records in `[start, limit)`, by their markers. May read index files.
    Raises StorageError.
    """
    found: list[AbortedTxn] = []
    for segment in segments[max(bisect_right(segments, start, key=base_offset_of) - 1, 0) :]:
        if segment.has_aborted:
            part, is_all = index_of(disk, segments, segment).aborted_in(start, limit)
            found += part
            if is_all:
                break
    return found


_LOOKED_UP_BYTES = 3 * 8192
"""The bytes read to confirm one entry. If all entries need more than the whole segment, a walk through it
takes a tenth of the time.
"""


class IndexReading:
    """The indexes that a reader of `[start, limit)` needs and that are not in memory.

    Invariant: `run` reads nothing that the loop changes, and may run in any thread, once.
    """

    __slots__ = ("_disk", "_limit", "_parts", "_read", "_segments", "_start", "_unread")

    def __init__(self, disk: Disk, segments: list[Segment], start: Offset, limit: Offset) -> None:
        self._disk = disk
        self._segments = segments
        self._start = start
        self._limit = limit
        first = max(bisect_right(segments, start, key=base_offset_of) - 1, 0)
        self._unread = [index for index in range(first, len(segments)) if _is_unread(segments[index])]
        self._parts = parts_of(segments)
        self._read: list[tuple[int, TxnIndex, bool]] = []

    def run(self) -> None:
        """The job: read the indexes. Raises StorageError."""
        twins = Twins(self._disk, self._parts)
        for at in self._unread:
            index, is_sound = _read_index(self._disk, twins, twins[at])
            self._read.append((at, index, is_sound))
            if index.aborted_in(self._start, self._limit)[1]:
                return

    def learn(self) -> None:
        """Keep the result in the segments that still exist. Raises StorageError."""
        there = {segment.base_offset: segment for segment in self._segments}
        for at, index, is_sound in self._read:
            segment, file, _ = self._parts[at]
            is_current = there.get(segment.base_offset) is segment and segment.file is file
            # Until a cleaned segment has its final name, that name belongs to another file or to none.
            if is_current and segment.txn_index is None and file.path == segment.path(LOG_SUFFIX):
                if not is_sound:
                    self._disk.write(segment.path(TXN_INDEX_SUFFIX), render(index.entries))
                segment.txn_index = index


def _is_unread(segment: Segment) -> bool:
    return segment.has_aborted and segment.txn_index is None


def is_all_read(segments: list[Segment], start: Offset, limit: Offset) -> bool:
    """Whether `aborted_in` answers from memory."""
    for index in range(max(bisect_right(segments, start, key=base_offset_of) - 1, 0), len(segments)):
        segment = segments[index]
        if segment.has_aborted:
            if segment.txn_index is None:
                return False
            if segment.txn_index.aborted_in(start, limit)[1]:
                return True
    return True


def index_of(disk: Disk, segments: Sequence[Segment], segment: Segment) -> TxnIndex:
    """The aborted transactions of a segment, read from the file on the first call, and rebuilt if the log
    does not confirm an entry. Raises StorageError.
    """
    if segment.txn_index is None:
        path = segment.path(TXN_INDEX_SUFFIX)
        if not segment.has_aborted:
            segment.txn_index = TxnIndex(disk, path, segment.base_offset)
            return segment.txn_index
        index, is_sound = _read_index(disk, segments, segment)
        if not is_sound:
            disk.write(path, render(index.entries))
        segment.txn_index = index
    return segment.txn_index


def _read_index(disk: Disk, segments: Sequence[Segment], segment: Segment) -> tuple[TxnIndex, bool]:
    """The index of a segment that has one, and whether the file has the same entries. Raises StorageError."""
    try:
        index = TxnIndex.load(disk, segment.path(TXN_INDEX_SUFFIX), segment.base_offset)
        if not len(index):
            made = _made_anew(disk, segments, segment)
            return made, not len(made)
        if (
            len(index) * _LOOKED_UP_BYTES >= segment.file.size
            and _made_anew(disk, segments, segment).entries == index.entries
        ):
            return index, True
        # Compaction may have removed the first batches of a transaction: a replay then finds a later
        # beginning than the entry.
        if all(_is_borne_out(segments, segment, aborted) for aborted in index.entries):
            return index, True
    except TxnIndexCorrupt:
        pass
    return _made_anew(disk, segments, segment), False


def recover_aborted(disk: Disk, segments: list[Segment], doubtful: int) -> list[DiskFile]:
    """Rebuild the indexes of the segments from `doubtful` on where their batches contradict them; returns the
    files to sync. Raises StorageError.
    """
    unsynced: list[DiskFile] = []
    for segment in segments[doubtful:]:
        path = segment.path(TXN_INDEX_SUFFIX)
        index = (
            _made_anew(disk, segments, segment)
            if segment.has_markers
            else TxnIndex(disk, path, segment.base_offset)
        )
        content = render(index.entries)
        if not content:
            if segment.has_aborted:
                disk.remove(path)
        elif disk.read(path) == content:
            unsynced.append(disk.open(path))
        else:
            disk.write(path, content)
        segment.has_aborted = bool(content)
        segment.txn_index = index
    return unsynced


def _made_anew(disk: Disk, segments: Sequence[Segment], segment: Segment) -> TxnIndex:
    """The index that a replay of the segment yields, given the transactions that are open at its
    base offset.
    """
    base_offset = segment.base_offset
    producers, _ = producers_before(
        disk, segment.directory, segments, log_start_offset=Offset(-1), end_offset=base_offset, now_ms=0
    )
    entries = replay_transactions(segment, base_offset, producers, OngoingTransactions(producers))
    return TxnIndex(disk, segment.path(TXN_INDEX_SUFFIX), base_offset, entries)


def _is_borne_out(segments: Sequence[Segment], segment: Segment, aborted: AbortedTxn) -> bool:
    found = segment.find(aborted.last_offset)
    if found is None:
        return False
    position, header = found
    if (
        header.last_offset != aborted.last_offset
        or header.producer_id != aborted.producer_id
        or not header.attributes & CONTROL_BIT
    ):
        return False
    marker = marker_of(segment.read_batch(position, header))
    if marker is None or marker.type is not ControlType.ABORT:
        return False
    if not _may_begin_at(segments, aborted.first_offset, producer_id=aborted.producer_id):
        return False
    last_stable_offset = aborted.last_stable_offset
    return last_stable_offset == aborted.last_offset + 1 or _may_begin_at(
        segments, last_stable_offset, but_not=aborted.producer_id
    )


def _may_begin_at(
    segments: Sequence[Segment], offset: int, *, producer_id: int | None = None, but_not: int | None = None
) -> bool:
    """Whether a transaction may begin at `offset`: a batch of a transaction begins there, or the log no
    longer has that offset.
    """
    header = _batch_with(segments, offset)
    if header is None:
        return True
    is_transactional = bool(header.attributes & TRANSACTIONAL_BIT) and not header.attributes & CONTROL_BIT
    return (
        header.base_offset == offset
        and is_transactional
        and header.producer_id != but_not
        and producer_id in (None, header.producer_id)
    )


def _batch_with(segments: Sequence[Segment], offset: int) -> BatchHeader | None:
    """The header of the batch that holds `offset`; None if compaction has removed it."""
    index = bisect_right(segments, offset, key=base_offset_of) - 1
    if index < 0:
        return None
    found = segments[index].find(offset)
    return found[1] if found is not None and found[1].base_offset <= offset else None
