"""One data directory: its identity, its checkpoints, and its partitions.

    meta.properties                    version, cluster.id, node.id, directory.id
    recovery-point-offset-checkpoint   below these offsets everything is durable
    replication-offset-checkpoint      high watermarks
    log-start-offset-checkpoint        only where it is above 0
    .sparklog-ballast                  occupies room, for a start on a full disk
    .kafka_cleanshutdown               the last stop was clean: removed on opening, before the first append
    .sparklog-boot                     the boot of the machine in which the broker was registered last
    <topic>-<n>/                       a partition
    <topic>-<n>.<uuid>-delete/         a partition whose removal was interrupted
    <topic>-<n>.<uuid>-future/         the copy of a partition that moves here from another data directory
    <topic>-<n>.<uuid>-stray/          a partition that no topic claimed at the start: for the operator

The metadata log, `__cluster_metadata-0`, may lie here too; `LogDir` ignores it.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec import structs

from sparklog.effects import Steps, take_all
from sparklog.model import ZERO_UUID, Instant, NodeId, Offset, TopicPartition, Uuid
from sparklog_server.disk import ballast
from sparklog_server.disk.door import Disk, DiskFile, StorageError
from sparklog_server.disk.removal import Removal, removal
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.recovery.cuts import Cut, Cuts
from sparklog_server.log.recovery.log_loader import Checkpointed
from sparklog_server.log.segment.damage import is_of_log_alone

from .checkpoints import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, Checkpoints, Damaged
from .future_log import Future, may_be_further
from .identity import (
    META_FILE,
    META_VERSION,
    PARTITION_METADATA_FILE,
    DirectoryRefused,
    decode_uuid,
    encode_uuid,
    epoch_of_mark,
    forget_boot,
    new_uuid,
    read_boot,
    read_meta,
    read_topic_id,
    readable_topic_id,
    write_boot,
    write_topic_id,
)
from .log_creation import Wanted, begin_logs
from .names import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    Absent,
    damage_of,
    future_name,
    name_with_suffix,
    partition_of,
    partition_of_future,
)

__all__ = [
    "DELETE_SUFFIX",
    "META_FILE",
    "META_VERSION",
    "PARTITION_METADATA_FILE",
    "RECOVERY_POINT_FILE",
    "STRAY_SUFFIX",
    "DirectoryRefused",
    "LogDir",
    "Wanted",
    "decode_uuid",
    "encode_uuid",
    "new_uuid",
    "partition_of",
]

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
METADATA_LOG = TopicPartition("__cluster_metadata", 0)
CLEANER_FILE = "cleaner-offset-checkpoint"
ASIDE_SUFFIX = ".tmp"
_NO_BROKER_EPOCH = -1


class LogDir:
    """The partitions of one data directory, which this process holds locked.

    Invariants, once it `is_recovered`: each partition directory has an open log in `logs`, or is in
    `damaged`; `high_watermarks` has the checkpointed offsets of the partitions that have not been removed
    since opening.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        *,
        node_id: NodeId,
        cluster_id: str,
        directory_id: Uuid,
        entropy: Callable[[int], bytes],
    ) -> None:
        self.path = path
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self.is_recovered = False
        self.was_clean = False
        self._has_failed = False  # the disk
        self.broker_epoch = _NO_BROKER_EPOCH  # of this process, once the broker is registered
        self.previous_broker_epoch = _NO_BROKER_EPOCH  # of the previous process, if all that it wrote is here
        self.unanswered_incarnation = ""  # of that process, if its registration may have been committed
        self.damaged: dict[TopicPartition, Damaged] = {}
        self.futures: dict[TopicPartition, list[Future]] = {}  # found on opening and not handled yet
        self.cuts: list[Cut] = []  # truncations by recovery on opening
        self._left_overs: list[str] = []
        self.checkpoints = Checkpoints(disk, path, self.logs, self.damaged)
        self._disk = disk
        self._entropy = entropy

    @classmethod
    def claim(
        cls,
        disk: Disk,
        path: str,
        *,
        node_id: NodeId,
        cluster_id: str | None,
        entropy: Callable[[int], bytes],
    ) -> "LogDir":
        """Lock the directory, format it if it is new, and read its identity; `recover` then opens the logs.

        If `cluster_id` is None, the id of the directory is used, or a new one. Raises DirectoryInUse,
        DirectoryRefused and StorageError.
        """
        disk.make_directory(path)
        disk.lock(path)
        try:
            ballast.give_up_if_full(disk, path)
            meta = read_meta(disk, path, node_id=node_id, cluster_id=cluster_id, entropy=entropy)
            log_dir = cls(
                disk,
                path,
                node_id=node_id,
                cluster_id=meta["cluster.id"],
                directory_id=decode_uuid(meta["directory.id"]),
                entropy=entropy,
            )
            mark = disk.read(f"{path}/{CLEAN_SHUTDOWN_FILE}")
            boot = read_boot(disk, path)
        except BaseException:
            disk.unlock(path)
            raise
        log_dir.was_clean = mark is not None
        log_dir.previous_broker_epoch = max(epoch_of_mark(mark), boot.broker_epoch)
        log_dir.unanswered_incarnation = boot.incarnation_id
        return log_dir

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        *,
        node_id: NodeId,
        cluster_id: str | None,
        entropy: Callable[[int], bytes],
        defaults: LogConfig,
        settings_for: Callable[[str], LogConfig] | None = None,
        now: Instant,
    ) -> "LogDir":
        """Claim the directory, and open every log in it at once. Raises as `claim` and `recover` do."""
        log_dir = cls.claim(disk, path, node_id=node_id, cluster_id=cluster_id, entropy=entropy)
        take_all(log_dir.recover(settings_for or (lambda _: defaults), now))
        return log_dir

    def registers(self, incarnation_id: Uuid) -> None:
        """The broker is about to ask for its registration, which may be committed without an answer."""
        if self.previous_broker_epoch != _NO_BROKER_EPOCH and not (self.damaged or self._has_failed):
            write_boot(self._disk, self.path, self.previous_broker_epoch, encode_uuid(incarnation_id))

    def registered(self, broker_epoch: int) -> None:
        """The broker has this epoch, under which it may acknowledge records."""
        self.broker_epoch = broker_epoch
        if not (self.damaged or self._has_failed):
            write_boot(self._disk, self.path, broker_epoch)

    def failed(self) -> None:
        """The disk failed, so that written bytes may be lost while the machine runs."""
        self._has_failed = True
        forget_boot(self._disk, self.path)

    def recover(self, settings_for: Callable[[str], LogConfig], now: Instant) -> Steps[None]:
        """Open every log, one in each step. A damaged log is not changed, and is in `damaged`.

        Blocks. Until the last step only the identity of the directory may be used. Raises StorageError, and
        then the directory is no longer locked.
        """
        try:
            yield from self._open_logs(settings_for, now)
        except StorageError:
            self._disk.unlock(self.path)
            raise
        self.keep_ballast()
        if self.damaged:
            self.failed()
        self.is_recovered = True

    def _open_logs(self, settings_for: Callable[[str], LogConfig], now: Instant) -> Steps[None]:
        disk, path = self._disk, self.path
        self.high_watermarks = self.checkpoints.read(HIGH_WATERMARK_FILE)
        recovery_points = self.checkpoints.read(RECOVERY_POINT_FILE)
        log_starts = self.checkpoints.read(LOG_START_FILE)
        self.checkpoints.found(self.high_watermarks, recovery_points, log_starts)
        cleaned_to = self.checkpoints.read(CLEANER_FILE)
        names = disk.list(path)
        cuts = Cuts(
            disk,
            lambda: [f"{path}/{name}" for name in names if partition_of(name) not in (None, METADATA_LOG)],
            now.wall_ms,
        )
        for name in names:
            moving = partition_of_future(name)
            if moving is not None:
                reached = recovery_points.get(moving, Offset(0)), log_starts.get(moving, Offset(0))
                topic_id = readable_topic_id(disk, f"{path}/{name}")
                self.futures.setdefault(moving, []).append(Future(name, topic_id, *reached))
            topic_partition = partition_of(name)
            if topic_partition is None or topic_partition == METADATA_LOG:
                continue
            yield
            topic_id = ZERO_UUID
            recovery_point = recovery_points.get(topic_partition, Offset(0))
            log_start = log_starts.get(topic_partition, Offset(0))
            # Both checkpoints are written together, and no log starts above its high watermark: such a line
            # is damaged, and must not empty the log.
            doubted = log_start if log_start > self.high_watermarks.get(topic_partition, log_start) else None
            log_start = log_start if doubted is None else Offset(0)
            try:
                topic_id = read_topic_id(disk, f"{path}/{name}")
                log = self.logs[topic_partition] = PartitionLog.open(
                    disk,
                    f"{path}/{name}",
                    topic_partition,
                    topic_id,
                    settings_for(topic_partition.topic),
                    Checkpointed(
                        recovery_point,
                        log_start,
                        self.was_clean,
                        self.high_watermarks.get(topic_partition, Offset(0)),
                        cleaned_to.get(topic_partition, Offset(0)),
                    ),
                    now=now,
                    cuts=cuts,
                )
            except StorageError as error:
                self._not_opened(topic_partition, topic_id, error, recovery_point, log_start)
                continue
            if doubted is not None and doubted <= log.log_end_offset:
                log.move_log_start(doubted)  # Kafka writes the two checkpoints at different times.
            if not self.was_clean and log.topic_id != ZERO_UUID:
                # A killed process may have left it unsynced: it must not be lost under records that are
                # acknowledged now.
                log.sync_with_next(disk.open(f"{path}/{name}/{PARTITION_METADATA_FILE}"))
        self.cuts = cuts.made
        absent = Absent(names, recovery_points)
        for topic_partition in absent.missing:
            recovery_point, log_start = (
                recovery_points[topic_partition],
                log_starts.get(topic_partition, Offset(0)),
            )
            missing = damage_of(path, topic_partition, log_start, recovery_point)
            high_watermark = self.high_watermarks.get(topic_partition, Offset(0))
            self.damaged[topic_partition] = Damaged(
                ZERO_UUID, missing, recovery_point, high_watermark, log_start, is_missing=True
            )
        self._remove_left_overs(names, absent)
        # Removed before the first append: from here on a crash must not look like a clean stop.
        disk.remove(f"{path}/{CLEAN_SHUTDOWN_FILE}")

    def _not_opened(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        error: StorageError,
        recovery_point: Offset,
        log_start: Offset,
    ) -> None:
        """Add a log to `damaged`. Raises the error if it concerns more than that log."""
        if not is_of_log_alone(error):
            raise error
        high_watermark = self.high_watermarks.get(topic_partition, Offset(0))
        self.damaged[topic_partition] = Damaged(topic_id, error, recovery_point, high_watermark, log_start)

    def _remove_left_overs(self, names: Sequence[str], absent: Absent) -> None:
        """Remove the files of interrupted work; files that a checkpoint covers stay in `_left_overs`."""
        left = [name for name in names if name.endswith((DELETE_SUFFIX, ASIDE_SUFFIX))]
        self._disk.remove(*(f"{self.path}/{name}" for name in left if name not in absent.renamed))
        self._left_overs = [f"{self.path}/{name}" for name in left if name in absent.renamed]
        for log in self.logs.values():
            self._left_overs += log.leftovers

    def take_left_overs(self) -> Removal | None:
        """The job that removes the files that the last run left, if any. It may run once a checkpoint of this
        run is on disk.
        """
        left, self._left_overs = self._left_overs, []
        return removal(self._disk, left) if left else None

    # -- partitions

    def keep_ballast(self) -> None:
        """Create the ballast if the disk has enough space for it."""
        ballast.keep(self._disk, self.path)

    def room(self) -> tuple[int, int]:
        """The total and the usable bytes of the file system of this directory. Raises StorageError."""
        return self._disk.room(self.path)

    def create(
        self, topic_partition: TopicPartition, topic_id: Uuid, settings: LogConfig, now: Instant
    ) -> PartitionLog:
        """Create the directory and the log of a partition; no checkpoint may name it.

        Raises StorageError; the call may be repeated, because the files are still empty.
        """
        assert not self.checkpoints.is_vouched(topic_partition), topic_partition
        directory = f"{self.path}/{topic_partition}"
        self._disk.make_directory(directory)
        log = PartitionLog.open(self._disk, directory, topic_partition, topic_id, settings, now=now)
        self.adopt(log)
        try:
            self.identify(topic_partition, topic_id)
        except StorageError:
            del self.logs[topic_partition]
            log.close()
            raise
        return log

    def create_job(self, wanted: Sequence[Wanted], now: Instant) -> Callable[[], list[PartitionLog]]:
        """The job that creates many logs durably, for `adopt`; no checkpoint may name them."""
        assert not any(self.checkpoints.is_vouched(one.topic_partition) for one in wanted)
        return partial(begin_logs, self._disk, self.path, wanted, now)

    def adopt(self, log: PartitionLog) -> None:
        """Add a log that a job has created."""
        assert log.topic_partition not in self.logs, log.topic_partition
        self.logs[log.topic_partition] = log

    def identify(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """Write the topic id of a partition; it becomes durable with the next sync, as the first record does.
        Raises StorageError.
        """
        log = self.logs[topic_partition]
        file = write_topic_id(self._disk, log.directory, topic_id)
        log.topic_id = topic_id
        log.sync_with_next(file)

    def delete_job(self, topic_partitions: Iterable[TopicPartition]) -> Callable[..., Removal]:
        """Remove partitions from this directory: the job renames their directories, and returns the job that
        removes the files.

        If a full disk had no space for the names, call this again with `is_again`.
        """
        disk, path = self._disk, self.path
        found = []
        for topic_partition in topic_partitions:
            if topic_partition not in self.damaged or not self.damaged[topic_partition].is_missing:
                found.append(topic_partition)
            self._forget(topic_partition)
        renames = [self._rename_to(topic_partition, DELETE_SUFFIX) for topic_partition in found]

        def rename(*, is_again: bool = False) -> Removal:
            ballast.rename_all(disk, path, renames, is_again=is_again)
            return removal(disk, [path for _, path in renames])

        return rename

    # -- moves between data directories

    def future_path(self, topic_partition: TopicPartition) -> str:
        """The path for the copy of a log that is to be moved here."""
        return f"{self.path}/{future_name(topic_partition, self._entropy(16))}"

    def swap_path(self, topic_partition: TopicPartition) -> str:
        """The path of a partition's log."""
        return f"{self.path}/{topic_partition}"

    def let_go(self, log: PartitionLog) -> tuple[str, str]:
        """Remove a log whose files have been moved elsewhere; returns its old path and the path to rename it
        to.
        """
        assert self.logs[log.topic_partition] is log
        del self.logs[log.topic_partition]
        self.high_watermarks.pop(log.topic_partition, None)
        return self._rename_to(log.topic_partition, DELETE_SUFFIX)

    def may_be_further(self, future: Future, log: PartitionLog) -> bool:
        """Whether a copy found here may have records that `log`, its source, does not. Raises
        StorageError.
        """
        return may_be_further(self._disk, f"{self.path}/{future.name}", log.segments.active)

    def promote(
        self, topic_partition: TopicPartition, future: Future, settings: LogConfig, now: Instant
    ) -> None:
        """Make a copy that was found here the log of its partition; it is in `damaged` if it cannot be
        opened. Blocks. Raises StorageError.
        """
        directory = f"{self.path}/{topic_partition}"
        ballast.rename(self._disk, self.path, f"{self.path}/{future.name}", directory)
        futures = self.futures[topic_partition]
        futures.remove(future)
        try:
            log = PartitionLog.open(
                self._disk,
                directory,
                topic_partition,
                future.topic_id,
                settings,
                Checkpointed(future.recovery_point, future.log_start_offset),
                now=now,
            )
        except StorageError as error:
            if error.is_full:
                futures.append(
                    structs.replace(future, name=str(topic_partition))
                )  # the next attempt starts from its current path
                ballast.rename(self._disk, self.path, directory, f"{self.path}/{future.name}")
                futures[-1] = future
            self._not_opened(
                topic_partition, future.topic_id, error, future.recovery_point, future.log_start_offset
            )
        else:
            self.adopt(log)
            self._left_overs += log.leftovers

    def take_futures(self, topic_partition: TopicPartition) -> list[str]:
        """The paths of the copies found here whose move did not finish; each is returned once."""
        return [f"{self.path}/{future.name}" for future in self.futures.pop(topic_partition, ())]

    def set_aside(self, topic_partition: TopicPartition) -> str:
        """Remove a partition and keep its files; returns their path. Blocks. Raises StorageError, and then
        nothing has changed.
        """
        directory, path = self._rename_to(topic_partition, STRAY_SUFFIX)
        ballast.rename(self._disk, self.path, directory, path)
        self._forget(topic_partition)
        return path

    def forget_missing(self, claimed: Container[TopicPartition]) -> None:
        """Drop the partitions with missing directories that no topic has here."""
        for topic_partition in [
            one for one, damaged in self.damaged.items() if damaged.is_missing and one not in claimed
        ]:
            del self.damaged[topic_partition]

    def _forget(self, topic_partition: TopicPartition) -> None:
        """Drop a partition."""
        log = self.logs.pop(topic_partition, None)
        if log is None:
            del self.damaged[topic_partition]
        else:
            log.close()
        self.high_watermarks.pop(topic_partition, None)

    def _rename_to(self, topic_partition: TopicPartition, suffix: str) -> tuple[str, str]:
        """The path of a partition, and the path to rename its directory to."""
        return (
            f"{self.path}/{topic_partition}",
            f"{self.path}/{name_with_suffix(topic_partition, self._entropy(16), suffix)}",
        )

    def close(self, high_watermarks: Mapping[TopicPartition, Offset], now: Instant) -> None:
        """Stop cleanly: make everything durable, so that no scan is needed, then write the mark of a clean
        stop. The files of a directory whose recovery has not ended stay as they are. Raises StorageError.

        There is no mark while a log is damaged, or was closed because a file could not be read: its records
        are still due, and the next start looks for them. If a full disk has no space for the mark, the
        directory is closed without it.
        """
        try:
            if self.is_recovered:
                self._close(high_watermarks, now)
        except StorageError as error:
            if error.is_full:
                self._disk.unlock(self.path)
            raise
        self._disk.unlock(self.path)

    def _close(self, high_watermarks: Mapping[TopicPartition, Offset], now: Instant) -> None:
        files: list[DiskFile] = []
        is_whole = not self.damaged and not any(log.is_closed for log in self.logs.values())
        for log in self.logs.values():
            if not log.is_closed:
                files += log.begin_close(now)
        self._disk.sync(files)
        for log in self.logs.values():
            if not log.is_closed:
                log.synced(log.log_end_offset)
                log.close()
        self.checkpoints.write(high_watermarks)
        if is_whole:
            mark = msgspec.json.encode({"version": 0, "brokerEpoch": self.broker_epoch})
            self._disk.write(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", mark)
