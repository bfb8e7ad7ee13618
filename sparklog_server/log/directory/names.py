"""The directories of partitions by their names.

    <topic>-<n>                  a log
    <topic>-<n>.<uuid>-future    the copy of a log that moves here from another log directory (KIP-113)
    <topic>-<n>.<uuid>-delete    a log that is being deleted
    <topic>-<n>.<uuid>-stray     a log that no topic claimed at a start

A partition that a checkpoint names with a recovery point, and that has none of these, is damaged: another
program removed its directory. A crash cannot have that result, because a directory is removed under its name
`-delete`, and only once no checkpoint on disk names its partition.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from sparklog.model import Offset, TopicPartition
from sparklog_server.log.segment.damage import LogDamaged

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
NAME_MAX: Final = 255
_UNIQUE_CHARACTERS: Final = 33  # a dot and a UUID in hex


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


def name_with_suffix(topic_partition: TopicPartition, unique: bytes, suffix: str) -> str:
    """The name of a directory that is deleted or stray; a topic name that is too long is cut, as in Kafka."""
    ending = f".{unique.hex()}{suffix}"
    return f"{str(topic_partition)[: NAME_MAX - len(ending)]}{ending}"


class Absent:
    """Finds the partitions with a recovery point above 0 that have no directory among `names`, the entries of
    a log directory.
    """

    def __init__(self, names: Iterable[str], recovery_points: Mapping[TopicPartition, Offset]) -> None:
        there = frozenset(names)
        suffixes = DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX
        renamed: dict[tuple[str, str], list[str]] = {}
        for name in sorted(there):
            for suffix in suffixes:
                if name.endswith(suffix):
                    capped = name.removesuffix(suffix)[:-_UNIQUE_CHARACTERS]
                    renamed.setdefault((capped, suffix), []).append(name)
        self.renamed: dict[str, None] = {}
        """The names that the directories of such partitions may have now."""
        self.missing: list[TopicPartition] = []
        for topic_partition, recovery_point in recovery_points.items():
            name = str(topic_partition)
            if recovery_point > 0 and name not in there:
                found = [
                    renamed.get((name[: NAME_MAX - _UNIQUE_CHARACTERS - len(suffix)], suffix), ())
                    for suffix in suffixes
                ]
                self.renamed.update((one, None) for names_found in found for one in names_found)
                if not any(found):
                    self.missing.append(topic_partition)


def damage_of(
    path: str, topic_partition: TopicPartition, start: Offset, recovery_point: Offset
) -> LogDamaged:
    """The damage of a partition whose directory is missing in the log directory at `path`."""
    return LogDamaged(
        f"{path}/{topic_partition}",
        "the directory is missing",
        start=start,
        end=recovery_point,
        recovery_point=recovery_point,
        log_dir=path,
    )
