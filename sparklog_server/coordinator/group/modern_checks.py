"""The checks of requests to a KIP-848 group: each function returns, or raises Refused with Kafka's error."""

from sparklog.errors import ErrorCode
from sparklog.model import Uuid
from sparklog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparklog_server.coordinator.shard import CoordinatorRecord
from sparklog_server.outcome import Refused

from .modern import ModernGroup
from .modern_member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ModernMember
from .modern_reconcile import Owned

_CLIENT_MAKES_ID = 1
"""The version of ConsumerGroupHeartbeat from which on the client chooses its member id (KIP-1082)."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Check the request alone, independent of the group."""
    epoch = request.member_epoch
    if (
        version >= _CLIENT_MAKES_ID or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    ) and not request.member_id.strip():
        raise _invalid("the member id is empty; the client has to choose one when it joins and keep it")
    if not request.group_id.strip():
        raise _invalid("the group id is empty")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("the instance id is empty; leave it out if the member has none")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("the rack id is empty; leave it out if the member has none")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _invalid("member epoch -2 is for members with an instance id, and this one has none")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(f"member epoch {epoch} does not exist; -2 and -1 leave, 0 joins")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {request.server_assignor[:80]!r} here; there are {', '.join(assignors)}",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be set when a member joins.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty, not null, when a member joins.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be set when a member joins.")


def check_size(group: ModernGroup, member_id: str, instance_id: str | None, size_max: int) -> None:
    """Check that the group has room for another member; a returning static member takes its own place."""
    if instance_id is not None and instance_id in group.static_members:
        return
    if len(group.members) >= size_max and member_id not in group.members:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id} has {size_max} members, which is as many as it may have",
        )


def check_epoch(member: ModernMember, epoch: int, owned: Owned) -> None:
    """Check the member epoch.

    The previous epoch is accepted if the member owns no more than its assignment in the new one: the
    response with the new epoch was lost.
    """
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch == member.previous_epoch < member.epoch and _is_within(owned, member):
        return
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id} is in epoch {member.epoch} and not in {epoch}; it has to give up its "
        f"partitions and join again",
    )


def _is_within(owned: Owned, member: ModernMember) -> bool:
    return owned is not None and all(
        (assigned := member.assigned.get(Uuid(topic.topic_id))) is not None
        and all(partition in assigned for partition in topic.partitions)
        for topic in owned
    )


def known_member(group: ModernGroup, member_id: str) -> ModernMember:
    """The member with that id."""
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {group.group_id}")
    return member


def known_static_member(group: ModernGroup, member_id: str, instance_id: str) -> ModernMember:
    """The member with that instance id, which must have this member id."""
    member = group.static_member(instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"instance {instance_id} is not in group {group.group_id}")
    if member.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance {instance_id} of group {group.group_id} is now member {member.member_id}, not "
            f"{member_id}",
        )
    return member


def check_released(member: ModernMember) -> None:
    """Check that the static member has left temporarily, so that another may take its place."""
    if member.epoch != STATIC_LEAVE_EPOCH:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance {member.instance_id} is still member {member.member_id}; it has to leave first, or "
            f"its session to expire",
        )


def check_records(records: list[CoordinatorRecord], bytes_max: int) -> None:
    """Check that each record of a decision fits a batch. Kafka answers with the same error after trying."""
    for record in records:
        size = len(record.key) + len(record.value or b"")
        if size > bytes_max:
            raise Refused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the member would take a record of {size} bytes, and one may have {bytes_max}; let it "
                f"subscribe to less, or add members",
            )


def _invalid(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, text)
