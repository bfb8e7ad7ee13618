"""Groups of both protocols and their committed offsets, from their coordinators, many at a time."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from sparklog.client.admin.calls import Caller, ItemsFailed, is_passing, refusal, settle
from sparklog.client.admin.fan_out import of_coordinating_brokers
from sparklog.client.transport.connection import UnsupportedByBroker
from sparklog.errors import BrokerError, DecodeError, ErrorCode
from sparklog.model import LeaderEpoch, Micros, NodeId, Offset, TopicPartition
from sparklog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from sparklog.wire.messages.consumer_protocol import ConsumerProtocolAssignment, decode_prefixed
from sparklog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from sparklog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from sparklog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

if TYPE_CHECKING:
    from sparklog.wire.messages.consumer_group_describe import Assignment
    from sparklog.wire.messages.consumer_group_describe import DescribedGroup as ModernGroup
    from sparklog.wire.messages.describe_groups import DescribedGroup as ClassicGroup
    from sparklog.wire.messages.offset_fetch import OffsetFetchResponseTopic, OffsetFetchResponseTopics

_OFFSETS_TOPIC: Final = "__consumer_offsets"
_NAMED_TOPICS_UNTIL: Final = 9
"""The newest version of OffsetCommit with topic names; later ones have topic ids, which the coordinator may
know better than this client.
"""


SPARK_METADATA: Final = "sparklog: progress of a Spark query"
"""The metadata of offsets that a Spark query commits under its `groupId`, by which tools recognise them."""


class GroupListing(Struct, frozen=True, order=True):
    """A group; `type` is in Kafka's words, `Classic`, `Consumer` …; type and state are empty if the broker's
    version does not return them.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str


class GroupMember(Struct, frozen=True):
    """A member; for a member of a classic group the epoch is -1, and target and subscription are empty."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] = ()
    epoch: int = -1
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    rack: str | None = None


class GroupDescription(Struct, frozen=True):
    """A group as its coordinator sees it, `Classic` or `Consumer`; epochs are -1 for classic groups."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: NodeId
    members: tuple[GroupMember, ...]
    epoch: int = -1
    assignment_epoch: int = -1


class GroupOffset(Struct, frozen=True):
    """A committed offset of a group: the offset of the next record to read."""

    offset: Offset
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    metadata: str = ""


def list_groups(caller: Caller, *, states: Iterable[str], types: Iterable[str]) -> list[GroupListing]:
    """See Admin.list_groups."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    replies, errors = of_coordinating_brokers(
        caller, _OFFSETS_TOPIC, request, ListGroupsResponse, lambda reply: [reply.error_code]
    )
    found = {
        node: [
            GroupListing(
                group.group_id, group.group_type.capitalize(), group.group_state, group.protocol_type
            )
            for group in reply.groups
        ]
        for node, reply in replies.items()
    }
    return sorted(set(chain(*settle(found, errors).values())))


def describe_groups(caller: Caller, groups: Iterable[str]) -> dict[str, GroupDescription]:
    """See Admin.describe_groups."""
    return caller.of_coordinators(groups, partial(_describe, caller, deadline := caller.deadline()), deadline)


def _describe(
    caller: Caller, deadline: Micros, node: NodeId, groups: list[str]
) -> dict[str, GroupDescription | BrokerError]:
    """Describe groups with the new protocol first, then the others as classic groups, as Kafka's
    client does.
    """
    results: dict[str, GroupDescription | BrokerError] = {}
    try:
        modern = caller.call(
            ConsumerGroupDescribeRequest(group_ids=groups), ConsumerGroupDescribeResponse, deadline, node=node
        ).groups
    except UnsupportedByBroker:
        modern = []
    for group in modern:
        if group.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            results[group.group_id] = refusal(
                group.error_code, f"group {group.group_id!r}", group.error_message
            ) or _modern(group, node)
    left = [group for group in groups if group not in results]
    if left:
        for classic in caller.call(
            DescribeGroupsRequest(groups=left), DescribeGroupsResponse, deadline, node=node
        ).groups:
            # Before v6 an unknown group is reported as dead.
            code = classic.error_code or (
                ErrorCode.GROUP_ID_NOT_FOUND if classic.group_state == "Dead" else 0
            )
            results[classic.group_id] = refusal(
                code, f"group {classic.group_id!r}", classic.error_message
            ) or _classic(classic, node)
    return results


def _modern(group: "ModernGroup", node: NodeId) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _assigned(member.assignment),
            _assigned(member.target_assignment),
            member.member_epoch,
            tuple(member.subscribed_topic_names),
            member.subscribed_topic_regex or None,
            member.rack_id,
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        "Consumer",
        group.group_state,
        "consumer",
        group.assignor_name,
        node,
        members,
        group.group_epoch,
        group.assignment_epoch,
    )


def _classic(group: "ClassicGroup", node: NodeId) -> GroupDescription:
    members = []
    for member in group.members:
        assigned: tuple[TopicPartition, ...] = ()
        if group.protocol_type == "consumer" and member.member_assignment:
            try:
                decoded = decode_prefixed(
                    ConsumerProtocolAssignment, member.member_assignment
                ).assigned_partitions
                assigned = tuple(
                    sorted(
                        TopicPartition(topic.topic, number)
                        for topic in decoded
                        for number in topic.partitions
                    )
                )
            except DecodeError:
                assigned = ()  # the assignment has a format of the members' own
        members.append(
            GroupMember(
                member.member_id, member.group_instance_id, member.client_id, member.client_host, assigned
            )
        )
    return GroupDescription(
        group.group_id,
        "Classic",
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        node,
        tuple(members),
    )


def _assigned(assignment: "Assignment") -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def delete_groups(caller: Caller, groups: Iterable[str]) -> None:
    """See Admin.delete_groups."""
    deadline = caller.deadline()

    def delete(node: NodeId, own: list[str]) -> dict[str, bool | BrokerError]:
        results = caller.call(
            DeleteGroupsRequest(groups_names=own), DeleteGroupsResponse, deadline, node=node
        ).results
        return {
            result.group_id: refusal(result.error_code, f"group {result.group_id!r}") or True
            for result in results
        }

    caller.of_coordinators(groups, delete, deadline)


# -- offsets -------------------------------------------------------------------------------------------------


def list_group_offsets(
    caller: Caller,
    groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool,
) -> dict[str, dict[TopicPartition, GroupOffset]]:
    """See Admin.list_group_offsets."""
    asked = groups if isinstance(groups, Mapping) else dict.fromkeys(groups)
    wanted = {
        group: None if partitions is None else _by_topic(partitions) for group, partitions in asked.items()
    }
    deadline = caller.deadline()

    def fetch(node: NodeId, own: list[str]) -> dict[str, dict[TopicPartition, GroupOffset] | BrokerError]:
        return _fetched(
            caller, node, {group: wanted[group] for group in own}, deadline, require_stable=require_stable
        )

    return caller.of_coordinators(wanted, fetch, deadline)


def _fetched(
    caller: Caller,
    node: NodeId,
    groups: Mapping[str, dict[str, list[int]] | None],
    deadline: Micros,
    *,
    require_stable: bool,
) -> dict[str, dict[TopicPartition, GroupOffset] | BrokerError]:
    asked = [
        OffsetFetchRequestGroup(
            group_id=group,
            topics=None
            if topics is None
            else [OffsetFetchRequestTopics(name=name, partition_indexes=own) for name, own in topics.items()],
        )
        for group, topics in groups.items()
    ]
    try:
        request = OffsetFetchRequest(groups=asked, require_stable=require_stable)
        fetched = caller.call(
            request, OffsetFetchResponse, deadline, node=node, version_max=_NAMED_TOPICS_UNTIL
        ).groups
        return {group.group_id: _offsets(group, group.topics) for group in fetched}
    except UnsupportedByBroker:
        # One group at a time before v8.
        found: dict[str, dict[TopicPartition, GroupOffset] | BrokerError] = {}
        for name, topics in groups.items():
            listed = (
                None
                if topics is None
                else [OffsetFetchRequestTopic(topic, own) for topic, own in topics.items()]
            )
            one = OffsetFetchRequest(group_id=name, topics=listed, require_stable=require_stable)
            reply = caller.call(one, OffsetFetchResponse, deadline, node=node, version_max=7)
            found[name] = _offsets(
                OffsetFetchResponseGroup(group_id=name, error_code=reply.error_code), reply.topics or []
            )
        return found


def _offsets(
    group: "OffsetFetchResponseGroup",
    topics: "Iterable[OffsetFetchResponseTopics | OffsetFetchResponseTopic]",
) -> dict[TopicPartition, GroupOffset] | BrokerError:
    """The commits of a group; an error of one partition is raised for the group, because it is retriable."""
    error = refusal(group.error_code, f"group {group.group_id!r}")
    found: dict[TopicPartition, GroupOffset] = {}
    for topic in topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            error = error or refusal(result.error_code, f"group {group.group_id!r}, {partition}")
            if result.committed_offset >= 0:
                found[partition] = GroupOffset(
                    Offset(result.committed_offset),
                    LeaderEpoch(result.committed_leader_epoch),
                    result.metadata or "",
                )
    return error or {partition: found[partition] for partition in sorted(found)}


def alter_group_offsets(
    caller: Caller, group: str, offsets: Mapping[TopicPartition, int | GroupOffset]
) -> None:
    """See Admin.alter_group_offsets."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, given in offsets.items():
        at = given if isinstance(given, GroupOffset) else GroupOffset(Offset(given))
        topic = topics.setdefault(
            partition.topic, OffsetCommitRequestTopic(name=partition.topic, partitions=[])
        )
        topic.partitions.append(
            OffsetCommitRequestPartition(partition.partition, at.offset, at.leader_epoch, at.metadata)
        )
    deadline = caller.deadline()

    def commit(node: NodeId, _: list[str]) -> dict[str, bool | BrokerError]:
        request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))
        reply = caller.call(
            request, OffsetCommitResponse, deadline, node=node, version_max=_NAMED_TOPICS_UNTIL
        )
        return {
            group: _outcome(
                {
                    TopicPartition(t.name, p.partition_index): p.error_code
                    for t in reply.topics
                    for p in t.partitions
                }
            )
        }

    if topics:
        _of_partitions(caller, group, commit, deadline)


def delete_group_offsets(caller: Caller, group: str, partitions: Iterable[TopicPartition]) -> None:
    """See Admin.delete_group_offsets."""
    topics = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(number) for number in own])
        for name, own in _by_topic(partitions).items()
    ]
    deadline = caller.deadline()

    def delete(node: NodeId, _: list[str]) -> dict[str, bool | BrokerError]:
        reply = caller.call(OffsetDeleteRequest(group, topics), OffsetDeleteResponse, deadline, node=node)
        codes = {
            TopicPartition(t.name, p.partition_index): p.error_code
            for t in reply.topics
            for p in t.partitions
        }
        return {group: refusal(reply.error_code, f"group {group!r}") or _outcome(codes)}

    if topics:
        _of_partitions(caller, group, delete, deadline)


def remove_members(
    caller: Caller, group: str, members: Iterable[str], instance_ids: Iterable[str], reason: str
) -> None:
    """See Admin.remove_group_members."""
    leaving = [MemberIdentity(member_id=member, reason=reason) for member in members]
    leaving += [MemberIdentity(group_instance_id=instance, reason=reason) for instance in instance_ids]
    deadline = caller.deadline()
    left: dict[str, BrokerError | None] = {}

    def leave(node: NodeId, _: list[str]) -> dict[str, bool | BrokerError]:
        reply = caller.call(
            LeaveGroupRequest(group_id=group, members=leaving), LeaveGroupResponse, deadline, node=node
        )
        for result in reply.members:
            name = result.group_instance_id or result.member_id
            left[name] = refusal(result.error_code, f"member {name!r} of group {group!r}")
        return {group: refusal(reply.error_code, f"group {group!r}") or True}

    if leaving:
        _of_partitions(caller, group, leave, deadline)
        settle(
            {name: None for name, error in left.items() if error is None},
            {n: error for n, error in left.items() if error is not None},
        )


def _outcome(codes: Mapping[TopicPartition, int]) -> bool | BrokerError:
    """The errors by partition; if all partitions have the same error, it is that of the group
    (NOT_COORDINATOR, REBALANCE_IN_PROGRESS …).
    """
    errors = {
        partition: cast(BrokerError, refusal(code, str(partition)))
        for partition, code in codes.items()
        if code
    }
    if not errors:
        return True
    first = next(iter(errors.values()))
    if (
        len(errors) == len(codes)
        and is_passing(first.code)
        and all(error.code is first.code for error in errors.values())
    ):
        return first
    return ItemsFailed(errors, {partition: None for partition, code in codes.items() if not code})


def _of_partitions(
    caller: Caller,
    group: str,
    ask: "Callable[[NodeId, list[str]], dict[str, bool | BrokerError]]",
    deadline: Micros,
) -> None:
    """Send a request for one group to its coordinator; errors of partitions are raised without that of the
    group.
    """
    try:
        caller.of_coordinators([group], ask, deadline)
    except ItemsFailed as failed:
        raise failed.errors[group] from None


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
