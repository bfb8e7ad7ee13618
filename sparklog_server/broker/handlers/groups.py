"""The requests of group members and of those who look after groups: checked here, decided by the shard that keeps the group."""

from collections.abc import Callable
from typing import Final, cast

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from sparklog.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from sparklog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from sparklog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from sparklog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from sparklog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.broker.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.coordinated import Refusal, ask, gather
from sparklog_server.broker.session import Call, Parked

# To name a member of an enum takes as long as two calls, and heartbeats come often.
_READ: Final = Operation.READ
_GROUP: Final = Resource.GROUP
_NAMED_PROTOCOL_SINCE = 7
_GROUP_OPERATIONS = (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
_UNKNOWN_OPERATIONS = -2147483648


def join_group(context: Context, call: Call, request: JoinGroupRequest, now: Instant) -> Message | Parked:
    """A member enters its group; the answer leaves when the rebalance is done (KIP-62, KIP-345, KIP-394)."""

    def refusal(code: ErrorCode) -> Message:
        name = None if call.version >= _NAMED_PROTOCOL_SINCE else ""
        return JoinGroupResponse(error_code=code, generation_id=-1, protocol_name=name, member_id=request.member_id)

    return _ask(context, call, request.group_id, request, refusal, now)


def sync_group(context: Context, call: Call, request: SyncGroupRequest, now: Instant) -> Message | Parked:
    """A member asks for its assignment; the answer leaves when the leader has handed it in."""
    return _ask(context, call, request.group_id, request, lambda code: SyncGroupResponse(error_code=code), now)


def heartbeat(context: Context, call: Call, request: HeartbeatRequest, now: Instant) -> Message | Parked:
    """A member lives, and learns whether its group rebalances."""
    return _ask(context, call, request.group_id, request, _refused_heartbeat, now)


def _refused_heartbeat(code: ErrorCode) -> Message:
    return HeartbeatResponse(error_code=code)


def leave_group(context: Context, call: Call, request: LeaveGroupRequest, now: Instant) -> Message | Parked:
    """Members leave without waiting for their sessions to end."""
    return _ask(context, call, request.group_id, request, lambda code: LeaveGroupResponse(error_code=code), now)


def consumer_group_heartbeat(context: Context, call: Call, request: ConsumerGroupHeartbeatRequest, now: Instant) -> Message | Parked:
    """Everything a member of a KIP-848 group has to say, and to be told."""

    def refusal(code: ErrorCode) -> Message:
        return ConsumerGroupHeartbeatResponse(error_code=code)

    if not context.allow(call, _READ, _GROUP, request.group_id):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for topic in request.subscribed_topic_names or ():
        if not context.allow(call, Operation.DESCRIBE, Resource.TOPIC, topic):
            return refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return ask(context, call, request.group_id, request, refusal, now)  # which has a word of its own for an empty group id


def _ask(context: Context, call: Call, group_id: str, request: Message, refusal: Refusal, now: Instant) -> Message | Parked:
    if not context.allow(call, _READ, _GROUP, group_id):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return refusal(ErrorCode.INVALID_GROUP_ID)
    return ask(context, call, group_id, request, refusal, now)


def describe_groups(context: Context, call: Call, request: DescribeGroupsRequest, now: Instant) -> Message | Parked:
    """State and members of groups, each from the shard that keeps it."""

    def refusal(group_id: str) -> Refusal:
        return lambda code: DescribeGroupsResponse(groups=[DescribedGroup(group_id=group_id, error_code=code)])

    def whole(parts: list[Message]) -> Message:
        groups = [group for part in parts for group in cast(DescribeGroupsResponse, part).groups]
        for group in groups:
            is_wanted = request.include_authorized_operations and not group.error_code
            group.authorized_operations = _operations(context, call, group.group_id, is_wanted=is_wanted)
        return DescribeGroupsResponse(groups=groups)

    return _each(
        context, call, request.groups, Operation.DESCRIBE, lambda group: DescribeGroupsRequest(groups=[group]), refusal, whole, now
    )


def consumer_group_describe(context: Context, call: Call, request: ConsumerGroupDescribeRequest, now: Instant) -> Message | Parked:
    """State and members of KIP-848 groups."""

    def refusal(group_id: str) -> Refusal:
        return lambda code: ConsumerGroupDescribeResponse(groups=[DescribedConsumerGroup(group_id=group_id, error_code=code)])

    def whole(parts: list[Message]) -> Message:
        told = [group for part in parts for group in cast(ConsumerGroupDescribeResponse, part).groups]
        groups = [_describable(context, call, group) for group in told]
        for group in groups:
            is_wanted = request.include_authorized_operations and not group.error_code
            group.authorized_operations = _operations(context, call, group.group_id, is_wanted=is_wanted)
        return ConsumerGroupDescribeResponse(groups=groups)

    return _each(
        context,
        call,
        request.group_ids,
        Operation.DESCRIBE,
        lambda group: ConsumerGroupDescribeRequest(group_ids=[group]),
        refusal,
        whole,
        now,
    )


def _describable(context: Context, call: Call, group: DescribedConsumerGroup) -> DescribedConsumerGroup:
    """The group, unless the caller may not know of a topic that its members have or are to have."""
    assigned = (part for member in group.members for part in (member.assignment, member.target_assignment))
    topics = dict.fromkeys(topic.topic_name for part in assigned for topic in part.topic_partitions)
    if all(context.allow(call, Operation.DESCRIBE, Resource.TOPIC, topic) for topic in topics):
        return group
    words = "The group has described topic(s) that the client is not authorized to describe."
    return DescribedConsumerGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, words, group.group_id)


def delete_groups(context: Context, call: Call, request: DeleteGroupsRequest, now: Instant) -> Message | Parked:
    """Groups without members are forgotten, with their offsets."""

    def refusal(group_id: str) -> Refusal:
        return lambda code: DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id, error_code=code)])

    def whole(parts: list[Message]) -> Message:
        return DeleteGroupsResponse(results=[result for part in parts for result in cast(DeleteGroupsResponse, part).results])

    return _each(
        context, call, request.groups_names, Operation.DELETE, lambda group: DeleteGroupsRequest(groups_names=[group]), refusal, whole, now
    )


def list_groups(context: Context, call: Call, request: ListGroupsRequest, now: Instant) -> Message | Parked:
    """Every group that the caller may see."""
    groups = context.groups
    may_see_all = context.allow(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)

    def whole(parts: list[Message]) -> Message:
        # The groups of a shard that went to another broker meanwhile are for that one to tell.
        told = [part.error_code for part in cast(list[ListGroupsResponse], parts) if part.error_code != ErrorCode.NOT_COORDINATOR]
        error = next((code for code in told if code), 0)
        listed = [group for part in cast(list[ListGroupsResponse], parts) for group in part.groups]
        if not may_see_all:
            listed = [group for group in listed if context.allow(call, Operation.DESCRIBE, Resource.GROUP, group.group_id)]
        return ListGroupsResponse(error_code=error, groups=listed)

    shards = groups.shards()
    if not shards:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE if groups.partition_count else ErrorCode.NONE)
    return gather(context, call, [(index, request, lambda code: ListGroupsResponse(error_code=code)) for index in shards], whole, now)


def _each(
    context: Context,
    call: Call,
    group_ids: list[str],
    operation: Operation,
    request_for: Callable[[str], Message],
    refusal_for: Callable[[str], Refusal],
    combine: Callable[[list[Message]], Message],
    now: Instant,
) -> Message | Parked:
    """Ask the shard of every group, once for each; what may not be asked is refused in its place."""
    refused: list[Message] = []
    asked: list[tuple[int | None, Message, Refusal]] = []
    for group_id in dict.fromkeys(group_ids):
        refusal = refusal_for(group_id)
        if not context.allow(call, operation, Resource.GROUP, group_id):
            refused.append(refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        else:
            asked.append((context.groups.shard_of(group_id), request_for(group_id), refusal))
    return gather(context, call, asked, lambda parts: combine([*refused, *parts]), now)


def _operations(context: Context, call: Call, group_id: str, *, is_wanted: bool) -> int:
    """The operations that the caller may do on the group, as bits by their numbers (KIP-430)."""
    if not is_wanted:
        return _UNKNOWN_OPERATIONS
    return sum(1 << operation for operation in _GROUP_OPERATIONS if context.allow(call, operation, Resource.GROUP, group_id))
