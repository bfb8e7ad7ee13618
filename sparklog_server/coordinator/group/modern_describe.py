"""Descriptions of KIP-848 groups for ConsumerGroupDescribe."""

from collections.abc import Iterable, Mapping

from sparklog.errors import ErrorCode
from sparklog.model import Uuid
from sparklog.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.outcome import cut

from .assignors import NOTHING_ASSIGNED
from .group import Group
from .modern import ModernGroup
from .modern_member import ModernMember

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def described(
    group_id: str, group: Group | None, image: MetadataImage, default_assignor: str
) -> DescribedGroup:
    """The description of a group and its members; GROUP_ID_NOT_FOUND if the group is not of this kind.
    Deleted topics are left out.
    """
    if not group_id:
        return DescribedGroup(ErrorCode.INVALID_GROUP_ID)
    if not isinstance(group, ModernGroup):
        what = (
            "not found" if group is None else "is not a consumer group"
        )  # in Kafka's words, because its tools print the message
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, cut(f"Group {group_id} {what}."), group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name(),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_member(group, group.members[member_id], image) for member_id in sorted(group.members)],
    )


def _member(group: ModernGroup, member: ModernMember, image: MetadataImage) -> Member:
    has: dict[Uuid, list[int]] = {}
    for assigned in (member.assigned, member.revoking):
        for topic_id, partitions in assigned.items():
            has.setdefault(topic_id, []).extend(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(has, image),
        target_assignment=_assignment(group.targets.get(member.member_id, NOTHING_ASSIGNED), image),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[Uuid, Iterable[int]], image: MetadataImage) -> Assignment:
    by_id = image.topics_by_id
    return Assignment(
        [
            TopicPartitions(topic_id, by_id[topic_id].name, sorted(partitions[topic_id]))
            for topic_id in sorted(partitions)
            if topic_id in by_id
        ]
    )
