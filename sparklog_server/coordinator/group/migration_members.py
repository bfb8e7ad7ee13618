"""Members that speak the classic protocol in a group of KIP-848: JoinGroup, SyncGroup, Heartbeat and
LeaveGroup, each answered at once.

    Heartbeat: REBALANCE_IN_PROGRESS ─► JoinGroup: what it owns ─► SyncGroup: what it has
            ▲                                                          │
            └── a newer target, or partitions to give back or to get ◄─┘

A member's generation is its epoch. There is no leader, because the coordinator assigns. A member that is told
to rejoin, or that joined, has its rebalance timeout to do the next step.
"""

import msgspec

from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.consumer_group_heartbeat import TopicPartitions
from sparklog.wire.messages.consumer_protocol import ConsumerProtocolSubscription, decode_prefixed
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from sparklog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.shard import Answer, CoordinatorRecord, Decision
from sparklog_server.outcome import Refused

from .classic_join import MEMBER_ID_REQUIRED_SINCE
from .classic_member import by_name
from .classic_requests import BATCHES_SINCE
from .migration import allows_mixture, by_id, encode_assignment
from .modern import PROTOCOL_TYPE, ModernGroup
from .modern_change import Change
from .modern_checks import check_records, check_size, known_member, known_static_member
from .modern_groups import ModernGroups
from .modern_member import MemberState, ModernMember, names_of
from .modern_reconcile import Owned
from .modern_soft import GroupSoft, ModernDeadline, ModernDue
from .records import ClassicMemberMetadata, ClassicProtocol

_NO_MEMBER_ID = ""


class ClassicMembers:
    """Decides for classic members of `groups`."""

    def __init__(self, groups: ModernGroups) -> None:
        self._groups = groups

    def decide(self, command: Command, token: Token, now: Instant) -> Decision:
        """Decide on one of the four requests, sent to a KIP-848 group."""
        request = command.request
        mark = self._groups.mark(request.group_id) if isinstance(request, JoinGroupRequest) else None
        try:
            match request:
                case JoinGroupRequest():
                    records, reply = self._join(request, command, now)
                case SyncGroupRequest():
                    records, reply = [], self._sync(request, now)
                case HeartbeatRequest():
                    records, reply = [], self._heartbeat(request, now)
                case LeaveGroupRequest():
                    records, reply = self._leave(request, command.version, now)
                case _:
                    raise AssertionError(f"{type(request).__name__} is not for a classic member")
        except Refused as refused:
            if isinstance(request, JoinGroupRequest):
                self._groups.undo(request.group_id, mark)
            records, reply = [], _refusal(request, refused.code)
        return Decision(tuple(records), (Answer(token, reply),))

    def _group(self, group_id: str) -> ModernGroup:
        group = self._groups.groups.get(group_id)
        if not isinstance(group, ModernGroup):
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _member(
        self, group: ModernGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ModernMember:
        """The classic member with that id, in that generation."""
        member = (
            known_member(group, member_id)
            if instance_id is None
            else known_static_member(group, member_id, instance_id)
        )
        if member.classic is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.epoch != generation:
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
        return member

    # -- JoinGroup

    def _join(
        self, request: JoinGroupRequest, command: Command, now: Instant
    ) -> tuple[list[CoordinatorRecord], Message]:
        groups, settings = self._groups, self._groups.settings
        if (
            not settings.session_timeout_min_ms
            <= request.session_timeout_ms
            <= settings.session_timeout_max_ms
        ):
            raise Refused(ErrorCode.INVALID_SESSION_TIMEOUT)
        if not allows_mixture(settings):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group = self._group(request.group_id)
        is_unknown = request.member_id == _NO_MEMBER_ID
        member_id = groups.new_member_id() if is_unknown else request.member_id
        check_size(group, member_id, request.group_instance_id, settings.consumer_size_max)
        protocols = by_name(request.protocols)
        if request.protocol_type != PROTOCOL_TYPE or not group.supports(protocols):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if is_unknown and request.group_instance_id is None and command.version >= MEMBER_ID_REQUIRED_SINCE:
            return [], JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        subscription = _subscription(protocols)
        change = Change(group, groups.image, [])
        before, known = self._joining(change, request, member_id, is_unknown=is_unknown)
        rebalance_timeout_ms = (
            request.session_timeout_ms if command.version == 0 else request.rebalance_timeout_ms
        )
        after = _described(known, request, command, subscription, protocols, rebalance_timeout_ms)
        names_changed = change.put_member(before, known, after)
        patterns_changed = groups.settle_patterns(change, command, now)
        has_new_subscription = names_changed or patterns_changed
        change.bumps_epoch = change.bumps_epoch or has_new_subscription
        soft = groups.soft(group.group_id)
        groups.settle_epoch(change, soft, now)
        owned: Owned = [
            TopicPartitions(topic, sorted(some))
            for topic, some in by_id(subscription.owned_partitions, groups.image).items()
        ]
        if groups.downgrades.replacing_last(
            change,
            owned,
            has_new_subscription=has_new_subscription,
            settings=settings,
            image=groups.image,
            now=now,
        ):
            member = change.settled or after
        else:
            change.settle_target(settings.consumer_assignors, soft.times.assignment_interval_ms, now)
            member = change.settle_member(owned, has_new_subscription=has_new_subscription)
            check_records(change.records, groups.record_bytes_max())
            groups.forget_replaced(soft, before, member_id)
            self._await_sync(soft, group.group_id, member, request.session_timeout_ms, now)
        reply = JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=next(iter(protocols)),
            member_id=member_id,
        )
        return change.records, reply

    def _joining(
        self, change: Change, request: JoinGroupRequest, member_id: str, *, is_unknown: bool
    ) -> tuple[ModernMember | None, ModernMember]:
        group, instance_id = change.group, request.group_instance_id
        if instance_id is None:
            before = group.members.get(member_id)
            return before, before or ModernMember(member_id)
        if not is_unknown:
            before = known_static_member(group, member_id, instance_id)
            return before, before
        before = group.static_member(instance_id)
        if before is None:
            return None, ModernMember(member_id)
        return before, self._groups.replace_static(change, before, member_id)

    def _await_sync(
        self, soft: GroupSoft, group_id: str, member: ModernMember, session_timeout_ms: int, now: Instant
    ) -> None:
        deadlines = self._groups.deadlines
        deadlines.cancel(soft, ModernDue.CLASSIC_JOIN, member.member_id)
        deadlines.heard(soft, group_id, member.member_id, session_timeout_ms, now)
        deadline = ModernDeadline(ModernDue.CLASSIC_SYNC, group_id, member.member_id)
        deadlines.arm(soft, deadline, member.rebalance_timeout_ms, now)

    # -- the others

    def _sync(self, request: SyncGroupRequest, now: Instant) -> Message:
        group = self._group(request.group_id)
        member = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
        assert member.classic is not None
        protocol = member.classic.supported_protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            protocol.name,
        ):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        soft = self._groups.soft(group.group_id)
        # A member that is revoking partitions has joined for the new target already.
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(soft, group.group_id, member, now)
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        self._groups.deadlines.cancel(soft, ModernDue.CLASSIC_SYNC, member.member_id)
        self._groups.deadlines.heard(
            soft, group.group_id, member.member_id, member.classic.session_timeout_ms, now
        )
        try:
            assignment = encode_assignment(member.assigned, protocol.metadata, self._groups.image)
        except DecodeError:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None
        return SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        )

    def _heartbeat(self, request: HeartbeatRequest, now: Instant) -> Message:
        group = self._group(request.group_id)
        member = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
        assert member.classic is not None
        soft = self._groups.soft(group.group_id)
        self._groups.deadlines.heard(
            soft, group.group_id, member.member_id, member.classic.session_timeout_ms, now
        )
        has_to_join = (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        )
        if not has_to_join:
            return HeartbeatResponse()
        self._await_join(soft, group.group_id, member, now)
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)

    def _await_join(self, soft: GroupSoft, group_id: str, member: ModernMember, now: Instant) -> None:
        deadline = ModernDeadline(ModernDue.CLASSIC_JOIN, group_id, member.member_id)
        self._groups.deadlines.arm(soft, deadline, member.rebalance_timeout_ms, now, keeps_earlier=True)

    def _leave(
        self, request: LeaveGroupRequest, version: int, now: Instant
    ) -> tuple[list[CoordinatorRecord], Message]:
        group = self._group(request.group_id)
        leaving: dict[str, ModernMember] = {}
        results = []
        for one in request.members if version >= BATCHES_SINCE else [MemberIdentity(request.member_id)]:
            code = ErrorCode.NONE
            try:
                member = _leaver(group, one)
                leaving[member.member_id] = member
            except Refused as refused:
                code = refused.code
            results.append(MemberResponse(one.member_id, one.group_instance_id, code))
        records = self._groups.fence(group, list(leaving.values()), now)
        if version >= BATCHES_SINCE:
            return records, LeaveGroupResponse(members=results)
        return records, LeaveGroupResponse(error_code=results[0].error_code)


def _leaver(group: ModernGroup, leaving: MemberIdentity) -> ModernMember:
    """The member that leaves: by its member id, or by its instance id if an administrator sent the
    request.
    """
    if leaving.group_instance_id is None:
        return known_member(group, leaving.member_id)
    if leaving.member_id != _NO_MEMBER_ID:
        return known_static_member(group, leaving.member_id, leaving.group_instance_id)
    member = group.static_member(leaving.group_instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _subscription(protocols: dict[str, bytes]) -> ConsumerProtocolSubscription:
    try:
        return decode_prefixed(ConsumerProtocolSubscription, next(iter(protocols.values())))
    except DecodeError:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None


def _described(
    known: ModernMember,
    request: JoinGroupRequest,
    command: Command,
    subscription: ConsumerProtocolSubscription,
    protocols: dict[str, bytes],
    rebalance_timeout_ms: int,
) -> ModernMember:
    """The member as its JoinGroup describes it. A classic client resolves patterns itself."""
    said = ClassicMemberMetadata(
        request.session_timeout_ms, [ClassicProtocol(name, metadata) for name, metadata in protocols.items()]
    )
    return msgspec.structs.replace(
        known,
        instance_id=known.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=known.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=known.rebalance_timeout_ms
        if rebalance_timeout_ms == -1
        else rebalance_timeout_ms,
        topics=names_of(subscription.topics),
        pattern="",
        client_id=command.client_id,
        client_host=command.client_host,
        classic=said,
    )


def _refusal(request: Message, code: ErrorCode) -> Message:
    match request:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=code, member_id=request.member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=code)
        case _:
            return LeaveGroupResponse(error_code=code)
