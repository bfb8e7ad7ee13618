"""A KIP-848 group during one decision: its replayed state, and the changes that the records of this decision
will make.

The steps are those of KIP-848, in this order: the subscription of the member, the group epoch, the target,
the member's next step.
"""

from collections.abc import Iterable, Mapping

import msgspec

from sparklog.model import Instant, Millis, Uuid
from sparklog_server.coordinator.shard import CoordinatorRecord
from sparklog_server.metadata.image import MetadataImage

from .assignors import ASSIGNORS, NOTHING_ASSIGNED, Subscriber, Target
from .modern import ModernGroup
from .modern_member import ModernMember
from .modern_reconcile import Goal, Owned, next_step
from .modern_records import (
    assignment_record,
    epoch_record,
    member_record,
    partition_metadata_tombstone,
    pattern_record,
    pattern_tombstone,
    removal_records,
    target_epoch_record,
    target_record,
)
from .subscriptions import Resolved, metadata_hash, topic_ids

_MEMBERS_PER_ASSIGNMENT_MS = 10
"""A thousand members take about 10 ms to assign. Assignments may take at most a tenth of the time: the
interval grows with the group.
"""


class Change:
    """A decision in progress. `after` replaces the member `before` in the group, which has the same member id
    or the same instance id.
    """

    def __init__(self, group: ModernGroup, image: MetadataImage, records: list[CoordinatorRecord]) -> None:
        self.group = group
        self.records = records
        self.group_epoch = group.group_epoch
        self.before: ModernMember | None = None
        self.after: ModernMember | None = None
        self.bumps_epoch = False
        self.target_epoch = group.assignment_epoch
        self._target: Target = NOTHING_ASSIGNED
        self.settled: ModernMember | None = None
        self._image = image
        self._resolved: dict[str, Resolved | None] = {}

    # -- the subscription of the member

    def replace_static(self, before: ModernMember, after: ModernMember) -> None:
        """Let a static member that returns under another id take over the target of its former id."""
        group_id = self.group.group_id
        self.records += removal_records(group_id, before.member_id)
        self.records.append(member_record(group_id, after))
        self.records.append(
            target_record(
                group_id, after.member_id, self.group.targets.get(before.member_id, NOTHING_ASSIGNED)
            )
        )
        self.records.append(assignment_record(group_id, after))

    def put_member(self, before: ModernMember | None, known: ModernMember, after: ModernMember) -> bool:
        """Apply the subscription of the member. Returns whether the set of subscribed topics changed. `known`
        is the member according to its records.
        """
        self.before = before
        self.after = after
        if after == known:
            return False
        self.records.append(member_record(self.group.group_id, after))
        return after.topics != known.topics

    def forget_pattern(self, pattern: str) -> None:
        """Drop a pattern to which no member subscribes any more."""
        self.records.append(pattern_tombstone(self.group.group_id, pattern))
        self._resolved[pattern] = None

    def resolve_pattern(self, pattern: str, resolved: Resolved) -> None:
        """Set the topics that the pattern matches."""
        self.records.append(pattern_record(self.group.group_id, pattern, resolved))
        known = self.group.resolved.get(pattern)
        self._resolved[pattern] = resolved
        self.bumps_epoch = self.bumps_epoch or resolved.topics != (() if known is None else known.topics)

    # -- the group epoch

    def settle_epoch(self, leaving: Iterable[ModernMember] = ()) -> None:
        """Begin a new group epoch if a step of this decision requires one, or if the subscribed topics
        changed.
        """
        removed = [*leaving] if self.before is None else [*leaving, self.before]
        added = [] if self.after is None else [self.after]
        hash_now = metadata_hash(self.group.names_after(removed, added, self._resolved), self._image)
        if self.bumps_epoch or hash_now != self.group.metadata_hash:
            self.group_epoch += 1
            self.records.append(epoch_record(self.group.group_id, self.group_epoch, hash_now))
        if self.group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(self.group.group_id))

    @property
    def has_new_epoch(self) -> bool:
        """Whether this decision begins a new group epoch."""
        return self.group_epoch > self.group.group_epoch

    # -- the target

    def settle_target(self, assignors: tuple[str, ...], interval_ms: int, now: Instant) -> None:
        """Use a new target for the group epoch if one is due, else the last one."""
        assert self.after is not None
        epoch, target = self.group.assignment_epoch, self._last_target()
        if epoch < self.group_epoch and assignment_due_ms(self.group, interval_ms, now) == 0:
            epoch, target = self.group_epoch, self._new_target(assignors, now.wall_ms)
        self.target_epoch, self._target = epoch, target

    def keep_target(self) -> None:
        """Use the last target."""
        self.target_epoch, self._target = self.group.assignment_epoch, self._last_target()

    def _last_target(self) -> Target:
        assert self.after is not None
        whose = self.after.member_id if self.before is None else self.before.member_id
        return self.group.targets.get(whose, NOTHING_ASSIGNED)

    def _new_target(self, assignors: tuple[str, ...], wall_ms: Millis) -> Target:
        assert self.after is not None
        group, after = self.group, self.after
        members = dict(group.members)
        inherits = None
        if self.before is not None and self.before.member_id != after.member_id:
            inherits = self.before.member_id
            members.pop(inherits, None)
        members[after.member_id] = after
        subscribed: dict[tuple[tuple[str, ...], str], frozenset[Uuid]] = {}
        subscribers = []
        for member_id, member in members.items():
            said = (member.topics, member.pattern)
            if said not in subscribed:
                subscribed[said] = self.topic_ids_of(member)
            whose = inherits if inherits is not None and member is after else member_id
            target = group.targets.get(whose, NOTHING_ASSIGNED)
            subscribers.append(Subscriber(member_id, subscribed[said], member.instance_id, target))
        name = group.preferred_assignor(
            assignors[0], None if self.before is None else self.before.member_id, after
        )
        by_id = self._image.topics_by_id
        counts = {
            topic_id: len(by_id[topic_id].partitions)
            for topic_id in sorted({t for ids in subscribed.values() for t in ids})
        }
        targets = ASSIGNORS[name if name in assignors else assignors[0]](subscribers, counts)
        for subscriber in subscribers:
            member_id = subscriber.member_id
            known = group.targets.get(member_id)
            if known is None or (targets[member_id] is not known and targets[member_id] != known):
                self.records.append(target_record(group.group_id, member_id, targets[member_id]))
        self.records.append(target_epoch_record(group.group_id, self.group_epoch, wall_ms))
        return targets[after.member_id]

    def topic_ids_of(self, member: ModernMember) -> frozenset[Uuid]:
        """The ids of the topics to which a member subscribes, by name or by pattern; topics that do not exist
        are left out.
        """
        resolved = (
            self._resolved.get(member.pattern, self.group.resolved.get(member.pattern))
            if member.pattern
            else None
        )
        names = member.topics if resolved is None else (*member.topics, *resolved.topics)
        return topic_ids(names, self._image)

    # -- the member's next step

    def settle_member(self, owned: Owned, *, has_new_subscription: bool) -> ModernMember:
        """The member after this decision. Raises Refused with FENCED_MEMBER_EPOCH."""
        assert self.after is not None
        epoch, target = self.target_epoch, self._target
        after = self.after
        self.settled = after
        if not has_new_subscription and after.is_reconciled_to(epoch):
            return after
        own = ("", after.member_id, after.member_id if self.before is None else self.before.member_id)
        owner = self.group.owner
        goal = Goal(
            epoch=epoch,
            target=target,
            topic_ids=self.topic_ids_of(after),
            is_owned_by_another=lambda topic_id, partition: owner(topic_id, partition) not in own,
            has_new_subscription=has_new_subscription,
        )
        stepped = next_step(after, goal, owned)
        if stepped != after:
            self.records.append(assignment_record(self.group.group_id, stepped))
        self.settled = stepped
        return stepped


def assignment_due_ms(group: ModernGroup, interval_ms: int, now: Instant) -> int:
    """The time until the next target may be computed, in milliseconds: members that join in quick succession
    are to cause one assignment.

    0 if the group has no target yet, or if the wall clock was set back to before the last one.
    """
    if not group.targets or group.assignment_timestamp_ms == 0 or interval_ms == 0:
        return 0
    interval_ms = max(interval_ms, len(group.members) // _MEMBERS_PER_ASSIGNMENT_MS)
    elapsed = now.wall_ms - group.assignment_timestamp_ms
    return interval_ms - elapsed if 0 <= elapsed < interval_ms else 0


def left_for_a_moment(member: ModernMember, epoch: int) -> ModernMember:
    """A static member that has left temporarily: it keeps its partitions, in every epoch that it may return
    in.
    """
    assigned: Mapping[Uuid, Mapping[int, int]] = {
        topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()
    }
    return msgspec.structs.replace(member, epoch=epoch, assigned=assigned, revoking={})
