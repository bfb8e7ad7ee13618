"""Groups with the lag of each partition that they read."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.admin.groups import SPARK_METADATA, GroupDescription, GroupMember, GroupOffset
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import NodeId, TopicPartition
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
    """A group with its lag by partition; `is_lag_known` unless commits or log ends were not to be had."""

    group: GroupDescription
    rows: list[LagRow]
    is_spark: bool
    is_lag_known: bool

    @property
    def lag(self) -> int | None:
        """The records still to read; None if it is not known, or nothing is committed."""
        known = [row.lag for row in self.rows if row.lag is not None]
        return sum(known) if known and self.is_lag_known else None


class DescribedGroups(NamedTuple):
    """Groups by name, and why others are not described."""

    groups: dict[str, DescribedGroup]
    errors: dict[str, BrokerError]


def described_groups(admin: Admin, names: list[str], silent: Collection[NodeId] = ()) -> DescribedGroups:
    """The groups that still exist; leaders of partitions that are `silent` are not asked for log ends."""
    described, errors = _those_that_succeed(admin.describe_groups, names)
    committed, uncommitted = _those_that_succeed(admin.list_group_offsets, list(described))
    ends = log_ends(admin, partitions_of(described, committed), silent)
    groups = {
        name: DescribedGroup(
            one,
            _rows(one, committed.get(name, {}), ends),
            _is_spark(one, committed.get(name, {})),
            name in committed and all(ends.get(at, 0) is not None for at in committed[name]),
        )
        for name, one in described.items()
    }
    gone = ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroups(
        groups, {name: error for name, error in (errors | uncommitted).items() if error.code is not gone}
    )


def _those_that_succeed(
    call: Callable[[list[str]], dict[str, V]], names: list[str]
) -> tuple[dict[str, V], dict[str, BrokerError]]:
    if not names:
        return {}, {}
    try:
        return call(names), {}
    except ItemsFailed as failed:
        return failed.results, failed.errors


def _rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, GroupOffset],
    ends: Mapping[TopicPartition, int | None],
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
