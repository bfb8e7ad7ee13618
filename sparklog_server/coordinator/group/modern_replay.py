"""Replay of the records of KIP-848 groups, at a load and after each decision. No other code changes a group.

Compaction may remove older records of a group while newer ones stay, so each record is replayed without the
assumption that an earlier one was.
"""

from collections.abc import MutableMapping

import msgspec

from sparklog.model import Millis
from sparklog.wire.schema import Message

from .group import Group
from .modern import ModernGroup
from .modern_member import LEAVE_EPOCH, NOTHING, ModernMember
from .modern_records import target_of
from .records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from .subscriptions import Resolved

NO_TARGET_EPOCH = -1


def replay_modern(groups: MutableMapping[str, Group], key: Message, value: Message | None) -> None:
    """Replay a record whose key is one of MODERN_KEYS; a tombstone of a missing key has no effect."""
    group_id: str = key.group_id  # type: ignore[attr-defined]  # every key of MODERN_KEYS has it
    group = groups.get(group_id)
    if not isinstance(group, ModernGroup):
        if value is None:
            return
        # Only an empty classic group, which keeps offsets, can be here: any other was deleted by an earlier
        # record.
        group = groups[group_id] = ModernGroup(group_id)
    match key:
        case ConsumerGroupMetadataKey():
            if value is None:
                del groups[group_id]
                return
            assert isinstance(value, ConsumerGroupMetadataValue)
            group.group_epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        case ConsumerGroupPartitionMetadataKey():
            assert value is None or isinstance(value, ConsumerGroupPartitionMetadataValue)
            group.has_partition_metadata = value is not None
        case ConsumerGroupTargetAssignmentMetadataKey():
            assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
            group.assignment_epoch = NO_TARGET_EPOCH if value is None else value.assignment_epoch
            group.assignment_timestamp_ms = Millis(0 if value is None else value.assignment_timestamp)
        case ConsumerGroupTargetAssignmentMemberKey():
            assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
            if value is None:
                group.targets.pop(key.member_id, None)
            else:
                group.targets[key.member_id] = target_of(value)
        case ConsumerGroupRegularExpressionKey():
            assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
            resolved = (
                None
                if value is None
                else Resolved(tuple(sorted(set(value.topics))), value.version, Millis(value.timestamp))
            )
            group.put_resolved(key.regular_expression, resolved)
        case _:
            _replay_member(group, key, value)


def _replay_member(group: ModernGroup, key: Message, value: Message | None) -> None:
    match key:
        case ConsumerGroupMemberMetadataKey():
            assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
            if value is None:
                group.remove_member(key.member_id)
            else:
                group.put_member(_member(group, key.member_id).with_metadata(value))
        case ConsumerGroupCurrentMemberAssignmentKey():
            assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
            if value is not None:
                group.put_member(_member(group, key.member_id).with_assignment(value))
            elif key.member_id in group.members:
                member = group.members[key.member_id]
                gone = msgspec.structs.replace(
                    member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING, revoking=NOTHING
                )
                group.put_member(gone)
        case _:
            raise AssertionError(f"{type(key).__name__} is no key of a KIP-848 group")


def _member(group: ModernGroup, member_id: str) -> ModernMember:
    return group.members.get(member_id) or ModernMember(member_id)
