"""The next step of a member towards its target: it revokes partitions first, then takes partitions that
other members have revoked.

A member gets partitions of its new target only in an epoch in which it owns none that the target revokes,
and a partition only when no member owns it. So a partition never has two owners.
"""

from collections.abc import Callable, Iterable

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Uuid
from sparklog.wire.messages.consumer_group_heartbeat import TopicPartitions
from sparklog_server.outcome import Refused

from .assignors import Target
from .modern_member import NOTHING, Assigned, MemberState, ModernMember

Owned = list[TopicPartitions] | None
"""The partitions that a member reports as owned; None if it reported none in this heartbeat."""


class Goal(msgspec.Struct, frozen=True):
    """The goal of a member: the target of an epoch, its current subscription, and the partitions that
    others have.

    `has_new_subscription` tells that the subscription has just changed, so that topics are revoked before
    there is a new target.
    """

    epoch: int
    target: Target
    topic_ids: frozenset[Uuid]
    is_owned_by_another: Callable[[Uuid, int], bool]
    has_new_subscription: bool = False


def next_step(member: ModernMember, goal: Goal, owned: Owned) -> ModernMember:
    """The member after its next step; the same object if it has to wait. Raises Refused with
    FENCED_MEMBER_EPOCH.
    """
    if member.state is MemberState.STABLE:
        if member.epoch != goal.epoch:
            return _towards(member, member.epoch, goal, owned)
        return _unsubscribed(member, goal, owned) if goal.has_new_subscription else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if not _owns_any(owned, member.revoking):
            return _towards(member, member.epoch, goal, owned)
        return _unsubscribed(member, goal, owned) if goal.has_new_subscription else member
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"member {member.member_id} is in a state that this broker does not know; rejoin with "
                f"nothing",
            )
        return _towards(member, goal.epoch, goal, owned)
    return _towards(member, member.epoch, goal, owned)


def _owns_any(owned: Owned, partitions: Assigned) -> bool:
    """Whether the member may still own any of these; True if it did not report its partitions."""
    if owned is None:
        return True
    return any(
        partition in partitions.get(Uuid(topic.topic_id), ())
        for topic in owned
        for partition in topic.partitions
    )


def _unsubscribed(member: ModernMember, goal: Goal, owned: Owned) -> ModernMember:
    """Revoke the topics to which the member no longer subscribes, in its current epoch."""
    gone = {
        topic_id: partitions
        for topic_id, partitions in member.assigned.items()
        if topic_id not in goal.topic_ids
    }
    if not gone:
        return member
    assigned = {
        topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in gone
    }
    revoking = {
        **member.revoking,
        **{topic_id: {**member.revoking.get(topic_id, {}), **gone[topic_id]} for topic_id in gone},
    }
    if not _owns_any(owned, revoking):
        return msgspec.structs.replace(member, assigned=assigned)
    return msgspec.structs.replace(
        member, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking
    )


def _towards(member: ModernMember, epoch: int, goal: Goal, owned: Owned) -> ModernMember:
    kept: dict[Uuid, dict[int, int]] = {}
    revoking: dict[Uuid, dict[int, int]] = {}
    added: dict[Uuid, list[int]] = {}
    has_unreleased = False
    for topic_id in _topics(goal.target, member.assigned):
        wanted = goal.target.get(topic_id, ()) if topic_id in goal.topic_ids else ()
        has = member.assigned.get(topic_id, {})
        wanted_set = frozenset(wanted)
        keeps = {partition: since for partition, since in has.items() if partition in wanted_set}
        if len(keeps) < len(has):
            revoking[topic_id] = {
                partition: since for partition, since in has.items() if partition not in wanted_set
            }
        missing = (
            [partition for partition in wanted if partition not in keeps] if len(keeps) < len(wanted) else []
        )
        free = [partition for partition in missing if not goal.is_owned_by_another(topic_id, partition)]
        has_unreleased = has_unreleased or len(free) < len(missing)
        if keeps:
            kept[topic_id] = keeps
        if free:
            added[topic_id] = free
    if revoking and _owns_any(owned, revoking):
        return msgspec.structs.replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=_previous(member, epoch),
            assigned=kept,
            revoking=revoking,
        )
    for topic_id, free in added.items():
        kept[topic_id] = {**kept.get(topic_id, {}), **dict.fromkeys(free, goal.epoch)}
    return msgspec.structs.replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=_previous(member, goal.epoch),
        assigned=kept,
        revoking=NOTHING,
    )


def _previous(member: ModernMember, epoch: int) -> int:
    """The epoch that the member may still send if it missed the response; a step within an epoch keeps it."""
    return member.previous_epoch if epoch == member.epoch else member.epoch


def _topics(target: Target, assigned: Assigned) -> Iterable[Uuid]:
    return sorted({*target, *assigned})
