"""The mark of a clean stop: the end of the metadata log, in the form of Kafka's offset checkpoints.

It is written after the whole log is durable and removed before the next append: a start that finds it scans
nothing. Kafka has no such mark and scans its metadata log at every start.
"""

from sparklog.model import Offset, TopicPartition
from sparklog_server.disk.checkpoint import CheckpointCorrupt, parse_offsets, render_offsets
from sparklog_server.disk.door import Disk

FILE_NAME = "clean-stop-checkpoint"


def read_mark(disk: Disk, directory: str, log: TopicPartition) -> Offset | None:
    """The log end at the clean stop, None after any other stop. Blocks. Raises StorageError."""
    content = disk.read(f"{directory}/{FILE_NAME}")
    try:
        return None if content is None else parse_offsets(content).get(log)
    except CheckpointCorrupt:
        return None


def remove_mark(disk: Disk, directory: str) -> None:
    """Remove the mark durably, before the first append. Blocks. Raises StorageError."""
    disk.remove(f"{directory}/{FILE_NAME}")


def leave_mark(disk: Disk, directory: str, log: TopicPartition, end_offset: Offset) -> None:
    """Write the mark: the log is whole and durable up to its end. Blocks. Raises StorageError."""
    disk.write(f"{directory}/{FILE_NAME}", render_offsets({log: end_offset}))
