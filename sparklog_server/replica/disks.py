"""Checks over all log directories of a node: space for partitions, full directories, and the partition of an
unreadable file.
"""

from collections.abc import Sequence

from sparklog.effects import Sliceable
from sparklog.model import Instant
from sparklog_server.disk.door import StorageError
from sparklog_server.replica.directory import ReplicaDirectory
from sparklog_server.replica.removals import Removals
from sparklog_server.replica.retention import Retention


def has_room(directories: Sequence[ReplicaDirectory], now: Instant) -> bool:
    """Whether one of the directories has space for a new partition: its reserve is free."""
    return any(directory.error is None and directory.room.has_room(now) for directory in directories)


def look_for_room(
    directories: Sequence[ReplicaDirectory], retention: Retention, removals: Removals, now: Instant
) -> bool:
    """Whether work that was postponed for lack of space is due; while a disk is full, retention runs
    at once.
    """
    is_due = False
    for directory in directories:
        if directory.error is None and directory.room.is_look_due(now):
            is_due = True
            if directory.room.is_full:
                retention.hurry(now)
                removals.hurry(now)
            else:
                directory.log_dir.keep_ballast()
    return is_due


def unreadable(directories: Sequence[ReplicaDirectory], file: Sliceable, error: StorageError) -> None:
    """Take the partition offline whose file could not be read while it was sent, unless the partition has
    closed the file since.

    The path does not identify it: a cleaned segment, or a new topic, may have the name of a file that readers
    still hold open.
    """
    for directory in directories:
        for partition in list(directory.partitions):
            if not partition.log.is_closed and any(
                segment.file is file for segment in partition.log.segments.all
            ):
                directory.partition_failed(partition, error)
