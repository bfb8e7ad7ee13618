"""The mark of a clean stop: where the metadata log ended, in the form of Kafka's offset checkpoints.

It is durable after everything in the log is, and gone before anything more is appended: where it is found,
nothing needs to be scanned. Kafka has none, and scans its metadata log at every start.
"""

from sparklog.model import Offset, TopicPartition
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets, render_offsets
from sparklog_server.disk.door import Disk

FILE_NAME = "clean-stop-checkpoint"


def read_mark(disk: Disk, directory: str, log: TopicPartition) -> Offset | None:
    """Where the log ended at its clean stop, None after any other. Blocks. Raises StorageError."""
    content = disk.read(f"{directory}/{FILE_NAME}")
    try:
        return None if content is None else parse_offsets(content).get(log)
    except CheckpointCorrupt:
        return None


def remove_mark(disk: Disk, directory: str) -> None:
    """Take the mark away for good, before anything is appended. Blocks. Raises StorageError."""
    disk.remove(f"{directory}/{FILE_NAME}")


def leave_mark(disk: Disk, directory: str, log: TopicPartition, end_offset: Offset) -> None:
    """Say that the log is whole and durable up to its end. Blocks. Raises StorageError."""
    disk.write(f"{directory}/{FILE_NAME}", render_offsets({log: end_offset}))
