"""The conditions of a roll: the active segment is full, or older than `segment.ms` with its jitter."""

from sparklog.kernels import scan
from sparklog.model import Millis
from sparklog.record.batch import LENGTH_OVERHEAD, NO_TIMESTAMP, BatchHeader
from sparklog_server.log.segment.segment import RELATIVE_OFFSET_MAX, Segment

from .log_config import LogConfig

NOT_KNOWN = NO_TIMESTAMP - 1
"""Below every timestamp: a comparison with it takes the slow path."""


def must_roll(
    active: Segment,
    settings: LogConfig,
    size: int,
    last_offset: int,
    max_timestamp: int,
    *,
    opened_ms: Millis,
    now_ms: Millis,
) -> bool:
    """Whether Kafka would roll before `size` bytes up to `last_offset`."""
    return (
        active.file.size + size > settings.segment_bytes
        or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
        or active.has_full_index(settings.segment_index_bytes)
        or has_waited(active, settings, max_timestamp, opened_ms=opened_ms, now_ms=now_ms)
    )


def has_waited(
    active: Segment, settings: LogConfig, max_timestamp: int, *, opened_ms: Millis, now_ms: Millis
) -> bool:
    """Whether `segment.ms` has passed, by the timestamps of the records if the segment's first batch has one,
    else by the clock.
    """
    if active.file.size == 0:
        return False
    first_timestamp = active.first_timestamp
    if first_timestamp >= 0:
        return max_timestamp - first_timestamp > _age_max_ms(active, settings)
    return now_ms - max(active.created_ms, opened_ms) > _age_max_ms(active, settings)


def rolls_after_ms(active: Segment, settings: LogConfig, max_timestamp: int) -> int:
    """The greatest timestamp of a batch that does not close the segment for its age, if the next batch has
    `max_timestamp`.
    """
    first_timestamp = active.first_timestamp if active.file.size else max_timestamp
    return first_timestamp + _age_max_ms(active, settings) if first_timestamp >= 0 else NOT_KNOWN


def whole_that_fit(found: list[tuple[int, BatchHeader]], segment_bytes: int) -> tuple[int, int, int]:
    """The bytes, the number and the greatest timestamp of the first batches that fit into one segment; at
    least one, so that its size can be refused.
    """
    size, count, first_offset, max_timestamp = 0, 0, found[0][1].base_offset, NO_TIMESTAMP
    for _, header in found:
        length = header.length + LENGTH_OVERHEAD
        relative_offset = header.base_offset + header.last_offset_delta - first_offset
        if count and (size + length > segment_bytes or relative_offset > RELATIVE_OFFSET_MAX):
            break
        size, count = size + length, count + 1
        if header.max_timestamp > max_timestamp:
            max_timestamp = header.max_timestamp
    return size, count, max_timestamp


def _age_max_ms(active: Segment, settings: LogConfig) -> int:
    """`segment.ms` less the jitter of this segment, which does not change."""
    jitter_max_ms = min(settings.segment_jitter_ms, settings.segment_ms)
    if jitter_max_ms == 0:
        return settings.segment_ms
    name = active.file.path.rpartition("/")[0].rpartition("/")[2]
    return settings.segment_ms - scan.crc(f"{name}:{active.base_offset}".encode()) % jitter_max_ms
