"""The aborted transactions of a log, over the `.txnindex` files of its segments: read, doubted, made anew from the batches.

The file has no checksum, so an entry counts only if the log bears it out: an ABORT marker of that producer at its end, and no other batch
where it says that the transaction, or the next open one, began. One that lies has the index of its segment made anew.
"""

from bisect import bisect_right
from collections.abc import Sequence

from sparklog.model import Offset
from sparklog.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from sparklog.record.control import ControlType
from sparklog_server.disk.door import Disk, DiskFile

from .producer_recovery import producers_before
from .segment import Segment, base_offset_of, walk
from .transactions import Transactions, marker_of
from .txn_index import TXN_INDEX_SUFFIX, AbortedTxn, TxnIndex, TxnIndexCorrupt, render
from .validate import HeaderFields


def aborted_in(disk: Disk, segments: list[Segment], start: Offset, limit: Offset) -> list[AbortedTxn]:
    """The aborted transactions with records in `[start, limit)`, by their markers. May read index files. Raises StorageError."""
    found: list[AbortedTxn] = []
    for segment in segments[max(bisect_right(segments, start, key=base_offset_of) - 1, 0) :]:
        if segment.has_aborted:
            part, is_all = index_of(disk, segments, segment).aborted_in(start, limit)
            found += part
            if is_all:
                break
    return found


def index_of(disk: Disk, segments: list[Segment], segment: Segment) -> TxnIndex:
    """The index of a segment, read if it was not yet, and mended if the log does not bear it out. Raises StorageError."""
    if segment.txn_index is None:
        path = segment.path(TXN_INDEX_SUFFIX)
        if not segment.has_aborted:
            segment.txn_index = TxnIndex(disk, path, segment.base_offset)
            return segment.txn_index
        try:
            index = TxnIndex.load(disk, path, segment.base_offset)
            is_sound = all(_is_borne_out(segments, segment, aborted) for aborted in index.entries)
        except TxnIndexCorrupt:
            is_sound = False
        if not is_sound:
            index = _made_anew(disk, segments, segment)
            disk.write(path, render(index.entries))
        segment.txn_index = index
    return segment.txn_index


def recover_aborted(disk: Disk, segments: list[Segment], doubtful: int) -> list[DiskFile]:
    """Make the indexes of the segments from `doubtful` on agree with their batches; gives what to sync with them. Raises StorageError."""
    unsynced: list[DiskFile] = []
    for segment in segments[doubtful:]:
        path = segment.path(TXN_INDEX_SUFFIX)
        index = _made_anew(disk, segments, segment) if segment.has_markers else TxnIndex(disk, path, segment.base_offset)
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


def _made_anew(disk: Disk, segments: list[Segment], segment: Segment) -> TxnIndex:
    """What a replay of the segment says, given who had a transaction open where it begins."""
    base_offset = segment.base_offset
    producers, _ = producers_before(disk, segment.directory, segments, log_start_offset=Offset(-1), end_offset=base_offset)
    transactions = Transactions(producers)
    entries: list[AbortedTxn] = []
    for position, header in walk(segment.file, 0):
        if header[9] < 0 or not header[5] & TRANSACTIONAL_BIT:
            continue
        producers.appended(header, header[0], header[8])
        if header[5] & CONTROL_BIT:
            batch = segment.read_batch(position, header)
            if marker_of(batch) is not None:
                ended = transactions.judge(memoryview(batch), [(0, header)])
                transactions.ended(ended, producers)
                entries += ended.aborted
        else:
            transactions.began(header[9], Offset(header[0]))
    return TxnIndex(disk, segment.path(TXN_INDEX_SUFFIX), base_offset, entries)


def _is_borne_out(segments: Sequence[Segment], segment: Segment, aborted: AbortedTxn) -> bool:
    found = segment.find(aborted.last_offset)
    if found is None:
        return False
    position, header = found
    if header[0] + header[6] != aborted.last_offset or header[9] != aborted.producer_id or not header[5] & CONTROL_BIT:
        return False
    marker = marker_of(segment.read_batch(position, header))
    if marker is None or marker.type is not ControlType.ABORT:
        return False
    if not _may_begin_at(segments, aborted.first_offset, producer_id=aborted.producer_id):
        return False
    last_stable_offset = aborted.last_stable_offset
    return last_stable_offset == aborted.last_offset + 1 or _may_begin_at(segments, last_stable_offset, but_not=aborted.producer_id)


def _may_begin_at(segments: Sequence[Segment], offset: int, *, producer_id: int | None = None, but_not: int | None = None) -> bool:
    """Whether a transaction may begin at `offset`: a batch of one does, or the log has that offset no more."""
    header = _batch_with(segments, offset)
    if header is None:
        return True
    is_transactional = bool(header[5] & TRANSACTIONAL_BIT) and not header[5] & CONTROL_BIT
    return header[0] == offset and is_transactional and header[9] != but_not and producer_id in (None, header[9])


def _batch_with(segments: Sequence[Segment], offset: int) -> HeaderFields | None:
    """The header of the batch that holds `offset`; None if there is none, as after compaction."""
    index = bisect_right(segments, offset, key=base_offset_of) - 1
    if index < 0:
        return None
    found = segments[index].find(offset)
    return found[1] if found is not None and found[1][0] <= offset else None
