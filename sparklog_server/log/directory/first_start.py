"""Tells new log directories from used ones. A used directory is never formatted, and no new cluster begins in
it.

    new                     only the files that `storage format` writes: meta.properties, bootstrap.checkpoint
    has served              partitions, moved aside or not, a checkpoint of offsets, the mark of a clean stop,
                            the metadata log

meta.properties is durable before any of these is written, and the metadata log begins before any partition
does. So a directory that has served without meta.properties, or partitions without the metadata log, lost
them.
"""

from collections.abc import Sequence

from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_properties
from sparklog_server.disk.door import Disk
from sparklog_server.log.segment.segment import LOG_SUFFIX

from .identity import META_FILE, DirectoryRefused
from .names import partition_of

METADATA_DIRECTORY = "__cluster_metadata-0"
_SNAPSHOT_SUFFIX = ".checkpoint"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
"""The first metadata records of a cluster, which `kafka-storage format` leaves in each directory."""
_NEW_FILES = frozenset((META_FILE, BOOTSTRAP_FILE, "lost+found"))
_ASIDE_SUFFIXES = ("-stray", "-future", "-delete")
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    CLEANER_CHECKPOINT,
)
_SERVED_FILES = (".kafka_cleanshutdown", *CHECKPOINTS)


def has_metadata_log(disk: Disk, path: str) -> bool:
    """Whether a directory contains a metadata log: a segment or a snapshot. Raises StorageError."""
    names = disk.list(f"{path}/{METADATA_DIRECTORY}")
    return any(name.endswith((LOG_SUFFIX, _SNAPSHOT_SUFFIX)) and name != BOOTSTRAP_FILE for name in names)


def data_in(disk: Disk, path: str) -> str | None:
    """The evidence that a directory has held partitions, in words; None if there is none. Raises
    StorageError.
    """
    names = disk.list(path)
    partitions = [
        name
        for name in names
        if name != METADATA_DIRECTORY and (partition_of(name) or name.endswith(_ASIDE_SUFFIXES))
    ]
    if partitions:
        return f"the directory of partition {partitions[0]}" + (
            f" and {len(partitions) - 1} more" if len(partitions) > 1 else ""
        )
    return next((f"the file {name}" for name in _SERVED_FILES if name in names), None)


def refuse_unformatted(disk: Disk, path: str, remedy: str) -> None:
    """Refuse to start a node of a cluster in a directory that names no cluster: it would take an id of its
    own. `remedy` has the command that formats it, where it holds nothing. Raises DirectoryRefused and
    StorageError.
    """
    if disk.read(f"{path}/{META_FILE}") is not None:
        return
    if has_metadata_log(disk, path):
        refuse_what_was_lost(disk, path)
    evidence = data_in(disk, path)
    remains = f", and holds {evidence}, the rest of a lost disk: move {path} away" if evidence else ""
    raise DirectoryRefused(
        path,
        f"the directory is not formatted{remains}, and a node of a cluster does not choose the cluster's id: "
        f"{remedy}",
    )


def refuse_what_was_lost(disk: Disk, path: str) -> None:
    """Refuse to format a directory that was in use before. Raises DirectoryRefused and StorageError."""
    if META_FILE in disk.list(path):
        return
    evidence = data_in(disk, path) or (
        f"the metadata log {METADATA_DIRECTORY}" if has_metadata_log(disk, path) else None
    )
    if evidence is not None:
        reason = (
            f"the file is missing, but the directory holds {evidence}: restore the file from a copy, or run "
            f"`sparklog log repair {path}`, "
            "which makes it anew from the other directories and the metadata log"
        )
        raise DirectoryRefused(path, reason)


def refuse_without_metadata(
    disk: Disk, metadata_path: str, data_paths: Sequence[str], *, is_joining: bool
) -> None:
    """Refuse to begin a new cluster if the metadata log of the old one is missing. A node that `is_joining`
    fetches it from the voters if its directory was formatted and never used: one that lost the log may have
    lost votes. Raises DirectoryRefused and StorageError.

    A data directory that cannot be listed is skipped: its failure is reported when it is opened.
    """
    if has_metadata_log(disk, metadata_path):
        return
    names = disk.list(metadata_path)
    is_formatted = META_FILE in names
    if is_joining and is_formatted and _NEW_FILES.issuperset(names):
        return
    for path in dict.fromkeys((metadata_path, *data_paths)):
        evidence = data_in(disk, path)
        if evidence is None and not is_formatted and path != metadata_path:
            cluster_id = _cluster_id(disk, path)
            evidence = None if cluster_id is None else f"a {META_FILE} of cluster {cluster_id}"
        if evidence is not None:
            reason = (
                f"the metadata log is missing, but {path} holds {evidence}. Without it no topic is known, "
                f"and a new cluster is not begun over "
                "the data of another: mount or restore the directory that holds the metadata log, or correct "
                "metadata.log.dir; "
            )
            reason += (
                f"if it is lost, empty {metadata_path}, run `sparklog format --ignore-formatted "
                f"--no-initial-controllers` with the id of the cluster, and the node joins it again"
                if is_joining
                else "to begin a new cluster, name empty directories in log.dirs"
            )
            raise DirectoryRefused(metadata_path, reason, file=METADATA_DIRECTORY)


def _cluster_id(disk: Disk, path: str) -> str | None:
    content = disk.read(f"{path}/{META_FILE}")
    try:
        return None if content is None else parse_properties(content).get("cluster.id")
    except CheckpointCorrupt:
        return None
