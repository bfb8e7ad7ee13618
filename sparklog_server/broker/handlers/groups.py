"""The requests of group members and of administrators of groups: checked here, decided by the shard of the
group.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from sparklog.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from sparklog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparklog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from sparklog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog.wire.pieces import Pieces
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import CLUSTER_NAME, Operation, Resource
from sparklog_server.broker.coordinators.coordinator_requests import (
    Known,
    Refusal,
    ToShard,
    ask,
    gather,
    gather_at_once,
)
from sparklog_server.broker.handlers.patterns import with_pattern
from sparklog_server.broker.session import Answer, AnsweredInSteps, Call, Parked
from sparklog_server.broker.sliced_requests import SLICE
from sparklog_server.coordinator.group.shard_listing import Filters, GroupIds, ListedGroups
from sparklog_server.outcome import Refused

if TYPE_CHECKING:
    from sparklog_server.broker.ports import GroupPort


# Access to an enum member takes as long as two calls, and heartbeats are frequent.
_READ: Final = Operation.READ
_GROUP: Final = Resource.GROUP
_NAMED_PROTOCOL_SINCE = 7
_LISTED_TOGETHER = 8
"""The number of groups in one part of a slice of ListGroups: listing a group takes a fraction of the time of
deleting one.
"""
_GROUP_OPERATIONS = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_UNKNOWN_OPERATIONS = -2147483648


def join_group(context: "GroupPort", call: Call, request: JoinGroupRequest, now: Instant) -> Message | Parked:
    """JoinGroup: the response leaves when the rebalance ends (KIP-62, KIP-345, KIP-394)."""

    def named(reply: Message) -> Message:
        """A refusal names no protocol: null, or an empty name before null had a form."""
        joined = cast(JoinGroupResponse, reply)
        if joined.error_code and call.version >= _NAMED_PROTOCOL_SINCE:
            joined.protocol_name = None
        return joined

    def refusal(code: ErrorCode) -> Message:
        return named(JoinGroupResponse(error_code=code, member_id=request.member_id))

    return _ask(context, call, request.group_id, request, refusal, now, named)


def sync_group(context: "GroupPort", call: Call, request: SyncGroupRequest, now: Instant) -> Message | Parked:
    """SyncGroup: the response leaves when the leader has sent the assignment."""
    return _ask(
        context, call, request.group_id, request, lambda code: SyncGroupResponse(error_code=code), now
    )


def heartbeat(context: "GroupPort", call: Call, request: HeartbeatRequest, now: Instant) -> Message | Parked:
    """Heartbeat: extends the member's session and reports a rebalance."""
    return _ask(context, call, request.group_id, request, _refused_heartbeat, now)


def _refused_heartbeat(code: ErrorCode) -> Message:
    return HeartbeatResponse(error_code=code)


def leave_group(
    context: "GroupPort", call: Call, request: LeaveGroupRequest, now: Instant
) -> Message | Parked:
    """LeaveGroup: members leave before their sessions expire."""
    return _ask(
        context, call, request.group_id, request, lambda code: LeaveGroupResponse(error_code=code), now
    )


def consumer_group_heartbeat(
    context: "GroupPort", call: Call, request: ConsumerGroupHeartbeatRequest, now: Instant
) -> Answer | AnsweredInSteps:
    """ConsumerGroupHeartbeat: joins, reports and leaves in a KIP-848 group."""

    def refusal(code: ErrorCode) -> Message:
        return ConsumerGroupHeartbeatResponse(error_code=code)

    if not context.allow(call, _READ, _GROUP, request.group_id):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.subscribed_topic_names or request.subscribed_topic_regex:
        return _subscribe(context, call, request, refusal, now)
    # The shard has its own error message for an empty group id.
    return ask(context, call, request.group_id, request, refusal, now)


def _subscribe(
    context: "GroupPort",
    call: Call,
    request: ConsumerGroupHeartbeatRequest,
    refusal: Refusal,
    now: Instant,
) -> AnsweredInSteps:
    for topic in request.subscribed_topic_names or ():
        if not context.allow(call, Operation.DESCRIBE, Resource.TOPIC, topic):
            return refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        now = yield

    def go_on(now: Instant) -> Answer:
        return ask(context, call, request.group_id, request, refusal, now)

    def refused(reason: Refused) -> Message:
        return ConsumerGroupHeartbeatResponse(error_code=reason.code, error_message=reason.message)

    return with_pattern(context.jobs, call, request.subscribed_topic_regex, go_on, refused, now)


def _ask(
    context: "GroupPort",
    call: Call,
    group_id: str,
    request: Message,
    refusal: Refusal,
    now: Instant,
    finish: Callable[[Message], Message] | None = None,
) -> Message | Parked:
    if not context.allow(call, _READ, _GROUP, group_id):
        return refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return refusal(ErrorCode.INVALID_GROUP_ID)
    return ask(context, call, group_id, request, refusal, now, finish)


def describe_groups(
    context: "GroupPort", call: Call, request: DescribeGroupsRequest, now: Instant
) -> Message | Parked:
    """State and members of groups, each from its shard."""

    def refusal(group_id: str) -> Refusal:
        return lambda code: DescribeGroupsResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=code)]
        )

    def whole(parts: list[Message]) -> Message:
        groups = [group for part in parts for group in cast(DescribeGroupsResponse, part).groups]
        for group in groups:
            is_wanted = request.include_authorized_operations and not group.error_code
            group.authorized_operations = _operations(context, call, group.group_id, is_wanted=is_wanted)
        return DescribeGroupsResponse(groups=groups)

    ask_of = _Each(
        call, Operation.DESCRIBE, lambda group: DescribeGroupsRequest(groups=[group]), refusal, whole
    )
    return ask_of.asked(context, request.groups, DescribeGroupsResponse(), now)


def consumer_group_describe(
    context: "GroupPort", call: Call, request: ConsumerGroupDescribeRequest, now: Instant
) -> Message | Parked:
    """State and members of KIP-848 groups."""

    def refusal(group_id: str) -> Refusal:
        return lambda code: ConsumerGroupDescribeResponse(
            groups=[DescribedConsumerGroup(group_id=group_id, error_code=code)]
        )

    def whole(parts: list[Message]) -> Message:
        told = [group for part in parts for group in cast(ConsumerGroupDescribeResponse, part).groups]
        groups = [_describable(context, call, group) for group in told]
        for group in groups:
            is_wanted = request.include_authorized_operations and not group.error_code
            group.authorized_operations = _operations(context, call, group.group_id, is_wanted=is_wanted)
        return ConsumerGroupDescribeResponse(groups=groups)

    ask_of = _Each(
        call,
        Operation.DESCRIBE,
        lambda group: ConsumerGroupDescribeRequest(group_ids=[group]),
        refusal,
        whole,
    )
    return ask_of.asked(context, request.group_ids, ConsumerGroupDescribeResponse(), now)


def _describable(context: "GroupPort", call: Call, group: DescribedConsumerGroup) -> DescribedConsumerGroup:
    """The group, unless the caller is not authorized to describe a topic of its subscriptions or
    assignments.
    """
    assigned = (part for member in group.members for part in (member.assignment, member.target_assignment))
    topics = dict.fromkeys(topic.topic_name for part in assigned for topic in part.topic_partitions)
    if all(context.allow(call, Operation.DESCRIBE, Resource.TOPIC, topic) for topic in topics):
        return group
    words = "The group has described topic(s) that the client is not authorized to describe."
    return DescribedConsumerGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, words, group.group_id)


def delete_groups(
    context: "GroupPort", call: Call, request: DeleteGroupsRequest, now: Instant
) -> Message | Parked:
    """Delete groups without members, with their offsets."""

    def refusal(group_id: str) -> Refusal:
        return lambda code: DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=group_id, error_code=code)]
        )

    def whole(parts: list[Message]) -> Message:
        return DeleteGroupsResponse(
            results=[result for part in parts for result in cast(DeleteGroupsResponse, part).results]
        )

    ask_of = _Each(
        call, Operation.DELETE, lambda group: DeleteGroupsRequest(groups_names=[group]), refusal, whole
    )
    return ask_of.asked(context, request.groups_names, DeleteGroupsResponse(), now)


def list_groups(
    context: "GroupPort", call: Call, request: ListGroupsRequest, now: Instant
) -> Message | Parked:
    """Every group that the caller may see: the shards return their group ids first, then, slice by slice, the
    listings.
    """
    groups = context.groups
    may_see_all = context.may(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
    listing = Pieces(ListGroupsResponse(), call.api_key, call.version)
    filters = Filters.of(request)

    def refusal(code: ErrorCode) -> Message:
        # The groups of a shard that moved to another broker meanwhile are left out: that broker lists them.
        if code is not ErrorCode.NOT_COORDINATOR and not listing.head.error_code:  # type: ignore[attr-defined]
            listing.head.error_code = code  # type: ignore[attr-defined]
        return GroupIds()

    def fold(parts: list[Message]) -> None:
        listed = [group for part in cast(list[ListGroupsResponse], parts) for group in part.groups]
        if not may_see_all:
            listed = [
                group
                for group in listed
                if context.may(call, Operation.DESCRIBE, Resource.GROUP, group.group_id)
            ]
        if listed:
            listing.add(ListGroupsResponse(groups=listed), len(listed))

    def named(parts: list[Message]) -> None:
        by_shard = [cast(GroupIds, part).group_ids for part in parts]
        asks = (
            ToShard(
                groups,
                shard,
                ListedGroups(ids[begin : begin + _LISTED_TOGETHER], filters),
                _nothing_listed(refusal),
            )
            for shard, ids in zip(shards, by_shard, strict=True)
            for begin in range(0, len(ids), _LISTED_TOGETHER)
        )
        context.slices.add(call, sum(map(len, by_shard)), asks, fold, lambda: listing, lambda: listing.size)

    shards = groups.shards()
    if not shards:
        return ListGroupsResponse()  # as Kafka: a broker that coordinates no group has none
    gather_at_once(groups, call, [(index, GroupIds(), refusal) for index in shards], named, now)
    return Parked.MUTING


def _nothing_listed(refusal: Refusal) -> Refusal:
    def refused(code: ErrorCode) -> Message:
        refusal(code)
        return ListGroupsResponse()

    return refused


class _Each(NamedTuple):
    """A request about named groups: each is sent to its shard, once; unauthorized ones are refused."""

    call: Call
    operation: Operation
    request_for: Callable[[str], Message]
    refusal_for: Callable[[str], Refusal]
    combine: Callable[[list[Message]], Message]

    def asked(
        self, context: "GroupPort", group_ids: list[str], head: Message, now: Instant
    ) -> Message | Parked:
        """Send the requests; a response about many groups combines the `head` with the result of each
        slice.
        """
        call, combine = self.call, self.combine
        if len(group_ids) > SLICE:
            answer = Pieces(head, call.api_key, call.version)
            asks = (self._ask(context, group_id) for group_id in _once_each(group_ids))

            def fold(parts: list[Message]) -> None:
                answer.add(combine(parts), len(parts))

            return context.slices.add(call, len(group_ids), asks, fold, lambda: answer, lambda: answer.size)
        asks_now = [self._ask(context, group_id) for group_id in dict.fromkeys(group_ids)]
        refused = [one.part for one in asks_now if isinstance(one, Known)]
        asked = [(one.shard, one.request, one.refusal) for one in asks_now if isinstance(one, ToShard)]
        return gather(context, call, asked, lambda parts: combine([*refused, *parts]), now)

    def _ask(self, context: "GroupPort", group_id: str) -> ToShard | Known:
        refusal = self.refusal_for(group_id)
        if not context.allow(self.call, self.operation, Resource.GROUP, group_id):
            return Known(refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        groups = context.groups
        return ToShard(groups, groups.shard_of(group_id), self.request_for(group_id), refusal)


def _once_each(group_ids: list[str]) -> Iterator[str]:
    told: set[str] = set()
    for group_id in group_ids:
        if group_id not in told:
            told.add(group_id)
            yield group_id


def _operations(context: "GroupPort", call: Call, group_id: str, *, is_wanted: bool) -> int:
    """The operations on the group that the caller is authorized for, as bits by their numbers (KIP-430)."""
    if not is_wanted:
        return _UNKNOWN_OPERATIONS
    return sum(
        1 << operation
        for operation in _GROUP_OPERATIONS
        if context.may(call, operation, Resource.GROUP, group_id)
    )
