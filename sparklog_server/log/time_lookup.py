"""Records by their time: over all segments of a log, the first that is late enough, and the latest of all.

Segments and time indexes narrow it down to a batch; the batch is read and decoded to find the record. So this reads data, cold data too.
"""

from collections.abc import Sequence

from sparklog.errors import DecodeError, ErrorCode
from sparklog.record.batch import NO_TIMESTAMP, decode_records

from .segment import Segment
from .validate import HeaderFields, RecordsRefused


def first_at_or_after(segments: Sequence[Segment], timestamp: int, *, start: int, limit: int) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch) of the first record in `[start, limit)` that is `timestamp` or later; None if there is none.

    Raises RecordsRefused (CORRUPT_MESSAGE) if its batch cannot be decoded.
    """
    for segment in segments:
        if segment.base_offset >= limit:
            return None
        if segment.read_max_timestamp()[0] < timestamp:
            continue
        for position, header in segment.find_timestamp(timestamp, start):
            if header[0] >= limit:
                return None
            for at, offset in _timestamps(segment, position, header):
                if at >= timestamp and offset >= start:
                    return (at, offset, header[2]) if offset < limit else None
    return None


def latest(segments: Sequence[Segment]) -> tuple[int, int]:
    """(greatest timestamp, offset of the first record that has it in its batch); (-1, -1) if no record has a timestamp.

    Raises RecordsRefused (CORRUPT_MESSAGE) if its batch cannot be decoded.
    """
    best = max(segments, key=lambda segment: segment.read_max_timestamp()[0])
    timestamp, last_offset = best.read_max_timestamp()
    found = best.find(last_offset) if timestamp != NO_TIMESTAMP else None
    if found is not None:
        for at, offset in _timestamps(best, *found):
            if at == timestamp:
                return at, offset
    return NO_TIMESTAMP, -1


def _timestamps(segment: Segment, position: int, header: HeaderFields) -> list[tuple[int, int]]:
    """(timestamp, offset) of each record of a batch."""
    try:
        records = decode_records(segment.read_batch(position, header), verify_crc=False, include_control=True)
    except DecodeError as error:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path} at {position}: {error}") from error
    return [(record.timestamp, record.offset) for record in records]
