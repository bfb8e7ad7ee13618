"""The partitions that a checkpoint names and that have no directory.

    t-0 named with a recovery point ─┬─ t-0/ exists ──► opened
                                     ├─ t-0.<uuid>-delete, -stray or -future exists ──► deleted, set aside or
                                     │                                       moved: the name is struck out
                                     └─ neither ──► damage: the directory was removed by another program

A directory that this broker renames to `-delete` is removed only once no checkpoint on disk names its
partition, so the third case is never the result of a crash.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from sparklog.model import Offset, TopicPartition
from sparklog_server.log.segment.damage import LogDamaged

from .names import FUTURE_SUFFIX

DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
NAME_MAX: Final = 255
_UNIQUE_CHARACTERS: Final = 33  # a dot and a UUID in hex


def doomed_name(topic_partition: TopicPartition, unique: bytes, ending: str) -> str:
    """The name of a directory that is deleted or set aside; a topic name that is too long is cut."""
    suffix = f".{unique.hex()}{ending}"
    return f"{str(topic_partition)[: NAME_MAX - len(suffix)]}{suffix}"


class Absent:
    """Finds the partitions with a recovery point above 0 that have no directory among `names`, the entries of
    a log directory.
    """

    def __init__(self, names: Iterable[str], recovery_points: Mapping[TopicPartition, Offset]) -> None:
        there = frozenset(names)
        endings = DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX
        renamed: dict[tuple[str, str], list[str]] = {}
        for name in sorted(there):
            for ending in endings:
                if name.endswith(ending):
                    renamed.setdefault((name.removesuffix(ending)[:-_UNIQUE_CHARACTERS], ending), []).append(
                        name
                    )
        self.renamed: dict[str, None] = {}
        """The names that the directories of such partitions may have now."""
        self.missing: list[TopicPartition] = []
        for topic_partition, recovery_point in recovery_points.items():
            name = str(topic_partition)
            if recovery_point > 0 and name not in there:
                found = [
                    renamed.get((name[: NAME_MAX - _UNIQUE_CHARACTERS - len(ending)], ending), ())
                    for ending in endings
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
