"""The records of a KIP-848 group: written by its decisions, and replayed."""

from sparklog.model import Millis, Uuid
from sparklog.wire.schema import Message
from sparklog_server.coordinator.shard import CoordinatorRecord

from .assignors import Target
from .modern_member import ModernMember
from .records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
    encode_record,
)
from .subscriptions import Resolved

MODERN_KEYS: tuple[type[Message], ...] = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The record of the group epoch, with the hash of the subscribed topics."""
    return encode_record(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def epoch_tombstone(group_id: str) -> CoordinatorRecord:
    """The tombstone of the group epoch: the group is deleted."""
    return encode_record(ConsumerGroupMetadataKey(group_id), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """The tombstone of the topic metadata that brokers before 4.1 wrote."""
    return encode_record(ConsumerGroupPartitionMetadataKey(group_id), None)


def member_record(group_id: str, member: ModernMember) -> CoordinatorRecord:
    """The record of a member's metadata."""
    return encode_record(ConsumerGroupMemberMetadataKey(group_id, member.member_id), member.metadata_value())


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """The tombstone of a member's metadata."""
    return encode_record(ConsumerGroupMemberMetadataKey(group_id, member_id), None)


def target_record(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    partitions = [TargetTopicPartitions(topic_id, list(target[topic_id])) for topic_id in sorted(target)]
    return encode_record(
        ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
        ConsumerGroupTargetAssignmentMemberValue(partitions),
    )


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """The tombstone of a member's target assignment."""
    return encode_record(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)


def target_epoch_record(group_id: str, epoch: int, wall_ms: Millis) -> CoordinatorRecord:
    """The record of the epoch of the target assignment and the Unix time of its computation; 0 for a target
    that was taken over.
    """
    return encode_record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id),
        ConsumerGroupTargetAssignmentMetadataValue(epoch, wall_ms),
    )


def target_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    """The tombstone of the epoch of the target assignment."""
    return encode_record(ConsumerGroupTargetAssignmentMetadataKey(group_id), None)


def assignment_record(group_id: str, member: ModernMember) -> CoordinatorRecord:
    """The record of a member's progress towards its target."""
    return encode_record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id), member.assignment_value()
    )


def assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """The tombstone of a member's progress."""
    return encode_record(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)


def pattern_record(group_id: str, pattern: str, resolved: Resolved) -> CoordinatorRecord:
    """The record of the topics that a pattern matched."""
    value = ConsumerGroupRegularExpressionValue(
        list(resolved.topics), resolved.version, resolved.timestamp_ms
    )
    return encode_record(ConsumerGroupRegularExpressionKey(group_id, pattern), value)


def pattern_tombstone(group_id: str, pattern: str) -> CoordinatorRecord:
    """The tombstone of a pattern without subscribers."""
    return encode_record(ConsumerGroupRegularExpressionKey(group_id, pattern), None)


def removal_records(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The tombstones of a member, in the reverse order of its creation."""
    return [
        assignment_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Target:
    """The target assignment in a record."""
    return {Uuid(topic.topic_id): tuple(sorted(topic.partitions)) for topic in value.topic_partitions}
