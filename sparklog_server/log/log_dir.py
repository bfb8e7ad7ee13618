"""One data directory: who it belongs to, its checkpoints, and the partitions that live in it.

    meta.properties                    version, cluster.id, node.id, directory.id
    recovery-point-offset-checkpoint   below it everything is durable         replication-offset-checkpoint   high watermarks
    log-start-offset-checkpoint        only where it is above 0
    .kafka_cleanshutdown               the last stop was clean: removed on opening, before anything is appended
    <topic>-<n>/                       a partition               <topic>-<n>.<uuid>-delete/   one whose removal was interrupted
    <topic>-<n>.<uuid>-stray/          one that no topic claimed when the broker started: for the operator to look at, or to remove

The metadata log, `__cluster_metadata-0`, may lie here too; it is not ours.

What a checkpoint says of a deleted log would pass for true of the next of its name, and what it says of records that were cut, of those
written in their place. So no log is begun while a checkpoint may name it, and none is cut below where one may vouch for it: a checkpoint
that was rendered afterwards must be on disk first.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sparklog.model import NO_EPOCH, ZERO_UUID, Instant, LeaderEpoch, NodeId, Offset, TopicPartition, Uuid
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets, parse_properties, render_offsets, render_properties
from sparklog_server.disk.door import Disk, DiskFile

from .damage import LogDamaged
from .epoch_cache import EpochCache
from .partition_log import PartitionLog
from .recovery import EPOCH_FILE
from .segment import LOG_SUFFIX, file_name
from .settings import LogSettings

META_FILE = "meta.properties"
META_VERSION = "1"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
METADATA_LOG = TopicPartition("__cluster_metadata", 0)
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
ASIDE_SUFFIX = ".tmp"
_NAME_MAX = 255
_NO_BROKER_EPOCH = -1
_NOTHING = Offset(-1)
_NO_LIMITS: Mapping[TopicPartition, Offset] = {}
_META_KEYS = frozenset(("version", "cluster.id", "node.id", "directory.id"))


class DirectoryRefused(Exception):
    """The directory belongs to another cluster or node, or its meta.properties cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}/{META_FILE}: {reason}")
        self.path = path
        self.reason = reason


class Damaged(NamedTuple):
    """A log that cannot be opened, and what the checkpoints say of it: its damage shows only as long as they keep to that."""

    topic_id: Uuid
    error: LogDamaged
    recovery_point: Offset
    high_watermark: Offset
    log_start_offset: Offset


class Wanted(NamedTuple):
    """A log to be begun, and the epoch in which this node leads it from the first record on; -1 if it does not."""

    topic_partition: TopicPartition
    topic_id: Uuid
    settings: LogSettings
    leader_epoch: LeaderEpoch = NO_EPOCH


class LogDir:
    """The partitions of one data directory, which this process holds locked.

    Invariants: each partition directory has an open log in `logs`, or is in `damaged`; `high_watermarks` is what the checkpoint said on
    opening of those that are there still; `_vouched` has whom the checkpoints may name, on disk or on their way there, and the greatest
    recovery point they may give.
    """

    def __init__(
        self, disk: Disk, path: str, *, node_id: NodeId, cluster_id: str, directory_id: Uuid, entropy: Callable[[int], bytes]
    ) -> None:
        self.path = path
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self.was_clean = False
        self.broker_epoch = _NO_BROKER_EPOCH  # of this life, once the broker has one
        self.previous_broker_epoch = _NO_BROKER_EPOCH  # of the former life, if that ended cleanly
        self.damaged: dict[TopicPartition, Damaged] = {}
        self._vouched: dict[TopicPartition, Offset] = {}
        self._rendered: dict[TopicPartition, Offset] = {}  # whom the newest checkpoint names
        self._disk = disk
        self._entropy = entropy

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        *,
        node_id: NodeId,
        cluster_id: str | None,
        entropy: Callable[[int], bytes],
        defaults: LogSettings,
        settings_for: Callable[[str], LogSettings] | None = None,
        now: Instant,
    ) -> "LogDir":
        """Lock the directory, format it if it is new, and open every partition in it.

        `cluster_id` None takes that of the directory, or makes one. Raises DirectoryInUse, DirectoryRefused, StorageError. A log
        that is damaged is left as it is, in `damaged`.
        """
        disk.make_directory(path)
        disk.lock(path)
        try:
            meta = _read_meta(disk, path, node_id=node_id, cluster_id=cluster_id, entropy=entropy)
            log_dir = cls(
                disk, path, node_id=node_id, cluster_id=meta["cluster.id"], directory_id=decode_uuid(meta["directory.id"]), entropy=entropy
            )
            log_dir._open_logs(settings_for or (lambda _: defaults), now)
        except BaseException:
            disk.unlock(path)
            raise
        return log_dir

    def _open_logs(self, settings_for: Callable[[str], LogSettings], now: Instant) -> None:
        disk, path = self._disk, self.path
        mark = disk.read(f"{path}/{CLEAN_SHUTDOWN_FILE}")
        self.was_clean = mark is not None
        self.previous_broker_epoch = _epoch_of(mark)
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARK_FILE)
        recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
        log_starts = self._read_checkpoint(LOG_START_FILE)
        self._vouched = {
            topic_partition: recovery_points.get(topic_partition, Offset(0))
            for topic_partition in (*self.high_watermarks, *recovery_points, *log_starts)
        }
        for name in disk.list(path):
            if name.endswith((DELETE_SUFFIX, ASIDE_SUFFIX)):
                disk.remove(f"{path}/{name}")
                continue
            topic_partition = partition_of(name)
            if topic_partition is None or topic_partition == METADATA_LOG:
                continue
            topic_id = _read_topic_id(disk, f"{path}/{name}")
            recovery_point = recovery_points.get(topic_partition, Offset(0))
            log_start = log_starts.get(topic_partition, Offset(0))
            try:
                log = self.logs[topic_partition] = PartitionLog.open(
                    disk,
                    f"{path}/{name}",
                    topic_partition,
                    topic_id,
                    settings_for(topic_partition.topic),
                    now=now,
                    recovery_point=recovery_point,
                    was_clean=self.was_clean,
                    log_start_offset=log_start,
                )
            except LogDamaged as error:
                high_watermark = self.high_watermarks.get(topic_partition, Offset(0))
                self.damaged[topic_partition] = Damaged(topic_id, error, recovery_point, high_watermark, log_start)
                continue
            if not self.was_clean and log.topic_id != ZERO_UUID:
                # Of a process that was killed before it synced: it must not vanish from under records that are acknowledged now.
                log.sync_with_next(disk.open(f"{path}/{name}/{PARTITION_METADATA_FILE}"))
        self._lower_recovery_points(recovery_points)
        # Gone before the first append: a crash from here on must not pass for a clean stop.
        disk.remove(f"{path}/{CLEAN_SHUTDOWN_FILE}")

    def _lower_recovery_points(self, checkpointed: Mapping[TopicPartition, Offset]) -> None:
        """Where recovery had to cut below it, the checkpoint must not vouch for what will be written there anew."""
        lowered = {
            topic_partition: min(offset, self.logs[topic_partition].recovery_point) if topic_partition in self.logs else offset
            for topic_partition, offset in checkpointed.items()
        }
        if lowered != checkpointed:
            self._disk.write(f"{self.path}/{RECOVERY_POINT_FILE}", render_offsets(lowered))
            self._vouched.update(lowered)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        content = self._disk.read(f"{self.path}/{name}")
        if content is None:
            return {}
        try:
            return parse_offsets(content)
        except CheckpointCorrupt:
            return {}  # nothing is known then, and recovery starts from offset 0

    # -- partitions

    def room(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system it lies in. Raises StorageError."""
        return self._disk.room(self.path)

    def create(self, topic_partition: TopicPartition, topic_id: Uuid, settings: LogSettings, now: Instant) -> PartitionLog:
        """Make the directory of a partition and begin its log; no checkpoint may name it. Raises StorageError."""
        assert not self.is_vouched(topic_partition), topic_partition
        directory = f"{self.path}/{topic_partition}"
        self._disk.make_directory(directory)
        log = PartitionLog.open(self._disk, directory, topic_partition, topic_id, settings, now=now)
        self.adopt(log)
        self.identify(topic_partition, topic_id)
        return log

    def create_job(self, wanted: Sequence[Wanted], now: Instant) -> Callable[[], list[PartitionLog]]:
        """The job that begins many logs, durably, and gives them for `adopt`; no checkpoint may name them."""
        assert not any(self.is_vouched(one.topic_partition) for one in wanted)
        disk, path = self._disk, self.path

        def begin() -> list[PartitionLog]:
            # The handles go when this returns: a job may not keep descriptors, and the logs open theirs on need.
            files: list[DiskFile] = []
            disk.make_directory(*(f"{path}/{one.topic_partition}" for one in wanted))
            for one in wanted:
                directory = f"{path}/{one.topic_partition}"
                disk.open(f"{directory}/{file_name(0, LOG_SUFFIX)}", create=True)  # empty: there is only its name to lose
                files.append(_write_topic_id(disk, directory, one.topic_id))
                if one.leader_epoch >= 0:
                    # Now, not with the first record: a thousand first records would have a thousand more files to sync.
                    epochs = EpochCache()
                    epochs.assign(one.leader_epoch, Offset(0))
                    files.append(disk.replace(f"{directory}/{EPOCH_FILE}", epochs.render()))
            disk.sync(files)
            files.clear()
            logs: list[PartitionLog] = []
            for one in wanted:
                log = PartitionLog.open(disk, f"{path}/{one.topic_partition}", one.topic_partition, one.topic_id, one.settings, now=now)
                # Opening forgets an epoch that has no record yet, but the file has it.
                log.epochs.assign(one.leader_epoch, Offset(0))
                log.epochs.is_saved = True
                logs.append(log)
            return logs

        return begin

    def adopt(self, log: PartitionLog) -> None:
        """Take a log that was begun into service."""
        assert log.topic_partition not in self.logs, log.topic_partition
        self.logs[log.topic_partition] = log

    def is_vouched(self, topic_partition: TopicPartition, offset: Offset = _NOTHING) -> bool:
        """Whether a checkpoint, on disk or on its way there, may name a partition, and vouch for its records beyond `offset` if given."""
        vouched = self._vouched.get(topic_partition)
        return vouched is not None and vouched > offset

    def identify(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """Write down which topic a partition belongs to; durable with its next sync, as its first record is. Raises StorageError."""
        log = self.logs[topic_partition]
        log.topic_id = topic_id
        log.sync_with_next(_write_topic_id(self._disk, log.directory, topic_id))

    def delete_job(self, topic_partitions: Iterable[TopicPartition]) -> Callable[[], Callable[[], None]]:
        """Take partitions out of service: the job that renames their directories, and gives the one that removes the files."""
        disk = self._disk
        renames = [self._take_out(topic_partition, DELETE_SUFFIX) for topic_partition in topic_partitions]

        def remove() -> None:
            disk.remove(*(doomed for _, doomed in renames))

        def rename() -> Callable[[], None]:
            disk.rename_all(renames)
            return remove

        return rename

    def set_aside(self, topic_partition: TopicPartition) -> str:
        """Take a partition out of service and keep its files; returns where. Blocks. Raises StorageError."""
        directory, path = self._take_out(topic_partition, STRAY_SUFFIX)
        self._disk.rename(directory, path)
        return path

    def _take_out(self, topic_partition: TopicPartition, ending: str) -> tuple[str, str]:
        """Know a partition no more: where it lies, and the name that its directory is to get."""
        log = self.logs.pop(topic_partition, None)
        if log is None:
            del self.damaged[topic_partition]
        else:
            log.close()
        self.high_watermarks.pop(topic_partition, None)
        suffix = f".{self._entropy(16).hex()}{ending}"
        name = str(topic_partition)
        return f"{self.path}/{name}", f"{self.path}/{name[: _NAME_MAX - len(suffix)]}{suffix}"

    # -- checkpoints

    def checkpoint_job(
        self, high_watermarks: Mapping[TopicPartition, Offset], limits: Mapping[TopicPartition, Offset] = _NO_LIMITS
    ) -> Callable[[], None]:
        """The checkpoints as of now, and the job that makes them durable; `checkpointed` follows. One at a time.

        They vouch for no record beyond the `limits`, where logs are about to be cut.
        """
        disk, path = self._disk, self.path
        recovery_points = {topic_partition: log.recovery_point for topic_partition, log in self.logs.items()}
        # Also where the first segment begins there: until the files before it are renamed, a crash brings them back.
        log_starts = {topic_partition: log.log_start_offset for topic_partition, log in self.logs.items() if log.log_start_offset > 0}
        high_watermarks = dict(high_watermarks)
        for topic_partition, damaged in self.damaged.items():
            recovery_points[topic_partition] = damaged.recovery_point
            high_watermarks[topic_partition] = damaged.high_watermark
            log_starts[topic_partition] = damaged.log_start_offset
        for topic_partition, limit in limits.items():
            for offsets in (recovery_points, high_watermarks):
                if topic_partition in offsets:
                    offsets[topic_partition] = min(offsets[topic_partition], limit)
        contents = {
            RECOVERY_POINT_FILE: render_offsets(recovery_points),
            HIGH_WATERMARK_FILE: render_offsets(high_watermarks),
            LOG_START_FILE: render_offsets(log_starts),
        }
        self._rendered = recovery_points
        for topic_partition, offset in recovery_points.items():
            self._vouched[topic_partition] = max(self._vouched.get(topic_partition, offset), offset)

        def write() -> None:
            disk.sync([disk.replace(f"{path}/{name}", content) for name, content in contents.items()])

        return write

    def checkpointed(self) -> None:
        """The newest checkpoint is on disk, and no other is on its way there."""
        self._vouched = dict(self._rendered)

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, Offset], limits: Mapping[TopicPartition, Offset] = _NO_LIMITS) -> None:
        """Write the checkpoints now. Blocks. Raises StorageError."""
        self.checkpoint_job(high_watermarks, limits)()
        self.checkpointed()

    def close(self, high_watermarks: Mapping[TopicPartition, Offset], now: Instant) -> None:
        """Stop cleanly: everything durable, nothing left to scan, then the mark that says so. Raises StorageError.

        No mark while a log is damaged: what it had is promised still, and looked for at the next start.
        """
        files: list[DiskFile] = []
        for log in self.logs.values():
            if not log.is_closed:
                files += log.begin_close(now)
        self._disk.sync(files)
        for log in self.logs.values():
            if not log.is_closed:
                log.synced(log.log_end_offset)
                log.close()
        self.checkpoint(high_watermarks)
        if not self.damaged:
            mark = json.dumps({"version": 0, "brokerEpoch": self.broker_epoch}, separators=(",", ":"))
            self._disk.write(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", mark.encode())
        self._disk.unlock(self.path)


def _epoch_of(mark: bytes | None) -> int:
    """The broker epoch in the mark of a clean stop; -1 if it tells none."""
    try:
        found = json.loads(mark or b"{}")
    except ValueError:
        return _NO_BROKER_EPOCH
    epoch = found.get("brokerEpoch") if isinstance(found, dict) else None
    return epoch if isinstance(epoch, int) else _NO_BROKER_EPOCH


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None if it is no partition's."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdecimal()) or str(int(partition)) != partition:
        return None
    return TopicPartition(topic, int(partition))


def encode_uuid(uuid: Uuid) -> str:
    """As Kafka writes it: 22 characters, URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid).decode().rstrip("=")


def decode_uuid(text: str) -> Uuid:
    """The sixteen bytes. Raises ValueError."""
    uuid = urlsafe_b64decode(text.encode() + b"==")
    if len(uuid) != len(ZERO_UUID):
        raise ValueError(f"{text!r} is not a UUID in base64")
    return Uuid(uuid)


def new_uuid(entropy: Callable[[int], bytes]) -> Uuid:
    """A random UUID (version 4) whose text does not begin with a dash, which a command line would take for an option."""
    for _ in range(64):
        raw = bytearray(entropy(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = Uuid(bytes(raw))
        if not encode_uuid(uuid).startswith("-"):
            return uuid
    raise AssertionError("entropy without entropy")


def _write_topic_id(disk: Disk, directory: str, topic_id: Uuid) -> DiskFile:
    """Write down which topic a partition directory belongs to; the file is to be synced."""
    metadata = disk.open(f"{directory}/{PARTITION_METADATA_FILE}", create=True)
    metadata.truncate(0)
    metadata.append(f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode())
    return metadata


def _read_topic_id(disk: Disk, directory: str) -> Uuid:
    """The topic id of a partition directory; zero if it is not known (the file never reached the disk)."""
    content = disk.read(f"{directory}/{PARTITION_METADATA_FILE}")
    for line in (content or b"").decode(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key == "topic_id":
            try:
                return decode_uuid(value.strip())
            except ValueError:
                return ZERO_UUID
    return ZERO_UUID


def _read_meta(disk: Disk, path: str, *, node_id: NodeId, cluster_id: str | None, entropy: Callable[[int], bytes]) -> dict[str, str]:
    """meta.properties, checked, and written if it is missing or lacks the directory's id."""
    content = disk.read(f"{path}/{META_FILE}")
    if content is None:
        meta = {"version": META_VERSION, "cluster.id": cluster_id or encode_uuid(new_uuid(entropy)), "node.id": str(node_id)}
    else:
        try:
            meta = parse_properties(content)
        except CheckpointCorrupt as error:
            raise DirectoryRefused(path, str(error)) from error
        _check_meta(path, meta, node_id=node_id, cluster_id=cluster_id)
    strangers = meta.keys() - _META_KEYS
    if "directory.id" not in meta and strangers:
        raise DirectoryRefused(
            path, f"directory.id is missing, but there is {', '.join(sorted(strangers))}: correct it, or remove that line"
        )
    if "directory.id" not in meta:
        meta["directory.id"] = encode_uuid(new_uuid(entropy))
        disk.write(f"{path}/{META_FILE}", render_properties(meta))
    try:
        decode_uuid(meta["directory.id"])
    except ValueError as error:
        raise DirectoryRefused(path, f"directory.id: {error}") from error
    return meta


def _check_meta(path: str, meta: Mapping[str, str], *, node_id: NodeId, cluster_id: str | None) -> None:
    if meta.get("version") != META_VERSION:
        raise DirectoryRefused(path, f"version is {meta.get('version')}, but this broker reads version {META_VERSION}")
    if not meta.get("cluster.id"):
        raise DirectoryRefused(path, "cluster.id is missing")
    if cluster_id is not None and meta["cluster.id"] != cluster_id:
        raise DirectoryRefused(path, f"belongs to cluster {meta['cluster.id']}, but this node is of cluster {cluster_id}")
    if meta.get("node.id") != str(node_id):
        raise DirectoryRefused(path, f"belongs to node {meta.get('node.id')}, but this is node {node_id}")
