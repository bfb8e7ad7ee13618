"""Groups with the lag of each partition that they read: the log end offset less the committed offset."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from sparklog.client.admin.admin import LATEST, Admin, ItemsFailed
from sparklog.client.admin.groups import SPARK_METADATA, GroupDescription, GroupMember, GroupOffset
from sparklog.client.failures import UnknownTopic
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import NodeId, TopicPartition

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


def described_groups(
    admin: Admin, names: list[str], silent: Collection[NodeId] = (), *, must_exist: bool = False
) -> DescribedGroups:
    """The groups that still exist; leaders of partitions that are `silent` are not asked for log ends. With
    `must_exist`, a group that does not exist is an error.
    """
    described, errors = _those_that_succeed(admin.describe_groups, names)
    committed, uncommitted = _those_that_succeed(admin.list_group_offsets, list(described))
    ends = log_ends(admin, _partitions_of(described, committed), silent)
    groups = {
        name: DescribedGroup(
            one,
            _lag_rows(one, committed.get(name, {}), ends),
            _is_spark(one, committed.get(name, {})),
            name in committed and all(ends.get(at, 0) is not None for at in committed[name]),
        )
        for name, one in described.items()
    }
    failed = errors | uncommitted
    if not must_exist:
        failed = {
            name: error for name, error in failed.items() if error.code is not ErrorCode.GROUP_ID_NOT_FOUND
        }
    return DescribedGroups(groups, failed)


def _those_that_succeed(
    call: Callable[[list[str]], dict[str, V]], names: list[str]
) -> tuple[dict[str, V], dict[str, BrokerError]]:
    if not names:
        return {}, {}
    try:
        return call(names), {}
    except ItemsFailed as failed:
        return failed.results, failed.errors


def _partitions_of(
    groups: Mapping[str, GroupDescription], committed: Mapping[str, Mapping[TopicPartition, GroupOffset]]
) -> list[TopicPartition]:
    """The partitions that groups have committed offsets for or are assigned, in order."""
    if not committed:
        return []
    found = {partition for offsets in committed.values() for partition in offsets}
    found |= {
        partition for group in groups.values() for member in group.members for partition in member.assignment
    }
    return sorted(found)


def log_ends(
    cluster: Admin, partitions: list[TopicPartition], silent: Collection[NodeId] = ()
) -> dict[TopicPartition, int | None]:
    """Log end offsets: None if the partition has no leader, or a silent one, which is not asked. A partition
    of a deleted topic has none.
    """
    names = list(dict.fromkeys(partition.topic for partition in partitions))
    try:
        topics = cluster.describe_topics(names)
    except UnknownTopic:
        topics = cluster.list_topics(include_internal=True)
    leaders = {TopicPartition(t.name, p.partition): p.leader for t in topics.values() for p in t.partitions}
    ends: dict[TopicPartition, int | None] = dict.fromkeys(at for at in partitions if at in leaders)
    asked = {at: LATEST for at in ends if leaders[at] >= 0 and leaders[at] not in silent}
    if asked:
        ends |= {at: told.offset for at, told in cluster.list_offsets(asked).items()}
    return ends


def _lag_rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, GroupOffset],
    ends: Mapping[TopicPartition, int | None],
) -> list[LagRow]:
    """The partitions that a group has committed offsets for or is assigned, in order. No lag is negative,
    because the log end offset may have been read before the commit.
    """
    readers = {partition: member for member in group.members for partition in member.assignment}
    rows = []
    for at in sorted({*committed, *readers}):
        commit, end = committed.get(at), ends.get(at)
        offset = None if commit is None else commit.offset
        lag = None if offset is None or end is None else max(0, end - offset)
        metadata = "" if commit is None else commit.metadata
        rows.append(LagRow(at, offset, end, lag, metadata, readers.get(at)))
    return rows


def _is_spark(group: GroupDescription, committed: Mapping[TopicPartition, GroupOffset]) -> bool:
    """Whether the offsets are those that a Spark query commits under its `groupId`: it is no member."""
    return not group.members and any(one.metadata == SPARK_METADATA for one in committed.values())
