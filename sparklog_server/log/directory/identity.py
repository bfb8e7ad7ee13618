"""The identities in a data directory: the cluster, node and directory ids in `meta.properties`, the topic ids
in `partition.metadata`, and the boot of the machine in `.sparklog-boot`.

The last one, `{"version":0,"bootId":…,"brokerEpoch":…,"incarnationId":…}`, tells a process that was killed
from a machine that lost power. A process that is killed leaves every byte that it wrote in the page cache. A
broker writes the boot id of the machine and its broker epoch when it is registered, before it acknowledges a
record. If the next process finds the same boot id, the directory still contains every record that was
acknowledged under that broker epoch. Before the registration it writes its incarnation id: if it is killed
before the answer, the next process continues that incarnation. The file need not be durable: after a loss of
power the boot id differs. See docs/decisions/0018-a-killed-process-loses-nothing.md.
"""

import contextlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from sparklog.model import ZERO_UUID, NodeId, Uuid
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_properties, render_properties
from sparklog_server.disk.door import Disk, DiskFile, StorageError

META_FILE = "meta.properties"
META_VERSION = "1"
PARTITION_METADATA_FILE = "partition.metadata"
BOOT_FILE = ".sparklog-boot"
META_KEYS = frozenset(("version", "cluster.id", "node.id", "directory.id"))


class DirectoryRefused(Exception):
    """The directory belongs to another cluster or node, or its `meta.properties` is missing or cannot be
    read.
    """

    def __init__(self, path: str, reason: str, *, file: str = META_FILE) -> None:
        super().__init__(f"{path}/{file}: {reason}")
        self.path = path
        self.reason = reason


def encode_uuid(uuid: Uuid) -> str:
    """The UUID in Kafka's text form: 22 characters, URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid).decode().rstrip("=")


def decode_uuid(text: str) -> Uuid:
    """The sixteen bytes of a UUID. Raises ValueError."""
    uuid = urlsafe_b64decode(text.encode() + b"==")
    if len(uuid) != len(ZERO_UUID):
        raise ValueError(f"{text!r} is not a UUID in base64")
    return Uuid(uuid)


def new_uuid(entropy: Callable[[int], bytes]) -> Uuid:
    """A random UUID (version 4) whose text does not begin with a dash, which a command line would parse as an
    option.
    """
    for _ in range(64):
        raw = bytearray(entropy(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = Uuid(bytes(raw))
        if not encode_uuid(uuid).startswith("-"):
            return uuid
    raise AssertionError("entropy without entropy")


def write_topic_id(disk: Disk, directory: str, topic_id: Uuid) -> DiskFile:
    """Write the topic id of a partition directory to its file; the caller syncs the file."""
    metadata = disk.open(f"{directory}/{PARTITION_METADATA_FILE}", create=True)
    metadata.truncate(0)
    metadata.append(f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode())
    return metadata


def read_topic_id(disk: Disk, directory: str) -> Uuid:
    """The topic id of a partition directory; zero if the file is missing."""
    content = disk.read(f"{directory}/{PARTITION_METADATA_FILE}")
    for line in (content or b"").decode(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key == "topic_id":
            try:
                return decode_uuid(value.strip())
            except ValueError:
                return ZERO_UUID
    return ZERO_UUID


def readable_topic_id(disk: Disk, directory: str) -> Uuid:
    """The topic id of a partition directory; zero also if something else has the name of the file."""
    try:
        return read_topic_id(disk, directory)
    except StorageError as error:
        if not error.is_of_path:
            raise
        return ZERO_UUID


def write_meta(disk: Disk, path: str, *, node_id: NodeId, cluster_id: str, directory_id: Uuid) -> None:
    """Format a directory: durable when this returns. Raises StorageError."""
    meta = {
        "version": META_VERSION,
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": encode_uuid(directory_id),
    }
    disk.write(f"{path}/{META_FILE}", render_properties(meta))


def read_meta(
    disk: Disk, path: str, *, node_id: NodeId, cluster_id: str | None, entropy: Callable[[int], bytes]
) -> dict[str, str]:
    """The content of meta.properties, validated; written if the file is missing or lacks the directory id."""
    content = disk.read(f"{path}/{META_FILE}")
    if content is None:
        meta = {
            "version": META_VERSION,
            "cluster.id": cluster_id or encode_uuid(new_uuid(entropy)),
            "node.id": str(node_id),
        }
    else:
        try:
            meta = parse_properties(content)
        except CheckpointCorrupt as error:
            raise _damaged(path, str(error)) from error
        _check_meta(path, meta, node_id=node_id, cluster_id=cluster_id)
    strangers = meta.keys() - META_KEYS
    if "directory.id" not in meta and strangers:
        raise _damaged(
            path,
            f"directory.id is missing, but there is {', '.join(sorted(strangers))}: correct it, or remove "
            f"that line",
        )
    if "directory.id" not in meta:
        meta["directory.id"] = encode_uuid(new_uuid(entropy))
        disk.write(f"{path}/{META_FILE}", render_properties(meta))
    try:
        decode_uuid(meta["directory.id"])
    except ValueError as error:
        raise _damaged(path, f"directory.id: {error}") from error
    return meta


def _damaged(path: str, reason: str) -> DirectoryRefused:
    return DirectoryRefused(
        path, f"{reason}; restore the file from a copy, or run `sparklog log repair {path}`"
    )


def _check_meta(path: str, meta: Mapping[str, str], *, node_id: NodeId, cluster_id: str | None) -> None:
    if meta.get("version") != META_VERSION:
        raise _damaged(
            path, f"version is {meta.get('version')}, but this broker reads version {META_VERSION}"
        )
    if not meta.get("cluster.id"):
        raise _damaged(path, "cluster.id is missing")
    if cluster_id is not None and meta["cluster.id"] != cluster_id:
        raise DirectoryRefused(
            path, f"belongs to cluster {meta['cluster.id']}, but this node is of cluster {cluster_id}"
        )
    if meta.get("node.id") != str(node_id):
        raise DirectoryRefused(path, f"belongs to node {meta.get('node.id')}, but this is node {node_id}")


class Boot(msgspec.Struct, frozen=True, rename="camel", tag_field="version", tag=0):
    """The evidence that a directory has every byte that its broker wrote in this boot of the machine.

    `broker_epoch` is that of the last registration which was answered. `incarnation_id` is that of a process
    that asked to be registered and has no answer yet, else empty.
    """

    boot_id: str
    broker_epoch: int
    incarnation_id: str = ""


NO_BOOT: Final = Boot("", -1)
"""No evidence."""


def write_boot(disk: Disk, directory: str, broker_epoch: int, incarnation_id: str = "") -> None:
    """Write the file where the boot id is known. A disk that fails leaves a file that proves nothing."""
    if not disk.boot_id:
        return
    with contextlib.suppress(StorageError):
        file = disk.open(f"{directory}/{BOOT_FILE}", create=True)
        file.truncate(0)
        file.append(msgspec.json.encode(Boot(disk.boot_id, broker_epoch, incarnation_id)))
        file.close()


def forget_boot(disk: Disk, directory: str) -> None:
    """Empty the file: the disk failed, and the kernel may have dropped written pages."""
    with contextlib.suppress(StorageError):
        file = disk.open(f"{directory}/{BOOT_FILE}")
        file.truncate(0)
        file.close()


def read_boot(disk: Disk, directory: str) -> Boot:
    """The file, if the machine has kept the page cache since it was written, else `NO_BOOT`. Raises
    StorageError.
    """
    content = disk.read(f"{directory}/{BOOT_FILE}")
    try:
        boot = msgspec.json.decode(content or b"", type=Boot)
        if boot.incarnation_id:
            decode_uuid(boot.incarnation_id)
    except ValueError:
        return NO_BOOT
    return boot if disk.boot_id and boot.boot_id == disk.boot_id else NO_BOOT


def epoch_of_mark(content: bytes | None) -> int:
    """The broker epoch in the mark of a clean stop; -1 if it has none."""
    try:
        found = msgspec.json.decode(content or b"{}")
    except ValueError:
        return -1
    epoch = found.get("brokerEpoch") if isinstance(found, dict) else None
    return epoch if isinstance(epoch, int) else -1
