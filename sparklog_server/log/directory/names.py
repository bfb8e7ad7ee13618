"""The names of partition directories, and the copies of moves between log directories that a start finds.

    <topic>-<n>                  a log
    <topic>-<n>.<uuid>-future    the copy of a log in another log directory (KIP-113)

In the turn of its swap a copy is renamed to the name of a log; the source log is renamed for deletion only
once that name is durable. So there is at least one log at any moment. A crash may leave two logs, or a log
and a copy with more records. The longer one is correct, because later records were acknowledged only in it;
up to the end of the shorter one both have the same bytes.
"""

from typing import NamedTuple

from sparklog.model import Offset, TopicPartition, Uuid
from sparklog_server.disk.door import Disk
from sparklog_server.log.segment.segment import LOG_SUFFIX, Segment, offset_of

FUTURE_SUFFIX = "-future"
_UNIQUE_BYTES = 16


class Future(NamedTuple):
    """A copy found at the start, and the checkpointed offsets of the log that it may have become."""

    name: str
    topic_id: Uuid
    recovery_point: Offset
    log_start_offset: Offset


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None if it is not the name of a partition directory."""
    topic, dash, partition = name.rpartition("-")
    if (
        not dash
        or not topic
        or not (partition.isascii() and partition.isdecimal())
        or str(int(partition)) != partition
    ):
        return None
    return TopicPartition(topic, int(partition))


def future_name(topic_partition: TopicPartition, unique: bytes) -> str:
    """The directory name of a copy, as in Kafka; longer than 255 characters if the topic name is too long for
    a move.
    """
    return f"{topic_partition}.{unique.hex()}{FUTURE_SUFFIX}"


def partition_of_future(name: str) -> TopicPartition | None:
    """The partition whose copy has this name; None if it is not the name of a copy."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    return partition_of(name.removesuffix(FUTURE_SUFFIX).rpartition(".")[0])


def may_be_further(disk: Disk, directory: str, active: Segment) -> bool:
    """Whether a copy in `directory` may have records that the log with this active segment does not. Raises
    StorageError.
    """
    bases = segments_in(disk, directory)
    if not bases or bases[-1] != active.base_offset:
        return bool(bases) and bases[-1] > active.base_offset
    return disk.open(f"{directory}/{bases[-1]:020d}{LOG_SUFFIX}").size > active.file.size


def segments_in(disk: Disk, directory: str) -> tuple[Offset, ...]:
    """The base offsets of the segments in a copy. Raises StorageError."""
    return tuple(
        base_offset
        for name in disk.list(directory)
        if (base_offset := offset_of(name, LOG_SUFFIX)) is not None
    )
