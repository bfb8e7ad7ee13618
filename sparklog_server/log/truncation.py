"""Truncation of a log: the turn decides, a job does the blocking work, and a later turn adopts the result.

    begin (turn)      the batches beyond the cut leave the log, which takes no appends from now on
    run (job)         files removed, the newest first; the last file cut; one sync; producers replayed
    truncated (turn)  indexes cut or taken over, producers replaced; the log takes appends again

A crash before `truncated` leaves a prefix of the log that ends at the truncation offset or beyond it.
Recovery opens it if no checkpoint has an offset above the truncation offset; the caller ensures that before
`begin`.
"""

from collections.abc import Sequence

from sparklog.model import Instant, Offset
from sparklog_server.disk.door import Disk
from sparklog_server.log.lookup.aborted import index_of
from sparklog_server.log.producers.producer_recovery import recover_producers, remove_snapshots
from sparklog_server.log.producers.producer_state import ProducerState
from sparklog_server.log.segment.leader_epoch_cache import EPOCH_FILE, LeaderEpochCache
from sparklog_server.log.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    Twins,
    parts_of,
)
from sparklog_server.log.segment.txn_index import TXN_INDEX_SUFFIX


class Truncation:
    """The job of a truncation to `offset`, which lies in or after the last of the segments that are kept.

    Invariant: `run` reads nothing that the loop changes, and may run in any thread, once.
    """

    __slots__ = (
        "_bases",
        "_disk",
        "_dropped",
        "_has_index",
        "_log_start_offset",
        "_parts",
        "cut_offset",
        "position",
        "producers",
        "snapshot_offset",
        "twin",
    )

    def __init__(
        self,
        disk: Disk,
        kept: Sequence[Segment],
        dropped: Sequence[Segment],
        *,
        offset: Offset,
        log_start_offset: Offset,
    ) -> None:
        """`dropped` are the segments to remove, the newest first. Raises StorageError."""
        active = kept[-1]
        self._disk = disk
        self._dropped = dropped
        self._parts = parts_of(kept)
        self._bases = frozenset(segment.base_offset for segment in kept)
        self._has_index = active.index is not None
        found = active.find(offset)
        self.position = active.file.size if found is None else found[0]
        cut_offset = offset if found is None else min(found[1].base_offset, offset)
        self.cut_offset = Offset(max(active.base_offset, cut_offset))
        self._log_start_offset = min(log_start_offset, self.cut_offset)
        self.twin: Segment | None = None
        self.producers = ProducerState()
        self.snapshot_offset = offset

    def run(self) -> None:
        """The job: truncate the files. Raises StorageError."""
        for segment in self._dropped:
            remove_segment_files(self._disk, segment)
        twins = Twins(self._disk, self._parts)
        twin = self.twin = twins[-1]
        if self._has_index:
            twin.file.truncate(self.position)
        else:
            twin.truncate(self.position)
        txn_file = index_of(self._disk, twins, twin).truncate_to(self.cut_offset)
        # Before any append: otherwise a crash could restore the old end below a new segment.
        self._disk.sync([twin.file] if txn_file is None else [twin.file, txn_file])
        self.producers, self.snapshot_offset = recover_producers(
            self._disk,
            twin.directory,
            twins,
            bases=self._bases,
            log_start_offset=self._log_start_offset,
            end_offset=self.cut_offset,
            now_ms=0,
        )


class Restart:
    """The job that removes all records of a log, which becomes empty with `offset` as its start.

    Invariant: as for `Truncation`.
    """

    __slots__ = ("_directory", "_disk", "_dropped", "_now", "offset", "segment")

    def __init__(
        self, disk: Disk, directory: str, dropped: Sequence[Segment], *, offset: Offset, now: Instant
    ) -> None:
        """`dropped` are the segments of the log, the newest first."""
        self._disk = disk
        self._directory = directory
        self._dropped = dropped
        self._now = now
        self.offset = offset
        self.segment: Segment | None = None

    def run(self) -> None:
        """The job: remove the segments and begin a new one. Raises StorageError."""
        # No epoch may outlive its records: while records are left, recovery reads the epochs from the
        # batches.
        self._disk.write(f"{self._directory}/{EPOCH_FILE}", LeaderEpochCache().render())
        for segment in self._dropped:
            remove_segment_files(self._disk, segment)
        remove_snapshots(self._disk, self._directory)
        self.segment = Segment.open(self._disk, self._directory, self.offset, create=True)
        self.segment.created_ms = self._now.wall_ms
        self._disk.sync([self.segment.file])


def remove_segment_files(disk: Disk, segment: Segment) -> None:
    """Remove the files of a segment, its log first, because recovery ignores the others without it. Raises
    StorageError.
    """
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
        disk.remove(segment.path(suffix))
