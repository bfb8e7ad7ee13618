"""The checkpoints of one data directory, and the records that they cover.

A checkpoint that names a deleted log would also cover the next log of that name, and one that covers
truncated records would also cover the records that replace them. So no log is created while a checkpoint
may name it, and none is truncated below an offset that one may cover: a later checkpoint must be on disk
first. For the same reason no file that a checkpoint covers is removed before that: if it is missing at a
start, something else removed it, and its partition is damaged.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from sparklog.effects import Steps
from sparklog.model import Offset, TopicPartition, Uuid
from sparklog_server.disk import ballast
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets, render_lines, render_offsets
from sparklog_server.disk.door import Disk, StorageError, replace_all
from sparklog_server.log.partition_log import PartitionLog

HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
_LINES_PER_STEP = 256
_NOTHING = Offset(-1)
_NO_LIMITS: Mapping[TopicPartition, Offset] = {}


class Damaged(msgspec.Struct, frozen=True):
    """A log that cannot be opened, and its offsets in the checkpoints: the damage is detected only as long as
    the checkpoints keep them.

    `is_missing` means that there is no directory, so that the topic id is not known.
    """

    topic_id: Uuid
    error: StorageError
    recovery_point: Offset
    high_watermark: Offset
    log_start_offset: Offset
    is_missing: bool = False


class Checkpoints:
    """The checkpoints of the directory at `path`, rendered from its `logs` and its `damaged` logs, which the
    owner of this object keeps up to date.

    Invariant: `_vouched` has each partition that a checkpoint may name, on disk or being written, with the
    greatest recovery point that it may give.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        logs: Mapping[TopicPartition, PartitionLog],
        damaged: Mapping[TopicPartition, Damaged],
    ) -> None:
        self._disk = disk
        self._path = path
        self._logs = logs
        self._damaged = damaged
        self._vouched: dict[TopicPartition, Offset] = {}
        self._rendered: dict[TopicPartition, Offset] = {}  # the recovery points in the newest checkpoint

    def read(self, name: str) -> dict[TopicPartition, Offset]:
        """The offsets in a checkpoint; empty if it is missing or corrupt."""
        content = self._disk.read(f"{self._path}/{name}")
        if content is None:
            return {}
        try:
            return parse_offsets(content)
        except CheckpointCorrupt:
            return {}  # without the checkpoint, recovery starts from offset 0

    def found(
        self,
        high_watermarks: Mapping[TopicPartition, Offset],
        recovery_points: Mapping[TopicPartition, Offset],
        log_starts: Mapping[TopicPartition, Offset],
    ) -> None:
        """The checkpoints on disk, as read on opening."""
        self._vouched = {
            topic_partition: recovery_points.get(topic_partition, Offset(0))
            for topic_partition in (*high_watermarks, *recovery_points, *log_starts)
        }

    def is_vouched(self, topic_partition: TopicPartition, offset: Offset = _NOTHING) -> bool:
        """Whether a checkpoint on disk, or one being written, may name the partition; with `offset`, whether
        its recovery point may be above `offset`.
        """
        vouched = self._vouched.get(topic_partition)
        return vouched is not None and vouched > offset

    def job(
        self,
        high_watermarks: Mapping[TopicPartition, Offset],
        limits: Mapping[TopicPartition, Offset] = _NO_LIMITS,
    ) -> Callable[[], None]:
        """The checkpoints in their current state, and the job that makes them durable. Call `written` when it
        is done. One job at a time.

        With `limits`, no recovery point is above the limit of its partition, whose log is about to be
        truncated.
        """
        disk, path = self._disk, self._path
        recovery_points = self._recovery_points(limits)
        # Also if the first segment begins there: a crash restores the files before it until they are renamed.
        log_starts = {
            topic_partition: log.log_start_offset
            for topic_partition, log in self._logs.items()
            if log.log_start_offset > 0
        }
        high_watermarks = dict(high_watermarks)
        for topic_partition, damaged in self._damaged.items():
            high_watermarks[topic_partition] = damaged.high_watermark
            log_starts[topic_partition] = damaged.log_start_offset
        for topic_partition, limit in limits.items():
            if topic_partition in high_watermarks:
                high_watermarks[topic_partition] = min(high_watermarks[topic_partition], limit)
        self._rendered = recovery_points

        def write() -> None:
            contents = {
                RECOVERY_POINT_FILE: render_offsets(recovery_points),
                HIGH_WATERMARK_FILE: render_offsets(high_watermarks),
                LOG_START_FILE: render_offsets(log_starts),
            }
            files = [(f"{path}/{name}", content) for name, content in contents.items()]
            # Files of retention and deletions are removed only after this.
            disk.sync(ballast.written(disk, path, lambda: replace_all(disk, files)))

        return write

    def recovery_points_job(
        self, limits: Mapping[TopicPartition, Offset] = _NO_LIMITS
    ) -> Callable[[], Steps[None]]:
        """The current recovery points, and the job in steps that makes them durable; the other checkpoints do
        not change.

        One such job at a time, and none while a `job` runs.
        """
        return partial(write_recovery_points, self._disk, self._path, self._recovery_points(limits))

    def _recovery_points(self, limits: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """The recovery points to write; from now on the checkpoints may contain them."""
        recovery_points = {topic_partition: log.recovery_point for topic_partition, log in self._logs.items()}
        recovery_points.update(
            (topic_partition, damaged.recovery_point) for topic_partition, damaged in self._damaged.items()
        )
        for topic_partition, limit in limits.items():
            if topic_partition in recovery_points:
                recovery_points[topic_partition] = min(recovery_points[topic_partition], limit)
        vouched = self._vouched
        for topic_partition, offset in recovery_points.items():
            if vouched.get(topic_partition, -1) < offset:
                vouched[topic_partition] = offset
        return recovery_points

    def written(self) -> None:
        """Note that the newest checkpoint is on disk, and that no other is being written."""
        self._vouched = dict(self._rendered)

    def write(
        self,
        high_watermarks: Mapping[TopicPartition, Offset],
        limits: Mapping[TopicPartition, Offset] = _NO_LIMITS,
    ) -> None:
        """Write the checkpoints at once. Blocks. Raises StorageError."""
        self.job(high_watermarks, limits)()
        self.written()


def write_recovery_points(
    disk: Disk, path: str, recovery_points: Mapping[TopicPartition, Offset]
) -> Steps[None]:
    """Write the recovery points into the directory at `path`, twice a second for thousands of partitions: in
    steps, which block and raise StorageError.
    """
    lines: list[str] = []
    for topic_partition, offset in recovery_points.items():
        if len(lines) % _LINES_PER_STEP == 0:
            yield
        lines.append(f"{topic_partition.topic} {topic_partition.partition} {offset}")
    yield
    disk.write(f"{path}/{RECOVERY_POINT_FILE}", render_lines(lines))
