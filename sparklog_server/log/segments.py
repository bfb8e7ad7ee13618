"""The segments of one log, and the sync of their files.

    active ── roll ──► sealed ── begin_settling ──► settling ── settle ──► settled
       ▲                                                                      │
       └──────────── a truncation: the last segment that is left ◄────────────┘

A settled segment never changes: its batches and its index files are durable. Compaction and retention take
settled segments only. A sync covers the files that are written and not synced yet:

    begin ──► the files, in this order ──► end: the lowest offset that the log was truncated to
                      │
                      └── cut, by a truncation: lowers that

The active segment rolls when it is full, or older than `segment.ms` with its jitter.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from sparklog.effects import FileSlice
from sparklog.kernels import scan
from sparklog.model import Instant, Millis, Offset
from sparklog.record.batch import LENGTH_OVERHEAD, NO_TIMESTAMP, BatchHeader
from sparklog_server.disk.door import Disk, DiskFile, StorageError
from sparklog_server.log.cleaning.swap import Cleaned, take_over
from sparklog_server.log.lookup.aborted import IndexReading, aborted_in, index_of, is_all_read
from sparklog_server.log.lookup.places import Places
from sparklog_server.log.segment.segment import (
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    SNAPSHOT_SUFFIX,
    Segment,
    base_offset_of,
    file_name,
    offset_of,
)
from sparklog_server.log.segment.txn_index import AbortedTxn

from .log_config import LogConfig
from .truncation import Restart, Truncation

NO_CUT = Offset((1 << 63) - 1)
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
        or _has_waited(active, settings, max_timestamp, opened_ms=opened_ms, now_ms=now_ms)
    )


def _has_waited(
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


def _is_of_rest(path: str, active_base_offset: int) -> bool:
    """Whether a file to be synced describes only the log before the active segment."""
    digits, _, suffix = path.rpartition("/")[2].partition(".")
    if not digits.isdecimal():
        return True
    return int(digits) < active_base_offset or (
        int(digits) == active_base_offset and f".{suffix}".startswith(SNAPSHOT_SUFFIX)
    )


def remove_stale_snapshots(
    disk: Disk, directory: str, segments: Sequence[Segment], snapshot_offset: Offset
) -> None:
    """Remove the snapshots of truncated offsets that a sync in flight may have renamed into place. Raises
    StorageError.
    """
    bases = frozenset(segment.base_offset for segment in segments)
    for name in disk.list(directory):
        offset = offset_of(name, SNAPSHOT_SUFFIX)
        if offset is not None and offset not in bases and offset != snapshot_offset:
            disk.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")


class Unsynced:
    """The files to sync of one log. Invariants: at most one sync is in progress; the log file of the active
    segment, which every sync includes, is not in `files`.
    """

    __slots__ = ("_cut_to", "files", "is_syncing")

    def __init__(self, files: list[DiskFile]) -> None:
        self.files = files
        self.is_syncing = False
        self._cut_to = NO_CUT

    def begin(self) -> list[DiskFile]:
        """The files of a sync that begins now; later writes belong to the next."""
        files, self.files = self.files, []
        self.is_syncing = True
        return files

    def cut(self, end_offset: Offset, active_base_offset: Offset) -> None:
        """Note that the log was truncated to `end_offset`, which lies in the active segment."""
        self.files = [file for file in self.files if _is_of_rest(file.path, active_base_offset)]
        if self.is_syncing:
            self._cut_to = min(self._cut_to, end_offset)

    def end(self) -> Offset:
        """End the sync. Returns the lowest offset to which the log was truncated meanwhile, `NO_CUT` if it
        was not.
        """
        cut_to, self._cut_to = self._cut_to, NO_CUT
        self.is_syncing = False
        return cut_to


class Segments:
    """The segments of one log. Invariants: `all` is never empty and sorted by base offset; it is one list
    object, shared with `places`; its last element is `active`.

    While `is_swapping`, the files of settled segments must not be removed or truncated: some are being
    renamed.
    """

    __slots__ = (
        "_disk",
        "_moving_to",
        "_settling",
        "active",
        "all",
        "cuts",
        "is_cutting",
        "is_restarting",
        "is_swapping",
        "places",
        "sealed",
    )

    def __init__(self, disk: Disk, segments: list[Segment]) -> None:
        self._disk = disk
        self.all = segments
        self.active = segments[-1]
        self.places = Places(segments)
        self.is_swapping = False
        self.is_cutting = False
        self.is_restarting = False  # it removes every segment
        self.sealed = [
            segment for segment in segments[:-1] if segment.index is not None
        ]  # since the last `begin_settling`
        self._settling: list[Segment] = []
        self._moving_to = ""  # the directory of every segment at the end of a move that has begun
        self.cuts = 0

    # -- sync

    def roll(self, directory: str, base_offset: Offset, now: Instant) -> None:
        """Seal the active segment and begin a new one at `base_offset`. Raises StorageError, and then nothing
        has changed.
        """
        segment = Segment.open(self._disk, directory, base_offset, create=True)
        if segment.file.size:
            segment.file.truncate(0)
        segment.created_ms = now.wall_ms
        self.sealed.append(self.active)
        self.all.append(segment)
        self.active = segment

    def begin_settling(self) -> None:
        """Note the sealed segments that the sync now beginning makes durable."""
        self._settling += self.sealed
        self.sealed = []

    def settle(self) -> None:
        """Settle the segments of `begin_settling`: the sync is done."""
        for segment in self._settling:
            segment.settle()
        self._settling = []

    @property
    def settled(self) -> list[Segment]:
        """The sealed segments before the first whose index files are not durable yet."""
        return self.all[: bisect_left(self.all, self.first_unsettled_offset, key=base_offset_of)]

    @property
    def first_unsettled_offset(self) -> Offset:
        """The end offset of `settled`."""
        return min(segment.base_offset for segment in (*self.sealed, *self._settling, self.active))

    # -- compaction, retention, truncation

    def swap_in(self, cleaned: Cleaned) -> bool:
        """Replace segments by the cleaned segment made from them; False if they no longer exist, or the log
        is being truncated. Raises StorageError.
        """
        assert not self.is_swapping
        if self.is_cutting:
            return False
        replaced = [segment for segment in self.settled if segment.base_offset in cleaned.replaced]
        if tuple((segment.base_offset, segment.file.size) for segment in replaced) != cleaned.before:
            return False
        first = self.all.index(replaced[0])
        self.all[first : first + len(replaced)] = [take_over(self._disk, cleaned, replaced)]
        self.places.clear()
        self.is_swapping = True
        return True

    def swapped(self, base_offset: Offset) -> None:
        """Note that the files of the cleaned segment have their final names. Raises StorageError."""
        self.is_swapping = False
        for segment in self.all:
            if segment.base_offset == base_offset:
                pinned, segment.file = segment.file, self._disk.open(segment.path(LOG_SUFFIX))
                pinned.close()
                segment.settle()

    def retire(self, count: int) -> Sequence[Segment]:
        """Remove the oldest segments from the log and close them; retained slices of them stay readable."""
        retired, self.all[:count] = self.all[:count], []
        self.places.clear()
        for segment in retired:
            segment.close()
        return retired

    def move_active(self, directory: str) -> None:
        """Continue in the copy in another directory; the sealed segments follow. Raises StorageError, and
        then nothing has changed.
        """
        assert self.is_all_settled
        self.active.move(directory)
        self._moving_to = directory
        self.places.clear()

    def move_sealed(self, count: int) -> bool:
        """Use the copies of the next `count` sealed segments; True if all segments are moved. Raises
        StorageError.
        """
        for segment in self.all:
            if count and self._moving_to and segment.directory != self._moving_to:
                segment.move(self._moving_to)
                count -= 1
        return not self._moving_to or all(segment.directory == self._moving_to for segment in self.all)

    @property
    def is_all_settled(self) -> bool:
        """Whether every segment but the active one is settled."""
        return not self.sealed and not self._settling

    def batch_start(self, offset: Offset) -> Offset:
        """The base offset of the batch that has `offset`; `offset` if there is none. Raises StorageError."""
        segment = self.all[max(0, bisect_right(self.all, offset, key=base_offset_of) - 1)]
        found = segment.find(offset)
        return offset if found is None else min(Offset(found[1].base_offset), offset)

    def begin_cut(self, offset: Offset, log_start_offset: Offset) -> Truncation:
        """Remove every batch with an offset of `offset` or above from the log. Returns the job that removes
        them from the disk; the log takes no appends until it is done. Raises StorageError.
        """
        dropped = self._begin_dropping(offset)
        truncation = Truncation(
            self._disk, self.all, dropped, offset=offset, log_start_offset=log_start_offset
        )
        self.active.file.size = truncation.position
        return truncation

    def begin_restart(self, directory: str, offset: Offset, now: Instant) -> Restart:
        """As `begin_cut`, for the whole log, which starts anew at `offset`. Raises StorageError."""
        dropped = self._begin_dropping(Offset(0))
        self.is_restarting = True
        return Restart(self._disk, directory, [*dropped, self.active], offset=offset, now=now)

    def _begin_dropping(self, offset: Offset) -> list[Segment]:
        """Remove the segments with a base offset of `offset` or above, except the first; returns them, the
        newest first.
        """
        assert not self.is_swapping, "compacted segments are committed: no truncation reaches them"
        assert not self.is_cutting
        self.move_sealed(len(self.all))
        self.is_cutting = True
        self.cuts += 1
        self.places.clear()
        dropped = []
        while len(self.all) > 1 and self.all[-1].base_offset >= offset:
            dropped.append(self.all.pop())
            dropped[-1].close()
        active = self.active = self.all[-1]
        gone = (active, *dropped)
        self.sealed = [segment for segment in self.sealed if segment not in gone]
        self._settling = [segment for segment in self._settling if segment not in gone]
        return dropped

    def cut(self, truncation: Truncation) -> Offset:
        """Apply the result of the job; returns the offset after the last batch."""
        active, twin = self.active, truncation.twin
        assert twin is not None
        active.file.truncate(truncation.position)
        if active.index is None:
            active.take_indexes(twin)
        else:
            active.truncate_indexes(truncation.position, truncation.cut_offset)
        if active.txn_index is not None:
            active.txn_index.close()
        active.txn_index = twin.txn_index
        twin.file.close()
        last = active.count_tail()
        self.places.clear()  # a sync may have noted the end meanwhile
        self.is_cutting = False
        return Offset(active.base_offset if last is None else last.next_offset)

    def restarted(self, restart: Restart) -> None:
        """Apply the result of the job: the log is one empty segment."""
        assert restart.segment is not None
        self.active.close()
        self.active = restart.segment
        self.all[:] = [restart.segment]
        self.places.clear()  # a sync may have noted the end of the old segment meanwhile
        self.is_cutting = self.is_restarting = False

    # -- transactions

    def aborted_in(self, start: Offset, limit: Offset) -> list[AbortedTxn]:
        """The aborted transactions with records in `[start, limit)`, in the order of their markers. Raises
        StorageError.
        """
        return aborted_in(self._disk, self.all, start, limit)

    def aborted_within(self, part: FileSlice, start: Offset, limit: Offset) -> list[AbortedTxn]:
        """The aborted transactions that a reader from `start` on may find in a slice of the records below
        `limit`. Raises StorageError.
        """
        if not any(segment.has_aborted for segment in self.all):
            return []
        return self.aborted_in(start, self.places.end_of(part, limit))

    def index_reading(self, part: FileSlice, start: Offset, limit: Offset) -> IndexReading | None:
        """The index files to read in a job before `aborted_within`; None if all are in memory."""
        if not any(segment.has_aborted for segment in self.all):
            return None
        return self.reading_of_aborted(start, self.places.end_of(part, limit))

    def reading_of_aborted(self, start: Offset, limit: Offset) -> IndexReading | None:
        """The index files to read in a job before `aborted_in`; None if all are in memory."""
        return (
            None if is_all_read(self.all, start, limit) else IndexReading(self._disk, self.all, start, limit)
        )

    def write(
        self, batches: memoryview, base_offset: int, aborted: Sequence[AbortedTxn]
    ) -> tuple[int, list[DiskFile]]:
        """Append whole batches, and the index entries of the transactions that their markers aborted. Returns
        their position and the additional files to sync.

        Raises StorageError, and then nothing has changed.
        """
        if not aborted:
            return self.active.file.append(batches), []
        # The entries first: if the log cannot be written, it costs less to remove them than to truncate the
        # log.
        index = index_of(self._disk, self.all, self.active)
        file = index.append(aborted)
        self.active.has_aborted = True
        try:
            return self.active.file.append(batches), [file]
        except StorageError:
            index.truncate_to(base_offset)
            raise
