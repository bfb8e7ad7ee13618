"""Retention of a log: the choice of its oldest segments that are no longer kept, and the removal of their
files.

    in the log ── log start offset moves ──► renamed to `.deleted` ── file.delete.delay.ms ──► removed

The choice is made in a turn of the broker, files are renamed and removed by jobs; files that a crash leaves
under `.deleted` are removed after the next start, once no checkpoint on disk needs them to determine the log
start offset.
"""

from collections.abc import Sequence

from sparklog.model import Millis, Offset
from sparklog.record.batch import NO_TIMESTAMP
from sparklog_server.disk.ballast import rename_all
from sparklog_server.disk.door import Disk
from sparklog_server.disk.removal import Removal, removal
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.segment.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment, file_name

from .swap import DELETED_SUFFIX

_READ_AT_ONCE = 64
Ages = dict[Offset, tuple[int, int]]
"""(greatest timestamp, last offset of the batch that has it) by base offset."""


def count_deletable(
    segments: Sequence[Segment],
    settings: LogConfig,
    *,
    log_start_offset: Offset,
    log_end_offset: Offset,
    limit: Offset,
    opened_ms: Millis,
    now_ms: Millis,
) -> int:
    """The number of oldest segments that may be removed, the active one included unless it is empty; a
    segment that ends beyond `limit` may not.

    In Kafka's order: segments below the log start offset, then those beyond `retention.bytes`, then those
    older than `retention.ms`. A segment without timestamps is as old as its roll, or as the opening of its
    log. Reads an index file if `unread` is not empty. Raises StorageError.
    """
    count = 0
    while count < len(segments) - 1 and segments[count + 1].base_offset <= log_start_offset:
        count += 1
    if not settings.is_deleted:
        return count
    committed = count
    while committed < len(segments) and _next_offset(segments, committed, log_end_offset) <= limit:
        committed += 1
    if committed == len(segments) and segments[-1].file.size == 0:
        committed -= 1
    if settings.retention_bytes >= 0:
        excess = sum(segment.file.size for segment in segments[count:]) - settings.retention_bytes
        while count < committed and excess >= segments[count].file.size:
            excess -= segments[count].file.size
            count += 1
    if settings.retention_ms >= 0:
        while count < committed and now_ms - _newest(segments[count], opened_ms) > settings.retention_ms:
            count += 1
    return count


def unread(settled: Sequence[Segment], settings: LogConfig, now_ms: Millis) -> list[Segment]:
    """The oldest segments of unknown age, whose greatest timestamps `read_ages` must read."""
    if not settings.is_deleted or settings.retention_ms < 0:
        return []
    unknown: list[Segment] = []
    for segment in settled:
        if not segment.knows_max_timestamp:
            unknown.append(segment)
            if len(unknown) == _READ_AT_ONCE:
                break
        elif not unknown and now_ms - segment.max_timestamp <= settings.retention_ms:
            break
    return unknown


def read_ages(segments: Sequence[Segment], oldest_kept_ms: int) -> Ages:
    """The greatest timestamps of sealed segments, up to the first that is not old enough. Blocks: a job.
    Raises StorageError.
    """
    ages: Ages = {}
    for segment in segments:
        twin = segment.twin()
        ages[segment.base_offset] = twin.read_max_timestamp()
        twin.close()
        if ages[segment.base_offset][0] >= oldest_kept_ms:
            break
    return ages


def note_ages(settled: Sequence[Segment], ages: Ages) -> None:
    """Store the results of `read_ages` in the segments that still exist and whose age is unknown; a segment
    that was compacted since knows its age.
    """
    for segment in settled:
        if segment.base_offset in ages and not segment.knows_max_timestamp:
            segment.max_timestamp, segment.max_timestamp_offset = ages[segment.base_offset]


def _next_offset(segments: Sequence[Segment], index: int, log_end_offset: Offset) -> Offset:
    return segments[index + 1].base_offset if index + 1 < len(segments) else log_end_offset


def _newest(segment: Segment, opened_ms: Millis) -> int:
    timestamp = segment.read_max_timestamp()[0]
    return timestamp if timestamp != NO_TIMESTAMP else max(segment.created_ms, opened_ms)


def set_aside(disk: Disk, directory: str, base_offsets: Sequence[Offset]) -> Removal:
    """Rename the files of these segments, oldest first, so that a crash leaves a log without a hole; returns
    the job that removes them.

    The other files of a segment are renamed once the new name of its log is durable. Opening removes such
    files without a log; a log without its `.txnindex` would expose aborted records. Blocks. Raises
    StorageError.
    """
    names = frozenset(disk.list(directory))
    data_directory = directory.rpartition("/")[0]
    renamed: list[str] = []
    following: list[tuple[str, str]] = []
    for base_offset in base_offsets:
        found = [
            name for name in (file_name(base_offset, suffix) for suffix in SEGMENT_SUFFIXES) if name in names
        ]
        moves = [(f"{directory}/{name}", f"{directory}/{name}{DELETED_SUFFIX}") for name in found]
        has_log = file_name(base_offset, LOG_SUFFIX) in names
        rename_all(disk, data_directory, [*following, *moves[:has_log]])
        following = moves[has_log:]
        renamed += [path for _, path in moves]
    rename_all(disk, data_directory, following)
    return removal(disk, renamed)
