"""The producer state as of an offset, from the newest valid snapshot and the batches after it.

The snapshot has the times at which its producers appended. For the batches after it there is no such time, so
they count as appended at `now_ms`: a producer is kept for too long rather than for too short a time.
"""

from bisect import bisect_right
from collections.abc import Sequence

from sparklog.model import Offset
from sparklog.record.batch import CONTROL_BIT
from sparklog_server.disk.door import Disk
from sparklog_server.log.segment.segment import (
    SNAPSHOT_SUFFIX,
    Segment,
    base_offset_of,
    file_name,
    offset_of,
    walk,
)

from .ongoing_transactions import marker_of
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
        _replay(segments, producers, offset, end_offset, now_ms)
        return producers, offset
    producers = ProducerState()
    _replay(segments, producers, log_start_offset, end_offset, now_ms)
    return producers, log_start_offset


def remove_snapshots(disk: Disk, directory: str) -> None:
    """Remove every snapshot. Raises StorageError."""
    disk.remove(
        *(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}" for offset in _snapshots(disk, directory))
    )


def _snapshots(disk: Disk, directory: str) -> list[Offset]:
    return [
        offset for name in disk.list(directory) if (offset := offset_of(name, SNAPSHOT_SUFFIX)) is not None
    ]


def _replay(
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
