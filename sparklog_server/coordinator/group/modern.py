"""A group of KIP-848: the coordinator computes a target assignment, and moves the members to it one by one.

    a change ─► group epoch + 1 ─► a new target, in that epoch ─► every member reaches it, at its own pace

    EMPTY         the group has no member
    ASSIGNING     the group epoch is ahead of the target's
    RECONCILING   a member has not reached the target
    STABLE        every member has reached the target

All state here is replayed from records: `modern_groups.py` decides on heartbeats, `modern_reconcile.py`
computes the next step of a member. The records are Kafka's; each table names the record that fills it.
"""

from collections.abc import Iterable, Mapping

from sparklog.errors import ErrorCode
from sparklog.model import Millis, Uuid
from sparklog_server.coordinator.shard import CoordinatorRecord

from .assignors import NOTHING_ASSIGNED, Target
from .group import GroupKind
from .modern_member import NOTHING, MemberState, ModernMember
from .modern_records import (
    assignment_tombstone,
    epoch_tombstone,
    member_tombstone,
    partition_metadata_tombstone,
    pattern_tombstone,
    target_epoch_tombstone,
    target_tombstone,
)
from .subscriptions import Resolved

PROTOCOL_TYPE = "consumer"
FIRST_EPOCH = 1
_NOBODY = ""
_COMMIT_WITH_EPOCHS = 9
"""The version of OffsetCommit from which the generation may be a member epoch."""


class ModernGroup:
    """One group. Invariants: `_owners` has each partition that is assigned to a member or being revoked from
    it; `_names` counts, for each topic name, the members that subscribe to it by name, and the resolved
    patterns that match it.
    """

    __slots__ = (
        "_names",
        "_owners",
        "_patterns",
        "_protocols",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "classic_count",
        "group_epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "resolved",
        "static_members",
        "targets",
    )

    kind = GroupKind.CONSUMER

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = Millis(0)
        self.members: dict[str, ModernMember] = {}
        self.targets: dict[str, Target] = {}
        self.resolved: dict[str, Resolved] = {}
        self.static_members: dict[str, str] = {}
        self.has_partition_metadata = False
        self.classic_count = 0
        self._names: dict[str, int] = {}
        self._patterns: dict[str, int] = {}
        self._protocols: dict[str, int] = {}
        self._owners: dict[Uuid, dict[int, str]] = {}

    # -- durable: replayed from records

    def put_member(self, member: ModernMember) -> None:
        """Add a member, or replace the one with the same id."""
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is not None and before.instance_id != member.instance_id:
            self._forget_instance(before)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if before is None or before.topics != member.topics:
            self._count_names(() if before is None else before.topics, member.topics)
        if before is None or before.pattern != member.pattern:
            self._count_pattern("" if before is None else before.pattern, member.pattern)
        if before is None or before.assigned is not member.assigned or before.revoking is not member.revoking:
            if before is not None:
                self._disown(before)
            for assigned in (member.assigned, member.revoking):
                for topic_id, partitions in assigned.items():
                    self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))
        self.classic_count += (member.classic is not None) - (
            before is not None and before.classic is not None
        )
        if before is None or before.classic is not member.classic:
            _count(self._protocols, () if before is None else before.protocols, member.protocols)

    def remove_member(self, member_id: str) -> None:
        """Remove a member, if the group has it."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._forget_instance(member)
        self._count_names(member.topics, ())
        self._count_pattern(member.pattern, "")
        self._disown(member)
        self.classic_count -= member.classic is not None
        _count(self._protocols, member.protocols, ())

    def _forget_instance(self, member: ModernMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def put_resolved(self, pattern: str, resolved: Resolved | None) -> None:
        """Set the topics that a pattern matches; None removes them."""
        before = self.resolved.pop(pattern, None)
        self._count_names(
            () if before is None else before.topics, () if resolved is None else resolved.topics
        )
        if resolved is not None:
            self.resolved[pattern] = resolved

    def _count_names(self, before: Iterable[str], after: Iterable[str]) -> None:
        _count(self._names, before, after)

    def _count_pattern(self, before: str, after: str) -> None:
        _count(self._patterns, [before] if before else [], [after] if after else [])

    def _disown(self, member: ModernMember) -> None:
        for assigned in (member.assigned, member.revoking):
            for topic_id, partitions in assigned.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)

    # -- used by decisions

    def owner(self, topic_id: Uuid, partition: int) -> str:
        """The id of the member that owns the partition or is still revoking it; empty if there is none."""
        owners = self._owners.get(topic_id)
        return _NOBODY if owners is None else owners.get(partition, _NOBODY)

    def static_member(self, instance_id: str | None) -> ModernMember | None:
        """The member with that instance id, also while it has left temporarily."""
        return None if instance_id is None else self.members.get(self.static_members.get(instance_id, ""))

    def subscribers_of(self, pattern: str) -> int:
        """The number of members that subscribe to a pattern."""
        return self._patterns.get(pattern, 0)

    @property
    def has_patterns(self) -> bool:
        """Whether any member subscribes to a pattern."""
        return bool(self._patterns)

    def patterns(self) -> Iterable[str]:
        """The patterns that members subscribe to."""
        return self._patterns

    def names_after(
        self,
        removed: Iterable[ModernMember] = (),
        added: Iterable[ModernMember] = (),
        resolved: Mapping[str, Resolved | None] | None = None,
    ) -> Iterable[str]:
        """The topics subscribed to after these members are removed and added, and these patterns are resolved
        or dropped.
        """
        names = dict(self._names)
        for member in removed:
            _count(names, member.topics, ())
        for member in added:
            _count(names, (), member.topics)
        for pattern, after in (resolved or {}).items():
            before = self.resolved.get(pattern)
            _count(names, before.topics if before else (), after.topics if after else ())
        return names

    def preferred_assignor(
        self, default: str, without: str | None = None, also: ModernMember | None = None
    ) -> str:
        """The assignor that most members prefer, the first by name on a tie; `without` leaves out one member,
        `also` adds one.
        """
        votes: dict[str, int] = {}
        for member_id, member in self.members.items():
            if member_id != without and member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        if also is not None and also.assignor is not None:
            votes[also.assignor] = votes.get(also.assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name)) if votes else default

    def supports(self, protocols: Iterable[str]) -> bool:
        """Whether every classic member supports one of these classic protocols."""
        return any(self._protocols.get(name, 0) == self.classic_count for name in protocols)

    def waits_for_others(self, member: ModernMember) -> bool:
        """Whether another member still owns a partition of the member's target."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            partition not in member.assigned.get(topic_id, NOTHING) and self.owner(topic_id, partition)
            for topic_id, partitions in self.targets.get(member.member_id, NOTHING_ASSIGNED).items()
            for partition in partitions
        )

    # -- the interface of every group (`group.Group`)

    def state_name(self) -> str:
        """Empty, Assigning, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        epoch = self.assignment_epoch
        return (
            "Stable"
            if all(member.is_reconciled_to(epoch) for member in self.members.values())
            else "Reconciling"
        )

    def listed_protocol_type(self) -> str:
        """Always `consumer`."""
        return PROTOCOL_TYPE

    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> ErrorCode:
        """Whether this member may commit. NONE also for an older epoch: the caller then calls
        `validate_commit_of` for each partition.

        A commit without a member comes from an administrator, or from a transaction of an old client.
        """
        if generation_or_epoch < 0 and not self.members:
            return ErrorCode.NONE
        if is_transactional and generation_or_epoch == -1 and member_id == "" and instance_id is None:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and not is_transactional and version < _COMMIT_WITH_EPOCHS:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if generation_or_epoch <= member.epoch else _stale(member)

    def validate_commit_of(
        self, member_id: str, generation_or_epoch: int, topic_id: bytes, partition: int
    ) -> ErrorCode:
        """A member with an older epoch may commit for partitions that it has owned since that epoch or an
        earlier one (KIP-1251).
        """
        member = self.members.get(member_id)
        if member is None or generation_or_epoch == member.epoch:
            return ErrorCode.NONE
        since = member.epoch_of(Uuid(topic_id), partition)
        return ErrorCode.NONE if since is not None and generation_or_epoch >= since else _stale(member)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """A client that is not a member may read offsets; a member must send its current epoch."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.epoch == member_epoch else _stale(member)

    def validate_offset_delete(self) -> ErrorCode:
        """Always NONE: the shard keeps the offsets of topics to which members subscribe."""
        return ErrorCode.NONE

    def validate_delete(self) -> ErrorCode:
        """Only an empty group may be deleted."""
        return ErrorCode.NONE if not self.members else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to this topic by name or by a pattern."""
        return topic in self._names

    def offset_unused_since(self, commit_timestamp_ms: Millis) -> Millis | None:
        """The time of the commit: the shard calls this only for topics to which no member subscribes."""
        return commit_timestamp_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        """The tombstones of the group and its members; a record is deleted after the records that depend on
        it.
        """
        member_ids = sorted(self.members)
        return [
            *(assignment_tombstone(self.group_id, member_id) for member_id in member_ids),
            *(target_tombstone(self.group_id, member_id) for member_id in member_ids),
            target_epoch_tombstone(self.group_id),
            *(member_tombstone(self.group_id, member_id) for member_id in member_ids),
            *(pattern_tombstone(self.group_id, pattern) for pattern in sorted(self.resolved)),
            partition_metadata_tombstone(self.group_id),
            epoch_tombstone(self.group_id),
        ]


def _stale(member: ModernMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _count(counts: dict[str, int], before: Iterable[str], after: Iterable[str]) -> None:
    """Subtract one for each of `before`, add one for each of `after`, and remove entries that reach zero."""
    for name in after:
        counts[name] = counts.get(name, 0) + 1
    for name in before:
        left = counts.get(name, 0) - 1
        if left > 0:
            counts[name] = left
        else:
            counts.pop(name, None)
