"""Moves of the committed offsets of a group: where it would continue, and whether it may be moved."""

from collections.abc import Mapping

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.admin.groups import GroupOffset
from sparklog.client.admin.positions import INT64_MAX, Position, offsets_at
from sparklog.errors import ErrorCode
from sparklog.model import TopicPartition

from .refused import OperationRefused

IDLE_STATES = ("Empty", "Dead")


def relative(
    cluster: Admin,
    committed: Mapping[TopicPartition, GroupOffset],
    partitions: list[TopicPartition],
    shift: int,
) -> dict[TopicPartition, int]:
    """`shift` offsets from the committed offset; without one, from the log end offset."""
    ends = offsets_at(
        cluster, [partition for partition in partitions if partition not in committed], Position("latest")
    )
    stands = {
        partition: committed[partition].offset if partition in committed else ends[partition]
        for partition in partitions
    }
    return within_logs(
        cluster, {partition: max(0, min(offset + shift, INT64_MAX)) for partition, offset in stands.items()}
    )


def within_logs(cluster: Admin, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Each offset, or the nearest one within its log."""
    partitions = list(offsets)
    begins, ends = (offsets_at(cluster, partitions, Position(kind)) for kind in ("earliest", "latest"))
    return {
        partition: min(max(offset, begins[partition]), ends[partition])
        for partition, offset in offsets.items()
    }


def require_idle(cluster: Admin, group: str) -> None:
    """Raise OperationRefused for a group with members: they would continue from their own positions and
    overwrite the new offsets. A group that does not exist is idle: the commit creates it.
    """
    try:
        described = cluster.describe_groups([group])[group]
    except ItemsFailed as failed:
        if failed.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if described.state not in IDLE_STATES:
        raise OperationRefused(
            f"group {group!r} is {described.state} with {len(described.members)} members; stop them, then "
            f"reset its offsets"
        )
