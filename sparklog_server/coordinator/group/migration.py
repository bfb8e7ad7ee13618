"""Online conversion of a group to the other kind: its members keep their assignments and continue to consume.

    classic ── a KIP-848 member joins ─────────────► consumer group, whose members speak the classic protocol
    classic ◄─ the last KIP-848 member leaves, or ── consumer group
               a classic one takes its static place

The setting `group.consumer.migration.policy` selects the allowed conversions. A group whose members are not
consumers, or whose assignment carries user data that only its own assignor understands, is not converted.
Classic members inside a consumer group: `migration_members.py`.
"""

from collections.abc import Iterable

import msgspec

from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Instant, Uuid
from sparklog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_prefixed,
    encode_prefixed,
    version_of,
)
from sparklog_server.coordinator.shard import CoordinatorRecord
from sparklog_server.coordinator.timers import Timer
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.outcome import Refused

from .classic import ClassicGroup, State
from .classic_member import ClassicMember, Deadline, Due
from .group_config import GroupConfig
from .modern import PROTOCOL_TYPE, ModernGroup
from .modern_member import Assigned, ModernMember, names_of
from .modern_records import assignment_record, epoch_record, member_record, target_epoch_record, target_record
from .records import ClassicMemberMetadata, ClassicProtocol
from .subscriptions import metadata_hash

_STANDARD_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Every client has these assignors, and they need no user data in an assignment, although librdkafka's sticky
one sends a member its own data back.
"""


def allows_upgrade(settings: GroupConfig) -> bool:
    """Whether a classic group may become one of KIP-848."""
    return settings.consumer_migration_policy.lower() in ("upgrade", "bidirectional")


def allows_downgrade(settings: GroupConfig) -> bool:
    """Whether a group of KIP-848 may become a classic one."""
    return settings.consumer_migration_policy.lower() in ("downgrade", "bidirectional")


def allows_mixture(settings: GroupConfig) -> bool:
    """Whether classic members may join a group of KIP-848 that has members."""
    return settings.consumer_migration_policy.lower() != "disabled"


# -- classic to consumer


def upgraded(classic: ClassicGroup, settings: GroupConfig, image: MetadataImage) -> ModernGroup:
    """The consumer group that a classic group is converted to; the classic group is not changed. Raises
    Refused with GROUP_ID_NOT_FOUND.
    """
    if not allows_upgrade(settings):
        raise _stays_classic(
            classic, f"group.consumer.migration.policy is {settings.consumer_migration_policy}"
        )
    if classic.protocol_type != PROTOCOL_TYPE:
        raise _stays_classic(
            classic, f"its protocol type is {classic.protocol_type!r} and not {PROTOCOL_TYPE!r}"
        )
    if len(classic.members) > settings.consumer_size_max:
        raise _stays_classic(
            classic, f"its {len(classic.members)} members are more than a consumer group may have"
        )
    group = ModernGroup(classic.group_id)
    group.group_epoch = group.assignment_epoch = max(1, classic.generation)
    protocol = classic.protocol or classic.voted_protocol()
    try:
        for member in classic.members.values():
            _take_in(group, member, protocol, image)
        for member in classic.members.values():
            _take_in_claims(group, member, protocol, image)
    except DecodeError as error:
        raise _stays_classic(classic, f"what a member says or has cannot be read: {error}") from None
    group.metadata_hash = metadata_hash(group.names_after(), image)
    return group


def _take_in(group: ModernGroup, member: ClassicMember, protocol: str, image: MetadataImage) -> None:
    subscription = _subscription(member, protocol)
    owned: list[TopicPartitions] = []
    if member.assignment:
        assignment = decode_prefixed(ConsumerProtocolAssignment, member.assignment)
        if assignment.user_data and protocol not in _STANDARD_ASSIGNORS:
            raise DecodeError("an assignor of its own keeps data there that would be lost", 0)
        owned = assignment.assigned_partitions
    assigned = _free(group, by_id(owned, image))
    group.targets[member.member_id] = {
        topic_id: tuple(partitions) for topic_id, partitions in assigned.items()
    }
    protocols = [ClassicProtocol(name, metadata) for name, metadata in member.protocols.items()]
    group.put_member(
        ModernMember(
            member.member_id,
            epoch=group.group_epoch,
            previous_epoch=group.group_epoch,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=names_of(subscription.topics),
            assigned=assigned,
            classic=ClassicMemberMetadata(member.session_timeout_ms, protocols),
        )
    )


def _take_in_claims(group: ModernGroup, member: ClassicMember, protocol: str, image: MetadataImage) -> None:
    """Keep partitions that a cooperative member claims to own and that no member was assigned: it may be
    about to revoke them, and must confirm that first.

    This happens while the response with its new assignment is in flight, and after an interrupted rebalance.
    """
    claimed = _free(group, by_id(_subscription(member, protocol).owned_partitions, image))
    if not claimed:
        return
    modern = group.members[member.member_id]
    assigned = {
        topic_id: {**modern.assigned.get(topic_id, {}), **claimed.get(topic_id, {})}
        for topic_id in {**modern.assigned, **claimed}
    }
    group.targets[member.member_id] = {
        topic_id: tuple(sorted(partitions)) for topic_id, partitions in assigned.items()
    }
    group.put_member(msgspec.structs.replace(modern, assigned=assigned))


def _subscription(member: ClassicMember, protocol: str) -> ConsumerProtocolSubscription:
    metadata = member.protocols.get(protocol) or next(iter(member.protocols.values()), b"")
    return decode_prefixed(ConsumerProtocolSubscription, metadata)


def _free(group: ModernGroup, claimed: dict[Uuid, set[int]]) -> dict[Uuid, dict[int, int]]:
    """The partitions among these that no member owns. Clients list them, so there may be duplicates."""
    found = {}
    for topic_id, partitions in claimed.items():
        free = {
            partition: group.group_epoch
            for partition in sorted(partitions)
            if not group.owner(topic_id, partition)
        }
        if free:
            found[topic_id] = free
    return found


def _stays_classic(classic: ClassicGroup, reason: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"group {classic.group_id} is a classic group and stays one: {reason}"
    )


def upgrade_records(classic: ClassicGroup, group: ModernGroup) -> list[CoordinatorRecord]:
    """The records that delete the classic group and create the consumer group."""
    group_id, members = group.group_id, list(group.members.values())
    return [
        *classic.tombstones(),
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, group.group_epoch, group.metadata_hash),
        *(target_record(group_id, member.member_id, group.targets[member.member_id]) for member in members),
        target_epoch_record(group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(assignment_record(group_id, member) for member in members),
    ]


# -- consumer to classic


def downgraded(
    group: ModernGroup,
    members: Iterable[ModernMember],
    settings: GroupConfig,
    image: MetadataImage,
    now: Instant,
) -> ClassicGroup | None:
    """The classic group with these members; None if there are no members or too many, if they have no
    protocol in common, or if one of them is not a classic member.

    Each member is assigned the partitions that it has or has not yet revoked. Kafka assigns its target, of
    which other members may still own a part. With this assignment the group can become a consumer group
    again at any time, and no partition has two owners. Nothing is changed yet.
    """
    classic = ClassicGroup(group.group_id, now.wall_ms)
    staying = list(members)
    if not staying or len(staying) > settings.size_max or not allows_downgrade(settings):
        return None
    for member in staying:
        if member.classic is None:
            return None
        classic.add(_as_classic(group.group_id, member, member.classic), PROTOCOL_TYPE)
    if len(staying) not in classic.supported.values():
        return None
    classic.state = State.STABLE
    classic.generation = group.group_epoch
    classic.protocol = classic.voted_protocol()
    classic.leader_id = None  # no member leads yet: the first that joins again becomes the leader
    try:
        for member in staying:
            one = classic.members[member.member_id]
            one.assignment = encode_assignment(member.owned(), one.protocols[classic.protocol], image)
    except DecodeError:
        return None
    return classic


def downgrade_record(classic: ClassicGroup) -> CoordinatorRecord:
    """The records that create the classic group."""
    return classic.record({member.member_id: member.assignment for member in classic.members.values()})


def _as_classic(group_id: str, member: ModernMember, said: ClassicMemberMetadata) -> ClassicMember:
    return ClassicMember(
        member.member_id,
        member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=said.session_timeout_ms,
        protocols={protocol.name: protocol.metadata for protocol in said.supported_protocols},
        session=Timer(Deadline(Due.SESSION, group_id, member.member_id)),
    )


# -- partitions by name and by id


def by_id(topics: Iterable[TopicPartitions], image: MetadataImage) -> dict[Uuid, set[int]]:
    """The existing partitions of topics given by name."""
    found: dict[Uuid, set[int]] = {}
    for named in topics:
        topic = image.topics_by_name.get(named.topic)
        if topic is not None:
            count = len(topic.partitions)
            found.setdefault(topic.topic_id, set()).update(
                index for index in named.partitions if 0 <= index < count
            )
    return found


def encode_assignment(partitions: Assigned, subscription: bytes, image: MetadataImage) -> bytes:
    """Partitions as a classic member's assignment, in the version of its subscription. Raises DecodeError
    if it has no version.
    """
    names = {
        topic_id: image.topics_by_id[topic_id].name
        for topic_id in partitions
        if topic_id in image.topics_by_id
    }
    assigned = [
        TopicPartitions(name, sorted(partitions[topic_id]))
        for topic_id, name in sorted(names.items(), key=lambda item: item[1])
    ]
    version = min(version_of(subscription), ConsumerProtocolAssignment.versions.until)
    return encode_prefixed(ConsumerProtocolAssignment(assigned_partitions=assigned), version)
