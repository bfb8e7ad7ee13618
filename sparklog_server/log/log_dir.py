"""One data directory: who it belongs to, its checkpoints, and the partitions that live in it.

    meta.properties                    version, cluster.id, node.id, directory.id
    recovery-point-offset-checkpoint   below it everything is durable         replication-offset-checkpoint   high watermarks
    log-start-offset-checkpoint        only where it is above 0
    .kafka_cleanshutdown               the last stop was clean: removed on opening, before anything is appended
    <topic>-<n>/                       a partition               <topic>-<n>.<uuid>-delete/   one whose removal was interrupted
    <topic>-<n>.<uuid>-stray/          one that no topic claimed when the broker started: for the operator to look at, or to remove

The metadata log, `__cluster_metadata-0`, may lie here too; it is not ours.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping

from sparklog.model import ZERO_UUID, Instant, NodeId, Offset, TopicPartition, Uuid
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets, parse_properties, render_offsets, render_properties
from sparklog_server.disk.door import Disk, DiskFile

from .partition_log import PartitionLog
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
_META_KEYS = frozenset(("version", "cluster.id", "node.id", "directory.id"))


class DirectoryRefused(Exception):
    """The directory belongs to another cluster or node, or its meta.properties cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}/{META_FILE}: {reason}")
        self.path = path
        self.reason = reason


class LogDir:
    """The partitions of one data directory, which this process holds locked.

    Invariants: `logs` has one open log per partition directory; `high_watermarks` is what the checkpoint said on opening.
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
        self._checkpointed: dict[TopicPartition, None] = {}  # whom the checkpoints may name, on disk or on their way there
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

        `cluster_id` None takes that of the directory, or makes one. Raises DirectoryInUse, DirectoryRefused, StorageError.
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
        self.was_clean = disk.read(f"{path}/{CLEAN_SHUTDOWN_FILE}") is not None
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARK_FILE)
        recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
        log_starts = self._read_checkpoint(LOG_START_FILE)
        self._checkpointed = dict.fromkeys((*self.high_watermarks, *recovery_points, *log_starts))
        for name in disk.list(path):
            if name.endswith((DELETE_SUFFIX, ASIDE_SUFFIX)):
                disk.remove(f"{path}/{name}")
                continue
            topic_partition = partition_of(name)
            if topic_partition is None or topic_partition == METADATA_LOG:
                continue
            log = self.logs[topic_partition] = PartitionLog.open(
                disk,
                f"{path}/{name}",
                topic_partition,
                _read_topic_id(disk, f"{path}/{name}"),
                settings_for(topic_partition.topic),
                now=now,
                recovery_point=recovery_points.get(topic_partition, Offset(0)),
                was_clean=self.was_clean,
                log_start_offset=log_starts.get(topic_partition, Offset(0)),
            )
            if not self.was_clean and log.topic_id != ZERO_UUID:
                # Of a process that was killed before it synced: it must not vanish from under records that are acknowledged now.
                log.sync_with_next(disk.open(f"{path}/{name}/{PARTITION_METADATA_FILE}"))
        self._lower_recovery_points(recovery_points)
        # Gone before the first append: a crash from here on must not pass for a clean stop.
        disk.remove(f"{path}/{CLEAN_SHUTDOWN_FILE}")

    def _lower_recovery_points(self, checkpointed: Mapping[TopicPartition, Offset]) -> None:
        """Where recovery had to cut below it, the checkpoint must not vouch for what will be written there anew."""
        lowered = {
            topic_partition: min(offset, self.logs[topic_partition].recovery_point)
            for topic_partition, offset in checkpointed.items()
            if topic_partition in self.logs
        }
        if any(offset < checkpointed[topic_partition] for topic_partition, offset in lowered.items()):
            self._disk.write(f"{self.path}/{RECOVERY_POINT_FILE}", render_offsets(lowered))

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        content = self._disk.read(f"{self.path}/{name}")
        if content is None:
            return {}
        try:
            return parse_offsets(content)
        except CheckpointCorrupt:
            return {}  # nothing is known then, and recovery starts from offset 0

    # -- partitions

    def create(self, topic_partition: TopicPartition, topic_id: Uuid, settings: LogSettings, now: Instant) -> PartitionLog:
        """Make the directory of a partition and begin its log. Raises StorageError."""
        assert topic_partition not in self.logs, topic_partition
        if topic_partition in self._checkpointed:
            self._strike_out()
        directory = f"{self.path}/{topic_partition}"
        self._disk.make_directory(directory)
        log = PartitionLog.open(self._disk, directory, topic_partition, topic_id, settings, now=now)
        self.logs[topic_partition] = log
        self.identify(topic_partition, topic_id)
        return log

    def _strike_out(self) -> None:
        """Take those that are gone out of the checkpoints: what is said of a deleted log would pass for true of the next of its name.

        Blocks, for the first record must not come before. Raises StorageError.
        """
        for name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE):
            offsets = self._read_checkpoint(name)
            kept = {topic_partition: offset for topic_partition, offset in offsets.items() if topic_partition in self.logs}
            if len(kept) < len(offsets):
                self._disk.write(f"{self.path}/{name}", render_offsets(kept))
        self._checkpointed = dict.fromkeys(self.logs)
        self.high_watermarks = {
            topic_partition: offset for topic_partition, offset in self.high_watermarks.items() if topic_partition in self.logs
        }

    def identify(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """Write down which topic a partition belongs to; durable with its next sync, as its first record is. Raises StorageError."""
        log = self.logs[topic_partition]
        metadata = self._disk.open(f"{log.directory}/{PARTITION_METADATA_FILE}", create=True)
        metadata.truncate(0)
        metadata.append(f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode())
        log.topic_id = topic_id
        log.sync_with_next(metadata)

    def delete(self, topic_partition: TopicPartition) -> Callable[[], None]:
        """Take a partition out of service by renaming its directory; the job that is returned removes the files. Raises StorageError."""
        doomed = self._rename(topic_partition, DELETE_SUFFIX)
        disk = self._disk
        return lambda: disk.remove(doomed)

    def set_aside(self, topic_partition: TopicPartition) -> str:
        """Take a partition out of service and keep its files; returns where. Raises StorageError."""
        return self._rename(topic_partition, STRAY_SUFFIX)

    def _rename(self, topic_partition: TopicPartition, ending: str) -> str:
        log = self.logs.pop(topic_partition)
        log.close()
        suffix = f".{self._entropy(16).hex()}{ending}"
        path = f"{self.path}/{str(topic_partition)[: _NAME_MAX - len(suffix)]}{suffix}"
        self._disk.rename(log.directory, path)
        return path

    # -- checkpoints

    def checkpoint_job(self, high_watermarks: Mapping[TopicPartition, Offset]) -> Callable[[], None]:
        """The checkpoints as of now, and the job that makes them durable. One at a time."""
        disk, path = self._disk, self.path
        recovery_points = {topic_partition: log.recovery_point for topic_partition, log in self.logs.items()}
        # Also where the first segment begins there: until the files before it are renamed, a crash brings them back.
        log_starts = {topic_partition: log.log_start_offset for topic_partition, log in self.logs.items() if log.log_start_offset > 0}
        contents = {
            RECOVERY_POINT_FILE: render_offsets(recovery_points),
            HIGH_WATERMARK_FILE: render_offsets(high_watermarks),
            LOG_START_FILE: render_offsets(log_starts),
        }
        self._checkpointed |= dict.fromkeys(recovery_points)

        def write() -> None:
            disk.sync([disk.replace(f"{path}/{name}", content) for name, content in contents.items()])

        return write

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Write the checkpoints now. Blocks. Raises StorageError."""
        self.checkpoint_job(high_watermarks)()

    def close(self, high_watermarks: Mapping[TopicPartition, Offset], now: Instant, *, broker_epoch: int = _NO_BROKER_EPOCH) -> None:
        """Stop cleanly: everything durable, nothing left to scan, then the mark that says so. Raises StorageError."""
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
        mark = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.write(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", mark.encode())
        self._disk.unlock(self.path)


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
