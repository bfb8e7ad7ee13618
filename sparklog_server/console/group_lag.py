"""Groups with the lag of each partition that they read."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from sparklog.client.admin import Admin, ItemsFailed
from sparklog.client.admin_groups import SPARK_METADATA, GroupDescription, GroupMember, GroupOffset
from sparklog.model import TopicPartition
from sparklog_server.cli.groups import lag_of, log_ends, partitions_of, rows_of

V = TypeVar("V")


class LagRow(NamedTuple):
    """A partition that a group reads."""

    at: TopicPartition
    committed: int | None
    end: int | None
    lag: int | None
    metadata: str
    member: GroupMember | None


class DescribedGroup(NamedTuple):
    """A group with its lag by partition."""

    group: GroupDescription
    rows: list[LagRow]
    is_spark: bool


def described_groups(admin: Admin, names: list[str]) -> dict[str, DescribedGroup]:
    """The groups that exist, those that the user may see."""
    described = _those_that_succeed(admin.describe_groups, names)
    committed = _those_that_succeed(admin.list_group_offsets, list(described))
    ends = log_ends(admin, partitions_of(described, committed))
    return {
        name: DescribedGroup(
            one, _rows(one, committed.get(name, {}), ends), _is_spark(one, committed.get(name, {}))
        )
        for name, one in described.items()
    }


def _those_that_succeed(call: Callable[[list[str]], dict[str, V]], names: list[str]) -> dict[str, V]:
    if not names:
        return {}
    try:
        return call(names)
    except ItemsFailed as failed:
        return failed.results


def _rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, GroupOffset],
    ends: Mapping[TopicPartition, int],
) -> list[LagRow]:
    return [
        LagRow(
            at,
            committed[at].offset if at in committed else None,
            ends.get(at),
            lag_of(committed.get(at), ends.get(at)),
            committed[at].metadata if at in committed else "",
            member,
        )
        for at, member in rows_of(group, committed)
    ]


def _is_spark(group: GroupDescription, committed: Mapping[TopicPartition, GroupOffset]) -> bool:
    """Whether the offsets are those that a Spark query commits under its `groupId`: it is no member."""
    return not group.members and any(one.metadata == SPARK_METADATA for one in committed.values())
