"""Writes snapshots of the metadata log and removes old ones: one job at a time, outside the event loop.

    published image ── enough bytes, or old enough ──► WRITE ──► listed
    too many bytes, or too old ──► CHECK the second oldest
                                     └──► REMOVE the oldest, and the log that the second replaces

The image is immutable, so the job writes it while the cluster continues. No snapshot is written if no record
was committed since the last one.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from itertools import islice

import msgspec

from sparklog.model import Instant, Micros, Millis, Offset, OffsetAndEpoch
from sparklog.record.batch import read_header
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.log.segment.segment import LOG_SUFFIX
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import batch_of
from sparklog_server.metadata.snapshot import records_of_image
from sparklog_server.raft.node import RaftNode
from sparklog_server.raft.quorum_state import ENDED
from sparklog_server.raft.snapshots import (
    SnapshotDamaged,
    check,
    file_name,
    is_outdated,
    last_timestamp,
    remove,
    write,
)

_RECORDS_PER_BATCH = 16
"""Few, because to make one batch must not hold the GIL for long."""
_CLEAN_INTERVAL_US = 60_000_000
_RETRY_US = 60_000_000


class _Task(Enum):
    """The task of a job; see the picture of the module."""

    WRITE = "write"
    CHECK = "check"
    REMOVE = "remove"


class _Job(msgspec.Struct, frozen=True):
    """The job in progress; `new_bytes` is the part of the log that the snapshot covers."""

    task: _Task
    snapshot: OffsetAndEpoch
    new_bytes: int = 0


class SnapshotGenerator:
    """The snapshots of one metadata log. Invariant: `raft.snapshots` changes in the turn that processes the
    result of a job.
    """

    def __init__(
        self,
        disk: Disk,
        raft: RaftNode,
        settings: BrokerSettings,
        continuations: Continuations,
        *,
        trace: Callable[..., None],
        now: Instant,
    ) -> None:
        self._disk = disk
        self._raft = raft
        self._settings = settings
        self._continuations = continuations
        self._trace = trace
        self._job: _Job | None = None
        self._new_bytes = 0
        self._interval_us = settings.metadata_log.snapshot_interval_ms_max * 1000
        self._old_at_us = Micros(now.mono_us + self._interval_us)
        self._not_before_us = now.mono_us
        self._clean_us = now.mono_us

    @property
    def is_quiet(self) -> bool:
        """Whether no job is in progress."""
        return self._job is None

    def grown(self, size: int) -> None:
        """Count bytes that were committed, or replayed, and that no snapshot covers."""
        self._new_bytes += size

    def installed(self) -> None:
        """A snapshot of the leader has taken the place of the log."""
        self._new_bytes = 0

    def deadline(self, image: MetadataImage) -> Micros | None:
        """The next time for `begin_due` without an event before it."""
        if self._job is not None:
            return None
        clean_us = self._clean_us if len(self._raft.snapshots) > 1 else None
        if not self._interval_us or not self._has_news(image):
            return clean_us
        write_us = self._old_at_us if self._old_at_us > self._not_before_us else self._not_before_us
        return write_us if clean_us is None or write_us < clean_us else clean_us

    def begin_due(self, image: MetadataImage, now: Instant) -> None:
        """Begin to write a snapshot of the published image if one is due, or else remove the oldest if it
        is no longer kept.
        """
        if self._job is not None or self._raft.role in ENDED or self._raft.durable.is_cutting:
            return
        is_large = self._new_bytes >= self._settings.metadata_log.bytes_between_snapshots_max
        is_old = self._interval_us != 0 and now.mono_us >= self._old_at_us
        try:
            if (is_large or is_old) and now.mono_us >= self._not_before_us and self._has_news(image):
                self._begin_write(image, now)
            elif len(self._raft.snapshots) > 1 and now.mono_us >= self._clean_us:
                self._check_retention(now)
        except StorageError as error:
            self._refused(error, now)

    def _finished(self, error: StorageError | None, now: Instant) -> None:
        """Process the result of the job. Only a full disk and a damaged file do not halt the broker."""
        assert self._job is not None
        job, self._job = self._job, None
        snapshots = self._raft.snapshots
        if self._raft.role in ENDED:
            return
        if not (self._is_newer(job.snapshot) if job.task is _Task.WRITE else job.snapshot in snapshots):
            return  # a snapshot of the leader was installed meanwhile
        if isinstance(error, SnapshotDamaged):
            snapshots.remove(job.snapshot)
            self._trace(
                "metadata-snapshot-damaged", path=error.path, position=error.position, reason=error.reason
            )
        elif error is not None:
            self._refused(error, now)
        elif job.task is _Task.WRITE:
            snapshots.append(job.snapshot)
            self._new_bytes = max(self._new_bytes - job.new_bytes, 0)
            self._old_at_us, self._clean_us = Micros(now.mono_us + self._interval_us), now.mono_us
            self._trace("metadata-snapshot", offset=job.snapshot.offset, epoch=job.snapshot.epoch)
        elif job.task is _Task.CHECK:
            self._begin_removal(job.snapshot, now)
        else:
            snapshots.remove(job.snapshot)

    def _refused(self, error: StorageError, now: Instant) -> None:
        """The disk refused a call: retry later if it has no space or the process no descriptors,
        else halt.
        """
        if not error.is_full:
            self._raft.halt(error)
            return
        self._not_before_us = self._clean_us = Micros(now.mono_us + _RETRY_US)
        self._trace("metadata-snapshot-failed", path=error.path, reason=error.reason)

    def _has_news(self, image: MetadataImage) -> bool:
        # At the next start a snapshot replaces the log below it, so it must be durable here.
        raft = self._raft
        newest = raft.snapshots[-1].offset if raft.snapshots else 0
        return newest <= image.offset < raft.log.recovery_point and image.open_transaction is None

    def _is_newer(self, snapshot: OffsetAndEpoch) -> bool:
        snapshots = self._raft.snapshots
        return not snapshots or snapshots[-1] < snapshot

    def _begin_write(self, image: MetadataImage, now: Instant) -> None:
        raft = self._raft
        last = read_header(next(raft.durable.read(image.offset, Offset(image.offset + 1))))
        snapshot = OffsetAndEpoch(Offset(image.offset + 1), raft.log.epochs.epoch_at(image.offset))
        job = partial(
            write,
            self._disk,
            raft.log.directory,
            snapshot,
            _batches_of(image, now.wall_ms),
            last_timestamp=Millis(last.max_timestamp),
            wall_ms=now.wall_ms,
            control=raft.membership(snapshot.offset).control(),
        )
        self._begin(_Task.WRITE, snapshot, job, new_bytes=self._new_bytes)

    def _check_retention(self, now: Instant) -> None:
        raft, directory = self._raft, self._raft.log.directory
        oldest, successor = raft.snapshots[:2]
        if not is_outdated(
            [self._disk.size(f"{directory}/{file_name(snapshot)}") for snapshot in raft.snapshots],
            last_timestamp(self._disk, directory, oldest),
            log_bytes=sum(
                self._disk.size(f"{directory}/{name}")
                for name in self._disk.list(directory)
                if name.endswith(LOG_SUFFIX)
            ),
            retention_bytes=self._settings.metadata_log.retention_bytes_max,
            retention_ms=self._settings.metadata_log.retention_ms_max,
            now_ms=now.wall_ms,
        ):
            self._clean_us = Micros(now.mono_us + _CLEAN_INTERVAL_US)
            return
        # Read the snapshot again before the records that it covers are removed.
        self._begin(_Task.CHECK, successor, partial(check, self._disk, directory, successor))

    def _begin_removal(self, successor: OffsetAndEpoch, now: Instant) -> None:
        raft = self._raft
        oldest = raft.snapshots[0]
        raft.log.move_log_start(successor.offset)
        try:
            retire = raft.log.retire(raft.high_watermark, now)
        except StorageError as error:
            self._refused(error, now)
            return
        self._begin(_Task.REMOVE, oldest, partial(remove, self._disk, raft.log.directory, oldest, retire))

    def _begin(
        self, task: _Task, snapshot: OffsetAndEpoch, job: Callable[[], None], *, new_bytes: int = 0
    ) -> None:
        self._job = _Job(task, snapshot, new_bytes)
        self._continuations.run(job, self._finished)


def _batches_of(image: MetadataImage, wall_ms: Millis) -> Iterator[bytearray]:
    records = records_of_image(image)
    while piece := list(islice(records, _RECORDS_PER_BATCH)):
        yield batch_of(piece, wall_ms)
