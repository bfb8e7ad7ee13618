"""The producer state as of an offset, from the newest valid snapshot and the batches after it.

The snapshot has the times at which its producers appended. For the batches after it there is no such time, so
they count as appended at `now_ms`: a producer is kept for too long rather than for too short a time.

A marker at or above the high watermark may still be truncated, so its transaction is not decided:

    first offset ── records ── high watermark ── marker ── log end          held until the marker is committed
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from sparklog.model import Offset
from sparklog.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from sparklog_server.disk.door import Disk
from sparklog_server.log.segment.segment import (
    SNAPSHOT_SUFFIX,
    Segment,
    base_offset_of,
    file_name,
    offset_of,
    walk,
)
from sparklog_server.log.segment.txn_index import AbortedTxn

from .ongoing_transactions import OngoingTransactions, marker_of
from .producer_state import ProducerState, SnapshotCorrupt


def recover_producers(
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    *,
    bases: frozenset[Offset],
    log_start_offset: Offset,
    end_offset: Offset,
    now_ms: int,
) -> tuple[ProducerState, Offset]:
    """The producer state, and the offset of the snapshot that it is based on.

    Removes the snapshots that recovery will not use: all but the newest and those at `bases`, the base
    offsets of the segments. Raises StorageError.
    """
    snapshots = _snapshots(disk, directory)
    newest = max((offset for offset in snapshots if offset <= end_offset), default=None)
    for offset in snapshots:
        if offset > end_offset or (offset != newest and offset not in bases):
            disk.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    return producers_before(
        disk, directory, segments, log_start_offset=log_start_offset, end_offset=end_offset, now_ms=now_ms
    )


def producers_before(
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    *,
    log_start_offset: Offset,
    end_offset: Offset,
    now_ms: int,
) -> tuple[ProducerState, Offset]:
    """The producer state from every batch below `end_offset`, and the offset of the snapshot that it is based
    on. Raises StorageError.
    """
    for offset in sorted(_snapshots(disk, directory), reverse=True):
        if not log_start_offset < offset <= end_offset:
            continue
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        content = disk.read(path)
        if content is None:
            continue
        try:
            producers = ProducerState.parse(content)
        except SnapshotCorrupt:
            disk.remove(path)
            continue
        for producer in producers.producers.values():
            # Later than now: the wall clock was set back since, or Kafka wrote the snapshot with the
            # timestamp of a client.
            producer.appended_ms = min(producer.appended_ms, now_ms)
        _replay_producers(segments, producers, offset, end_offset, now_ms)
        return producers, offset
    producers = ProducerState()
    _replay_producers(segments, producers, log_start_offset, end_offset, now_ms)
    return producers, log_start_offset


def remove_snapshots(disk: Disk, directory: str) -> None:
    """Remove every snapshot. Raises StorageError."""
    disk.remove(
        *(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}" for offset in _snapshots(disk, directory))
    )


def unreplicated_transactions(
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
        replay_transactions(segment, first, producers, transactions)
    return list(transactions.unreplicated)


def replay_transactions(
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


def _snapshots(disk: Disk, directory: str) -> list[Offset]:
    return [
        offset for name in disk.list(directory) if (offset := offset_of(name, SNAPSHOT_SUFFIX)) is not None
    ]


def _replay_producers(
    segments: Sequence[Segment], producers: ProducerState, start: Offset, end_offset: Offset, now_ms: int
) -> None:
    """Let `producers` take every batch with records in `[start, end_offset)`, also one of which DeleteRecords
    has removed a part.
    """
    if start >= end_offset:
        return
    first = max(bisect_right(segments, start, key=base_offset_of) - 1, 0)
    for segment in segments[first:]:
        if segment.base_offset >= end_offset:
            return
        position = 0
        if segment.base_offset < start:
            found = segment.find(start)
            if found is None:
                continue
            position = found[0]
        for at, header in walk(segment.file, position):
            if header.producer_id < 0:
                continue
            if header.base_offset >= end_offset:
                return
            producers.appended(header, header.base_offset, header.max_timestamp, now_ms)
            if (
                header.attributes & CONTROL_BIT
                and (marker := marker_of(segment.read_batch(at, header))) is not None
            ):
                producers.decided(header.producer_id, marker.coordinator_epoch)
