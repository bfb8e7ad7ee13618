"""The transactions with a marker at or above the high watermark, in a log that is opened: such a marker may
still be truncated, so its transaction is not decided.

    first offset ── records ── high watermark ── marker ── log end          held until the marker is committed
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from sparklog.model import Offset
from sparklog.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from sparklog_server.disk.door import Disk
from sparklog_server.log.segment.segment import Segment, base_offset_of, walk
from sparklog_server.log.segment.txn_index import AbortedTxn

from .ongoing_transactions import OngoingTransactions, marker_of
from .producer_recovery import producers_before
from .producer_state import ProducerState


def held_transactions(
    disk: Disk, directory: str, segments: Sequence[Segment], high_watermark: Offset, end_offset: Offset
) -> list[tuple[int, int]]:
    """(first offset, offset of the marker) of each transaction with a marker in `[high_watermark,
    end_offset)`. Raises StorageError.

    Reads the headers of that range, and only if there is a marker, also the producers before it.
    """
    first = _first_marker(segments, high_watermark, end_offset)
    if first is None:
        return []
    producers, _ = producers_before(
        disk, directory, segments, log_start_offset=Offset(-1), end_offset=first, now_ms=0
    )
    transactions = OngoingTransactions(producers)
    for segment in _from(segments, first):
        replay(segment, first, producers, transactions)
    return list(transactions.held)


def replay(
    segment: Segment, start: Offset, producers: ProducerState, transactions: OngoingTransactions
) -> list[AbortedTxn]:
    """Let `producers` and `transactions` take the transactional batches of a segment from `start` on; returns
    the transactions that were aborted there. Raises StorageError.
    """
    aborted: list[AbortedTxn] = []
    for position, header in _batches_from(segment, start):
        if header.producer_id < 0 or not header.attributes & TRANSACTIONAL_BIT:
            continue
        producers.appended(header, header.base_offset, header.max_timestamp, 0)
        if header.attributes & CONTROL_BIT:
            batch = segment.read_batch(position, header)
            if marker_of(batch) is not None:
                ended = transactions.judge(memoryview(batch), [(0, header)])
                transactions.ended(ended, producers)
                aborted += ended.aborted
        else:
            transactions.began(header.producer_id, Offset(header.base_offset))
    return aborted


def _first_marker(segments: Sequence[Segment], start: Offset, limit: Offset) -> Offset | None:
    """The offset of the first marker in `[start, limit)`."""
    if start >= limit:
        return None
    for segment in _from(segments, start):
        for _, header in _batches_from(segment, start):
            if header.producer_id >= 0 and header.attributes & CONTROL_BIT:
                return Offset(header.base_offset)
    return None


def _from(segments: Sequence[Segment], start: Offset) -> Sequence[Segment]:
    """The segments that may hold records from `start` on."""
    return segments[max(bisect_right(segments, start, key=base_offset_of) - 1, 0) :]


def _batches_from(segment: Segment, start: Offset) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of each batch of the segment that begins at `start` or above."""
    found = segment.find(start) if segment.base_offset < start else (0, None)
    if found is None:
        return
    for position, header in walk(segment.file, found[0]):
        if header.base_offset >= start:
            yield position, header
