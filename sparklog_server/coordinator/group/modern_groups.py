"""The KIP-848 groups of a shard: heartbeats, deadlines, and changes of topics.

Read `heartbeat` first. Checks raise Refused, which becomes the response in one place. Nearly every heartbeat
changes nothing and takes a short path that reads only the tables of the group and the member.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable

import msgspec

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.shard import Answer, CoordinatorRecord, Decision
from sparklog_server.metadata.image import TOPIC_RESOURCE, MetadataDelta, MetadataImage
from sparklog_server.outcome import Refused

from .classic import ClassicGroup
from .classic_requests import ClassicGroups
from .group import Group
from .group_config import GroupConfig
from .migration import upgrade_records, upgraded
from .modern import ModernGroup
from .modern_change import Change, assignment_due_ms, left_for_a_moment
from .modern_checks import (
    check_epoch,
    check_records,
    check_released,
    check_request,
    check_size,
    known_member,
    known_static_member,
)
from .modern_downgrade import Downgrades
from .modern_limits import GROUP_RESOURCE, GroupTimes, advised_interval_ms, times_of
from .modern_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberState,
    ModernMember,
    response_assignment,
    updated,
)
from .modern_patterns import Patterns
from .modern_records import assignment_record, removal_records
from .modern_replay import replay_modern
from .modern_soft import Deadlines, GroupSoft, ModernDeadline, ModernDue
from .records import ConsumerGroupMetadataKey
from .subscriptions import Describable

_FENCED_AT_ONCE_MAX = 200
"""Members that are fenced in one turn of the loop: about two milliseconds. The others follow in the next."""


class ModernGroups:
    """Decides for every KIP-848 group among `groups`, which it shares with the classic groups.

    `describable` returns the topics that the sender of a command may describe; `entropy` makes member ids
    for clients without one.
    """

    def __init__(
        self,
        groups: dict[str, Group],
        classic: ClassicGroups,
        settings: Callable[[], GroupConfig],
        *,
        entropy: Callable[[int], bytes],
        describable: Describable,
        record_bytes_max: Callable[[], int],
    ) -> None:
        self.groups = groups
        self.settings = settings()
        self._settings_now = settings
        self.image = MetadataImage()
        self.deadlines = Deadlines()
        self._classic = classic
        self.downgrades = Downgrades(classic, record_bytes_max)
        self._entropy = entropy
        self._patterns = Patterns(self.settings, describable, record_bytes_max)
        self.record_bytes_max = record_bytes_max
        self._softs: dict[str, GroupSoft] = {}
        self._topics_state = 0

    # -- the interface of the shard

    def replay(self, key: Message, value: Message | None) -> None:
        """Replay a record whose key is one of MODERN_KEYS."""
        replay_modern(self.groups, key, value)
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            soft = self._softs.pop(key.group_id, None)
            if soft is not None:
                self.deadlines.forget_group(soft)

    def loaded(self, image: MetadataImage, now: Instant) -> list[Decision]:
        """The replay is complete: the sessions of all members start now."""
        self.image, self.settings = image, self._settings_now()
        for group in self.groups.values():
            if not isinstance(group, ModernGroup):
                continue
            soft = self.soft(group.group_id)
            if group.state_name() in ("Assigning", "Reconciling"):
                # The time of the change is not known: assume the latest, so that heartbeats are frequent.
                soft.changed_us = now.mono_us
            for member in group.members.values():
                self.deadlines.heard(
                    soft, group.group_id, member.member_id, session_timeout_ms(member, soft), now
                )
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    self._await_revocation(soft, group.group_id, member, now)
        return []

    def image_changed(self, delta: MetadataDelta, now: Instant) -> list[Decision]:
        """Topics were created, deleted or extended: the next heartbeat of each group checks whether the
        group is affected. New settings apply from now on.
        """
        self.image = delta.after
        if any(resource_type != TOPIC_RESOURCE for resource_type, _ in delta.configs_changed):
            self.settings = self._settings_now()
            for group_id, soft in self._softs.items():
                soft.times = self._times(group_id)
        if (
            delta.topics_created
            or delta.topics_deleted
            or any(changed.before is None for changed in delta.partitions_changed)
        ):
            self._topics_state += 1
        if delta.topics_created:
            self._patterns.topics_created(now)
        return []

    def deadline(self) -> Micros | None:
        """The next time for `tick`; at once while patterns are being resolved."""
        return Micros(0) if self._patterns.is_busy else self.deadlines.next()

    def soft(self, group_id: str) -> GroupSoft:
        """The soft state of a group, which may not exist yet."""
        soft = self._softs.get(group_id)
        if soft is None:
            soft = self._softs[group_id] = GroupSoft(self._times(group_id))
        return soft

    def mark(self, group_id: str) -> Micros | None:
        """The state of a group that `undo` restores if the decision is refused."""
        soft = self._softs.get(group_id)
        return None if soft is None else soft.refreshed_us

    def undo(self, group_id: str, mark: Micros | None) -> None:
        """A decision was refused with its records: restore the state of `mark`."""
        soft = self._softs.get(group_id)
        if soft is None:
            return
        if isinstance(self.groups.get(group_id), ModernGroup):
            soft.checked = -1
            soft.refreshed_us = mark
        else:
            del self._softs[group_id]  # the group that the decision would have created

    def _times(self, group_id: str) -> GroupTimes:
        return times_of(self.settings, self.image.configs.get((GROUP_RESOURCE, group_id)))

    # -- heartbeats

    def heartbeat(self, command: Command, token: Token, now: Instant) -> Decision:
        """Decide on a ConsumerGroupHeartbeat of any version."""
        request = command.request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        reply = self._unchanged(request, command, now)
        if reply is not None:
            return Decision((), (Answer(token, reply),))
        answers: list[Answer] = []
        mark = self.mark(request.group_id)
        try:
            check_request(request, command.version, self.settings.consumer_assignors)
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                records, reply = self._leave(request, now)
            else:
                records, reply = self._stay(request, command, now, answers)
        except Refused as refused:
            self.undo(request.group_id, mark)
            reply = ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
            return Decision((), (Answer(token, reply),))
        return Decision(tuple(records), (*answers, Answer(token, reply)))

    def _unchanged(
        self, request: ConsumerGroupHeartbeatRequest, command: Command, now: Instant
    ) -> ConsumerGroupHeartbeatResponse | None:
        """The response to a heartbeat that changes nothing; None if the heartbeat needs a decision."""
        group = self.groups.get(request.group_id)
        epoch = request.member_epoch
        if (
            epoch <= JOIN_EPOCH
            or type(group) is not ModernGroup
            or request.subscribed_topic_names is not None
            or request.subscribed_topic_regex is not None
            or request.topic_partitions is not None
            or request.server_assignor is not None
            or request.rebalance_timeout_ms != -1
            or request.rack_id is not None
        ):
            return None
        member = group.members.get(request.member_id)
        soft = self._softs.get(request.group_id)
        if (
            member is None
            or soft is None
            or member.epoch != epoch
            or group.assignment_epoch != epoch
            or group.group_epoch != epoch
            or member.state is not MemberState.STABLE
            or member.instance_id != request.instance_id
            or member.classic is not None
            or member.client_id != command.client_id
            or member.client_host != command.client_host
            or soft.checked != self._topics_state
            or (soft.recheck_us is not None and now.mono_us >= soft.recheck_us)
        ):
            return None
        times = soft.times
        self.deadlines.heard(soft, request.group_id, request.member_id, times.session_timeout_ms, now)
        interval_ms = advised_interval_ms(
            times, members=len(group.members), changed_us=soft.changed_us, target_due_ms=0, now=now
        )
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms
        )

    def _stay(
        self, request: ConsumerGroupHeartbeatRequest, command: Command, now: Instant, answers: list[Answer]
    ) -> tuple[list[CoordinatorRecord], ConsumerGroupHeartbeatResponse]:
        records: list[CoordinatorRecord] = []
        is_joining = request.member_epoch == JOIN_EPOCH
        group = self._group_for(request.group_id, records, is_joining=is_joining)
        check_size(group, request.member_id, request.instance_id, self.settings.consumer_size_max)
        member_id = request.member_id or self.new_member_id()
        change = Change(group, self.image, records)
        before, known = self._member_for(change, request, member_id, is_joining=is_joining)
        owned = request.topic_partitions
        names_changed = change.put_member(before, known, updated(known, request, command))
        patterns_changed = self.settle_patterns(change, command, now)
        has_new_subscription = names_changed or patterns_changed
        change.bumps_epoch = change.bumps_epoch or names_changed
        soft = self.soft(group.group_id)
        self.settle_epoch(change, soft, now)
        change.settle_target(self.settings.consumer_assignors, soft.times.assignment_interval_ms, now)
        member = change.settle_member(owned, has_new_subscription=has_new_subscription)
        check_records(records, self.record_bytes_max())
        self.forget_replaced(soft, before, member_id)
        self._rearm(soft, group.group_id, known, member, now)
        is_full = request.rebalance_timeout_ms != -1 and owned is not None
        is_full = is_full and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        tells = is_joining or is_full or member.assigned != known.assigned
        reply = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._advised_ms(change, soft, now),
            assignment=response_assignment(member.assigned) if tells else None,
        )
        answers += self._dissolve(group.group_id, group, now)
        return records, reply

    def new_member_id(self) -> str:
        """A member id in the form that Kafka's clients use."""
        return urlsafe_b64encode(self._entropy(16)).rstrip(b"=").decode()

    def _group_for(self, group_id: str, records: list[CoordinatorRecord], *, is_joining: bool) -> ModernGroup:
        """The group; a member that joins may create or convert it. Raises Refused with
        GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ModernGroup):
            return group
        if not is_joining:
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"there is no consumer group {group_id} here; it may have been deleted",
            )
        if group is None:
            return ModernGroup(group_id)
        if group.is_empty():
            records += group.tombstones()
            return ModernGroup(group_id)
        assert isinstance(group, ClassicGroup)
        modern = upgraded(group, self.settings, self.image)
        records += upgrade_records(group, modern)
        return modern

    def _dissolve(self, group_id: str, modern: ModernGroup, now: Instant) -> tuple[Answer, ...]:
        """The conversion of a classic group is about to be replayed: its waiting members are told to join
        again.
        """
        classic = self.groups.get(group_id)
        if not isinstance(classic, ClassicGroup) or classic.is_empty():
            return ()
        soft = self.soft(group_id)
        for member in modern.members.values():
            self.deadlines.heard(soft, group_id, member.member_id, session_timeout_ms(member, soft), now)
        return self._classic.dissolved(classic, ErrorCode.REBALANCE_IN_PROGRESS)

    def _member_for(
        self, change: Change, request: ConsumerGroupHeartbeatRequest, member_id: str, *, is_joining: bool
    ) -> tuple[ModernMember | None, ModernMember]:
        """The member that the sender is or replaces, None for a new one; and that member with the records of
        this decision applied.
        """
        group, instance_id = change.group, request.instance_id
        if instance_id is None:
            before = group.members.get(member_id) if is_joining else known_member(group, member_id)
            if before is not None:
                check_epoch(before, request.member_epoch, request.topic_partitions)
            return before, before or ModernMember(member_id)
        if not is_joining:
            before = known_static_member(group, member_id, instance_id)
            check_epoch(before, request.member_epoch, request.topic_partitions)
            return before, before
        before = group.static_member(instance_id)
        if before is None:
            before = group.members.get(member_id)
            return before, before or ModernMember(member_id)
        if before.classic is None:
            check_released(before)
        return before, self.replace_static(change, before, member_id)

    def replace_static(self, change: Change, before: ModernMember, member_id: str) -> ModernMember:
        """The member that takes the place of a static one, under its own id. Raises Refused if that id is
        another member's.
        """
        if member_id != before.member_id and member_id in change.group.members:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"member id {member_id} is in use; instance {before.instance_id} has to choose another",
            )
        known = msgspec.structs.replace(
            before, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH
        )
        change.replace_static(before, known)
        return known

    def forget_replaced(self, soft: GroupSoft, before: ModernMember | None, member_id: str) -> None:
        """A static member has returned under `member_id`: drop the deadlines of its former member id."""
        if before is not None and before.member_id != member_id:
            self.deadlines.forget_member(soft, before.member_id)

    def _rearm(
        self, soft: GroupSoft, group_id: str, known: ModernMember, member: ModernMember, now: Instant
    ) -> None:
        self.deadlines.heard(soft, group_id, member.member_id, soft.times.session_timeout_ms, now)
        if member is known or member == known:
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if (
                member.state is not known.state
                or member.epoch != known.epoch
                or member.revoking != known.revoking
            ):
                self._await_revocation(soft, group_id, member, now)
        else:
            self.deadlines.cancel(soft, ModernDue.REVOCATION, member.member_id)

    def _await_revocation(self, soft: GroupSoft, group_id: str, member: ModernMember, now: Instant) -> None:
        deadline = ModernDeadline(ModernDue.REVOCATION, group_id, member.member_id, member.epoch)
        self.deadlines.arm(soft, deadline, member.rebalance_timeout_ms, now)

    def _advised_ms(self, change: Change, soft: GroupSoft, now: Instant) -> int:
        group = change.group
        due_ms = 0
        if change.target_epoch < change.group_epoch:
            due_ms = assignment_due_ms(group, soft.times.assignment_interval_ms, now)
        members = len(group.members) + (change.before is None)
        return advised_interval_ms(
            soft.times, members=members, changed_us=soft.changed_us, target_due_ms=due_ms, now=now
        )

    # -- subscriptions

    def settle_epoch(
        self, change: Change, soft: GroupSoft, now: Instant, leaving: Iterable[ModernMember] = ()
    ) -> None:
        """Begin a new group epoch if needed; examines the topics only if they or the subscriptions
        changed.
        """
        if change.bumps_epoch or soft.checked != self._topics_state:
            change.settle_epoch(leaving)
            soft.checked = self._topics_state
        if change.has_new_epoch:
            soft.changed_us = now.mono_us

    def settle_patterns(self, change: Change, command: Command, now: Instant) -> bool:
        """Update the pattern of the member's subscription; returns whether it changed. Raises Refused with
        INVALID_REGULAR_EXPRESSION.
        """
        assert change.after is not None
        if not change.after.pattern and not change.group.has_patterns:
            return False
        return self._patterns.settle(change, self.soft(change.group.group_id), self.image, command, now)

    # -- leaving

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now: Instant
    ) -> tuple[list[CoordinatorRecord], ConsumerGroupHeartbeatResponse]:
        group = self.groups.get(request.group_id)
        if not isinstance(group, ModernGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id} here")
        reply = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            return self.fence(group, [known_member(group, request.member_id)], now), reply
        member = known_static_member(group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_EPOCH:
            return self.fence(group, [member], now), reply
        soft = self.soft(group.group_id)
        self.deadlines.cancel(soft, ModernDue.REVOCATION, member.member_id)
        return [assignment_record(group.group_id, left_for_a_moment(member, STATIC_LEAVE_EPOCH))], reply

    def fence(self, group: ModernGroup, members: list[ModernMember], now: Instant) -> list[CoordinatorRecord]:
        """Remove members from their group, in a new epoch of it."""
        if not members:
            return []
        soft = self.soft(group.group_id)
        change = Change(group, self.image, [])
        if self.downgrades.without(change, members, self.settings, self.image, now):
            return change.records
        leaving: dict[str, int] = {}
        for member in members:
            change.records += removal_records(group.group_id, member.member_id)
            self.deadlines.forget_member(soft, member.member_id)
            if member.pattern:
                leaving[member.pattern] = leaving.get(member.pattern, 0) + 1
        for pattern in sorted(leaving):
            if group.subscribers_of(pattern) == leaving[pattern]:
                change.forget_pattern(pattern)
        change.bumps_epoch = True
        self.settle_epoch(change, soft, now, members)
        return change.records

    # -- time

    def tick(self, now: Instant) -> list[Decision]:
        """The decisions that are due by `now`: one per group, so that none depends on another that is not
        replayed yet.
        """
        late: dict[str, dict[str, ModernMember]] = {}
        for deadline in self.deadlines.due(now.mono_us, _FENCED_AT_ONCE_MAX):
            group = self.groups.get(deadline.group_id)
            member = group.members.get(deadline.member_id) if isinstance(group, ModernGroup) else None
            if member is not None and _is_late(member, deadline):
                late.setdefault(deadline.group_id, {})[member.member_id] = member
        decisions = []
        for group_id, members in late.items():
            group = self.groups[group_id]
            assert isinstance(group, ModernGroup)
            decisions.append(Decision(tuple(self.fence(group, list(members.values()), now))))
        if not decisions and self._patterns.is_busy:
            decisions += self._match_further(now)
        return decisions

    def _match_further(self, now: Instant) -> list[Decision]:
        matched = self._patterns.advance()
        if matched is None:
            return []
        group_id, resolution = matched
        group = self.groups.get(group_id)
        if not isinstance(group, ModernGroup):
            return []
        soft = self.soft(group_id)
        change = self._patterns.finish(group, soft, resolution, self.image)
        self.settle_epoch(change, soft, now)
        return [Decision(tuple(change.records))]


def _is_late(member: ModernMember, deadline: ModernDeadline) -> bool:
    """Whether an expired deadline still applies: the member may have reached another epoch."""
    if deadline.due is ModernDue.REVOCATION:
        return member.epoch == deadline.epoch and member.state is MemberState.UNREVOKED_PARTITIONS
    return True


def session_timeout_ms(member: ModernMember, soft: GroupSoft) -> int:
    """The session timeout of a member; a classic member sets its own."""
    return soft.times.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
