"""Rebalances of classic groups: from one generation to the next.

    prepare           every member has to join again; parked SyncGroup requests get REBALANCE_IN_PROGRESS
    complete          all members have joined, or the timeout has passed: the others are removed, and parked
                      JoinGroup requests get the new generation
    phase_expired, session_expired    remove late and silent members

All of this is soft state, except the record of a generation without members. The record of a generation with
members is written when its leader syncs (`classic_requests.py`).
"""

from collections.abc import Callable

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros
from sparklog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from sparklog.wire.messages.sync_group import SyncGroupResponse
from sparklog.wire.schema import Message
from sparklog_server.coordinator.command import Token
from sparklog_server.coordinator.shard import NOTHING, Answer, CoordinatorRecord, Decision
from sparklog_server.coordinator.timers import Timer, Timers

from .classic import REBALANCED_FROM, ClassicGroup, State
from .classic_member import ABANDONED, Abandoned, ClassicMember, Deadline
from .joining_clients import JoiningClients

NO_MEMBER_ID = ""
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""The time after which a parked new member is removed: the loss of its client may be unnoticed (Kafka's
value).
"""
_RETRY_MS_MIN = 1_000
"""The shortest time until a rebalance that no member joined is tried again."""
CROWD_DELAY_MS = 60
"""The initial delay of a group that several clients are about to join, if none is set; librdkafka may take
50 ms between its requests.
"""


class Draft:
    """The records and answers of a decision under construction."""

    __slots__ = ("answers", "records")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.answers: list[Answer] = []

    def decision(self) -> Decision:
        return Decision(tuple(self.records), tuple(self.answers)) if self.records or self.answers else NOTHING


def refused_join(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The answer to JoinGroup; for the leader, which assigns, it lists all members."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader_id or "",
        member_id=member_id,
        members=everyone(group) if group.leader_id == member_id else [],
    )


def everyone(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    """All members, with their metadata for the protocol of this generation."""
    protocol = group.protocol or ""
    return [
        JoinGroupResponseMember(one.member_id, one.instance_id, one.protocols[protocol])
        for one in group.members.values()
    ]


class Rebalances:
    """The state changes of all classic groups of a shard, their timers and parked requests."""

    def __init__(self, initial_delay_ms: Callable[[], int], crowds: JoiningClients) -> None:
        self.timers: Timers[Deadline] = Timers()
        self._delay_ms = initial_delay_ms
        self._crowds = crowds
        self._parked: dict[Token, ClassicMember] = {}

    # -- waiting requests

    def park_join(self, group: ClassicGroup, member: ClassicMember, token: Token, draft: Draft) -> None:
        """Answer `token` when the next generation begins. An older JoinGroup of the member gets
        REBALANCE_IN_PROGRESS.
        """
        self._answer_join(
            group, member, refused_join(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS), draft
        )
        group.wait_for_join(member, token)
        self._parked[token] = member

    def park_sync(self, member: ClassicMember, token: Token, draft: Draft) -> None:
        """Answer `token` when the leader syncs. An older SyncGroup gets REBALANCE_IN_PROGRESS."""
        self.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), draft)
        member.sync_token = token
        self._parked[token] = member

    def abandon(self, token: Token) -> None:
        """Drop the request of a closed connection; its member counts as waiting until its session expires."""
        member = self._parked.pop(token, None)
        if member is None:
            return
        if member.join_token is token:
            member.join_token = ABANDONED
        else:
            assert member.sync_token is token, member.member_id
            member.sync_token = ABANDONED

    def waiting(self) -> list[Token]:
        """The tokens of parked requests, in the order of arrival."""
        return list(self._parked)

    def _answer_join(
        self, group: ClassicGroup, member: ClassicMember, reply: JoinGroupResponse, draft: Draft
    ) -> None:
        if member.join_token is not None:
            self._answer(member.join_token, reply, draft)
            group.wait_for_join(member, None)

    def answer_sync(self, member: ClassicMember, reply: SyncGroupResponse, draft: Draft) -> bool:
        """Answer the parked SyncGroup of a member; False if it has none."""
        if member.sync_token is None:
            return False
        self._answer(member.sync_token, reply, draft)
        member.sync_token = None
        return True

    def _answer(self, token: Token | Abandoned, reply: Message, draft: Draft) -> None:
        if not isinstance(token, Abandoned):
            del self._parked[token]
            draft.answers.append(Answer(token, reply))

    # -- sessions

    def keep_alive(self, member: ClassicMember, now: Instant) -> None:
        """Restart the session of a member, after a request or an answer."""
        self.arm(member.session, member.session_timeout_ms, now)

    def arm(self, timer: Timer[Deadline], timeout_ms: int, now: Instant) -> None:
        self.timers.arm(timer, Micros(now.mono_us + timeout_ms * 1000) if timeout_ms > 0 else now.mono_us)

    def drop_member(self, group: ClassicGroup, member: ClassicMember, code: ErrorCode, draft: Draft) -> None:
        """Remove a member, and answer its waiting request with `code`."""
        self.dismiss(group, member, code, draft)
        group.remove(member.member_id)
        self.timers.cancel(member.session)

    def dismiss(self, group: ClassicGroup, member: ClassicMember, code: ErrorCode, draft: Draft) -> None:
        """Answer the parked request of a member with `code`. The answer has the member id only if the member
        is fenced.
        """
        member_id = member.member_id if code is ErrorCode.FENCED_INSTANCE_ID else NO_MEMBER_ID
        self.answer_sync(member, SyncGroupResponse(error_code=code), draft)
        self._answer_join(group, member, refused_join(member_id, code), draft)

    def forget_pending(self, group: ClassicGroup, member_id: str) -> bool:
        """Remove a pending member id; False if there is none."""
        timer = group.pending_joins.pop(member_id, None)
        if timer is not None:
            self.timers.cancel(timer)
        return timer is not None

    def dissolve(self, group: ClassicGroup, code: ErrorCode, draft: Draft) -> None:
        """Stop the timers of a removed group, and answer its waiting requests with `code`."""
        self.timers.cancel(group.phase)
        for member_id in list(group.pending_joins):
            self.forget_pending(group, member_id)
        for member in list(group.members.values()):
            self.drop_member(group, member, code, draft)
        group.state = State.DEAD

    # -- from state to state

    def prepare_or_complete(self, group: ClassicGroup, draft: Draft, now: Instant) -> None:
        """Begin a rebalance, or complete the one under way if every member has joined."""
        if group.state in REBALANCED_FROM:
            self.prepare(group, draft, now)
        else:
            self.complete_if_joined(group, draft, now)

    def prepare(self, group: ClassicGroup, draft: Draft, now: Instant) -> None:
        """Begin a rebalance: every member has to join again. A group that was empty waits for the initial
        delay.
        """
        if group.state is State.COMPLETING_REBALANCE:
            self.send_back(group, ErrorCode.REBALANCE_IN_PROGRESS, draft, now)
        group.pending_syncs.clear()
        self.timers.cancel(group.phase)
        is_initial = group.state is State.EMPTY
        group.move_to(State.PREPARING_REBALANCE, now.wall_ms)
        if is_initial:
            group.new_member_added = False
            group.initial_delay_ms = self._initial_delay_ms(group, now)
            group.initial_remaining_ms = max(group.rebalance_timeout_ms() - group.initial_delay_ms, 0)
            self.arm(group.phase, group.initial_delay_ms, now)
        elif group.has_all_joined:
            self._complete(group, draft, now)
        else:
            self.arm(group.phase, group.rebalance_timeout_ms(), now)

    def send_back(self, group: ClassicGroup, code: ErrorCode, draft: Draft, now: Instant) -> None:
        """Answer the parked SyncGroup requests with `code`: this generation gets no assignment."""
        assert group.state is State.COMPLETING_REBALANCE, group.state
        for member in group.members.values():
            member.assignment = b""
            if self.answer_sync(member, SyncGroupResponse(error_code=code), draft):
                self.keep_alive(member, now)

    def complete_if_joined(self, group: ClassicGroup, draft: Draft, now: Instant) -> None:
        """Complete the rebalance if all members have joined, except the first, which lasts its full delay."""
        if (
            group.state is State.PREPARING_REBALANCE
            and group.previous_state is not State.EMPTY
            and group.has_all_joined
        ):
            self._complete(group, draft, now)

    def _complete(self, group: ClassicGroup, draft: Draft, now: Instant) -> None:
        """Begin the next generation with the members that have joined, and with static members, which may
        return.
        """
        self.timers.cancel(group.phase)
        for member in [
            one for one in group.members.values() if one.join_token is None and one.instance_id is None
        ]:
            self.drop_member(group, member, ErrorCode.UNKNOWN_MEMBER_ID, draft)
        if group.members and not group.elect_joined_leader():
            # Only silent static members are left: wait for one to return, or for their sessions to expire.
            self.arm(group.phase, max(group.rebalance_timeout_ms(), _RETRY_MS_MIN), now)
            return
        group.begin_generation(now.wall_ms)
        if group.state is State.EMPTY:
            draft.records.append(group.record({}))
            return
        for member in group.members.values():
            self._answer_join(group, member, joined(group, member.member_id), draft)
            self.keep_alive(member, now)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        self.arm(group.phase, group.rebalance_timeout_ms(), now)

    # -- time

    def phase_expired(self, group: ClassicGroup, draft: Draft, now: Instant) -> None:
        """The time to join, or to sync, has passed."""
        if group.state is State.PREPARING_REBALANCE:
            if group.previous_state is State.EMPTY and group.new_member_added and group.initial_remaining_ms:
                self._extend_initial_delay(group, now)
            else:
                self._complete(group, draft, now)
        elif group.pending_syncs:
            for member_id in list(group.pending_syncs):
                self.drop_member(group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID, draft)
            self.prepare(group, draft, now)

    def _extend_initial_delay(self, group: ClassicGroup, now: Instant) -> None:
        """Extend the initial delay if members joined during it, up to the rebalance timeout (KIP-134)."""
        group.new_member_added = False
        delay_ms, remaining_ms = group.initial_delay_ms, group.initial_remaining_ms
        group.initial_delay_ms = min(self._initial_delay_ms(group, now), remaining_ms)
        group.initial_remaining_ms = max(remaining_ms - delay_ms, 0)
        self.arm(group.phase, group.initial_delay_ms, now)

    def _initial_delay_ms(self, group: ClassicGroup, now: Instant) -> int:
        delay_ms = self._delay_ms()
        return max(delay_ms, CROWD_DELAY_MS) if self._crowds.is_coming(group.group_id, now) else delay_ms

    def session_expired(self, group: ClassicGroup, member_id: str, draft: Draft, now: Instant) -> None:
        """Remove a member, or a pending member id, whose session has expired."""
        if self.forget_pending(group, member_id):
            self._go_on_without(group, draft, now)
            return
        member = group.members.get(member_id)
        if member is None or member.is_silent_by_right:
            return  # sending the answer restarts the session
        self.drop_member(group, member, ErrorCode.UNKNOWN_MEMBER_ID, draft)
        if group.state is State.PREPARING_REBALANCE:
            self._go_on_without(group, draft, now)
        else:
            self.prepare(group, draft, now)

    def _go_on_without(self, group: ClassicGroup, draft: Draft, now: Instant) -> None:
        if group.state is State.PREPARING_REBALANCE and group.has_all_joined:
            self._complete(group, draft, now)
