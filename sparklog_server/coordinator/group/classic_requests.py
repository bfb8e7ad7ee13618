"""The classic groups of a shard: decisions on the requests of members, and replay of their records.

JoinGroup is in `classic_join.py`; the moves of a group from state to state are in `classic_rebalance.py`.
"""

from collections.abc import Callable

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest
from sparklog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.shard import NOTHING, Answer, Decision

from .classic import ClassicGroup, State
from .classic_join import Joining, Joins
from .classic_member import Due
from .classic_rebalance import NO_MEMBER_ID, Draft, Rebalances
from .group import Group
from .group_config import GroupConfig
from .joining_clients import JoiningClients
from .records import GroupMetadataKey, GroupMetadataValue

PROTOCOL_REQUIRED_SINCE = 5
"""The version of SyncGroup from which the protocol must be named (KIP-559)."""
BATCHES_SINCE = 3
"""The version of LeaveGroup from which several members may leave at once."""
_DUE_AT_ONCE_MAX = 200
"""The most deadlines handled in one turn of the loop: after a load the sessions of all missing members end at
the same moment.
"""


class ClassicGroups:
    """The classic groups among `groups`, a dictionary shared with the KIP-848 groups: every method ignores
    groups of the other kind.
    """

    def __init__(
        self,
        groups: dict[str, Group],
        settings: GroupConfig,
        entropy: Callable[[int], bytes],
        *,
        record_bytes_max: Callable[[], int],
        crowds: JoiningClients,
        initial_delay_ms: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._record_bytes_max = record_bytes_max
        self._rebalances = Rebalances(initial_delay_ms, crowds)
        self._joins = Joins(groups, self._rebalances, settings, entropy, record_bytes_max=record_bytes_max)
        self._is_loaded = False

    # -- the log

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Replay the record of a classic group: the group itself while the shard is loaded, afterwards a
        decision of this shard.
        """
        known = self._groups.get(key.group)
        if value is None:
            if isinstance(known, ClassicGroup):
                answers = self.dissolved(known, ErrorCode.UNKNOWN_MEMBER_ID)
                assert not answers, f"{key.group} was forgotten while {len(answers)} waited in it"
                del self._groups[key.group]
        elif not self._is_loaded:
            self._groups[key.group] = ClassicGroup.of_record(key.group, value)
        elif isinstance(known, ClassicGroup):
            known.recorded(value)

    def replayed_offset(self, group_id: str) -> None:
        """Create an empty group for an offset that was committed without members; such a group has no record
        of its own.
        """
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id, None)

    def loaded(self, now: Instant) -> list[Decision]:
        """Start the sessions of all members after the load; groups above the maximum size begin to
        rebalance.
        """
        self._is_loaded = True
        decisions = []
        for group in [one for one in self._groups.values() if isinstance(one, ClassicGroup)]:
            for member in group.members.values():
                self._rebalances.keep_alive(member, now)
            if len(group.members) > self._settings.size_max:
                draft = Draft()
                self._rebalances.prepare(group, draft, now)
                decisions.append(draft.decision())
        return [decision for decision in decisions if decision is not NOTHING]

    def adopt(self, group: ClassicGroup, now: Instant, *, rebalances: bool) -> None:
        """Add a group that has been converted from KIP-848; begin a rebalance if it `rebalances`."""
        self._groups[group.group_id] = group
        for member in group.members.values():
            self._rebalances.keep_alive(member, now)
        if rebalances:
            draft = Draft()
            self._rebalances.prepare(group, draft, now)
            assert draft.decision() is NOTHING, group.group_id

    # -- requests

    def join(self, command: Command, token: Token, now: Instant) -> Decision:
        """JoinGroup: answered at once, or when all members have joined."""
        assert isinstance(command.request, JoinGroupRequest)
        join = Joining(command, command.request, token, now)
        self._joins.decide(join)
        return join.draft.decision()

    def sync(self, command: Command, token: Token, now: Instant) -> Decision:
        """SyncGroup: answered when the leader has sent the assignment."""
        request = command.request
        assert isinstance(request, SyncGroupRequest)
        group = self._groups.get(request.group_id)
        error = self._sync_error(group, request, command.version)
        if error is not ErrorCode.NONE:
            return _answered(token, SyncGroupResponse(error_code=error))
        assert isinstance(group, ClassicGroup)
        member = group.members[request.member_id]
        draft = Draft()
        group.pending_syncs.pop(request.member_id, None)
        if not group.pending_syncs:
            self._rebalances.timers.cancel(group.phase)
        if group.state is State.STABLE:
            return _answered(token, _assigned(group, member.assignment))
        self._rebalances.park_sync(member, token, draft)
        if group.leader_id == request.member_id:
            self._assign(group, {one.member_id: one.assignment for one in request.assignments}, draft, now)
        return draft.decision()

    def _sync_error(self, group: Group | None, request: SyncGroupRequest, version: int) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if version >= PROTOCOL_REQUIRED_SINCE and (
            request.protocol_type is None or request.protocol_name is None
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not isinstance(group, ClassicGroup) or group.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.member_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (
            None,
            group.protocol,
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def _assign(self, group: ClassicGroup, assignments: dict[str, bytes], draft: Draft, now: Instant) -> None:
        """Write the assignment of the leader, and answer the parked SyncGroup requests with it. The group
        becomes stable when the record is replayed.
        """
        record = group.record(assignments)
        if len(record.key) + len(record.value or b"") > self._record_bytes_max():
            # The record does not fit into a batch. Kafka answers the same after its append has failed.
            self._rebalances.send_back(group, ErrorCode.UNKNOWN_SERVER_ERROR, draft, now)
            self._rebalances.prepare(group, draft, now)
            return
        draft.records.append(record)
        for member in group.members.values():
            if self._rebalances.answer_sync(
                member, _assigned(group, assignments.get(member.member_id, b"")), draft
            ):
                self._rebalances.keep_alive(member, now)

    def heartbeat(self, command: Command, token: Token, now: Instant) -> Decision:
        """Heartbeat: the answer tells a member that a rebalance is in progress."""
        request = command.request
        assert isinstance(request, HeartbeatRequest)
        return Decision((), (Answer(token, HeartbeatResponse(error_code=self._heartbeat(request, now))),))

    def _heartbeat(self, request: HeartbeatRequest, now: Instant) -> ErrorCode:
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            return ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        error = group.member_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalances.keep_alive(group.members[request.member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def committed(self, group: ClassicGroup, member_id: str, now: Instant) -> None:
        """Restart the session of a member that has committed offsets."""
        member = group.members.get(member_id)
        if member is not None:
            self._rebalances.keep_alive(member, now)

    def leave(self, command: Command, token: Token, now: Instant) -> Decision:
        """LeaveGroup: sent by the members themselves, or by an administrator that names the instance ids."""
        request = command.request
        assert isinstance(request, LeaveGroupRequest)
        if not request.group_id:
            return _answered(token, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        leaving = request.members if command.version >= BATCHES_SINCE else [MemberIdentity(request.member_id)]
        draft = Draft()
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            results = [_left(one, self._remove(group, one, draft)) for one in leaving]
            if any(one.error_code == ErrorCode.NONE for one in results) and group.state is not State.EMPTY:
                self._rebalances.prepare_or_complete(group, draft, now)
        else:
            results = [_left(one, ErrorCode.UNKNOWN_MEMBER_ID) for one in leaving]
        if command.version >= BATCHES_SINCE:
            reply = LeaveGroupResponse(members=results)
        else:
            reply = LeaveGroupResponse(error_code=results[0].error_code)
        draft.answers.append(Answer(token, reply))
        return draft.decision()

    def _remove(self, group: ClassicGroup, leaving: MemberIdentity, draft: Draft) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == NO_MEMBER_ID:
            member_id = group.static_members.get(leaving.group_instance_id or "", NO_MEMBER_ID)
            if leaving.group_instance_id is None or member_id == NO_MEMBER_ID:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif self._rebalances.forget_pending(group, member_id):
            return ErrorCode.NONE
        else:
            error = group.member_error(member_id, leaving.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._rebalances.drop_member(group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, draft)
        return ErrorCode.NONE

    def dissolved(self, group: ClassicGroup, code: ErrorCode) -> tuple[Answer, ...]:
        """End a group that is deleted or converted to KIP-848: its timers stop, and its parked requests are
        answered with `code`.
        """
        draft = Draft()
        self._rebalances.dissolve(group, code, draft)
        return tuple(draft.answers)

    # -- timers and waiting requests

    def tick(self, now: Instant) -> list[Decision]:
        """The decisions due by `now`, one for each group that has one. If many are due, the others wait for
        the next call.
        """
        decisions = []
        for _ in range(_DUE_AT_ONCE_MAX):
            due = self._rebalances.timers.pop(now.mono_us)
            if due is None:
                break
            group = self._groups.get(due.group_id)
            if not isinstance(group, ClassicGroup):
                continue
            draft = Draft()
            if due.due is Due.PHASE:
                self._rebalances.phase_expired(group, draft, now)
            else:
                self._rebalances.session_expired(group, due.member_id, draft, now)
            if draft.records or draft.answers:
                decisions.append(draft.decision())
        return decisions

    def deadline(self) -> Micros | None:
        return self._rebalances.timers.deadline()

    def abandoned(self, token: Token) -> None:
        self._rebalances.abandon(token)

    def waiting(self) -> list[Token]:
        return self._rebalances.waiting()


def _answered(token: Token, reply: Message) -> Decision:
    return Decision((), (Answer(token, reply),))


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )


def _left(leaving: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(leaving.member_id, leaving.group_instance_id, code)
