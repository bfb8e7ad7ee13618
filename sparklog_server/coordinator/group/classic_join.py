"""JoinGroup of classic groups: admission, member ids, and whether the other members must join again."""

from collections.abc import Callable

from sparklog.errors import ErrorCode
from sparklog.model import Instant
from sparklog.wire.messages.join_group import JoinGroupRequest
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.shard import Answer
from sparklog_server.coordinator.timers import Timer
from sparklog_server.outcome import STRING_BYTES_MAX, cut

from .classic import ClassicGroup, State
from .classic_member import ClassicMember, Deadline, Due, by_name
from .classic_rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    NO_MEMBER_ID,
    Draft,
    Rebalances,
    joined,
    refused_join,
)
from .group import Group
from .group_config import GroupConfig

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
PENDING_JOINS_MAX = 100_000
"""The most member ids of a group that no client has joined with yet; Kafka has no limit."""
_UUID_BYTES = len("-00000000-0000-0000-0000-000000000000")


class Joining:
    """One JoinGroup request while the coordinator decides on it."""

    __slots__ = ("client_host", "client_id", "draft", "now", "protocols", "request", "token", "version")

    def __init__(self, command: Command, request: JoinGroupRequest, token: Token, now: Instant) -> None:
        self.request = request
        self.version = command.version
        self.client_id = command.client_id
        self.client_host = command.client_host
        self.token = token
        self.now = now
        self.protocols = by_name(request.protocols)
        self.draft = Draft()

    def refuse(self, code: ErrorCode, member_id: str | None = None) -> None:
        """Answer with `code`, and with the member id of the request unless another is given."""
        named = self.request.member_id if member_id is None else member_id
        self.draft.answers.append(Answer(self.token, refused_join(named, code)))

    @property
    def rebalance_timeout_ms(self) -> int:
        # Version 0 has no rebalance timeout: the session timeout takes its place.
        return self.request.session_timeout_ms if self.version == 0 else self.request.rebalance_timeout_ms


class Joins:
    """Decides on JoinGroup for the classic groups among `groups`, which may be of either kind."""

    def __init__(
        self,
        groups: dict[str, Group],
        rebalances: Rebalances,
        settings: GroupConfig,
        entropy: Callable[[int], bytes],
        *,
        record_bytes_max: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._settings = settings
        self._entropy = entropy
        self._record_bytes_max = record_bytes_max

    def decide(self, join: Joining) -> None:
        """Decide on a JoinGroup. Creates the group if it does not exist, or replaces an empty group of
        KIP-848.
        """
        request = join.request
        if not request.group_id:
            join.refuse(ErrorCode.INVALID_GROUP_ID)
            return
        if (
            not self._settings.session_timeout_min_ms
            <= request.session_timeout_ms
            <= self._settings.session_timeout_max_ms
        ):
            join.refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
            return
        known = self._groups.get(request.group_id)
        if isinstance(known, ClassicGroup):
            self._join(known, join)
        elif request.member_id != NO_MEMBER_ID:
            join.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        elif known is not None and not known.is_empty():
            join.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, NO_MEMBER_ID)
        else:
            self._found(known, join)

    def _found(self, replaced: Group | None, join: Joining) -> None:
        """The group, created without a generation if it does not exist."""
        group = ClassicGroup(join.request.group_id, join.now.wall_ms)
        if not group.supports(join.request.protocol_type, join.protocols):
            join.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, NO_MEMBER_ID)
            return
        if replaced is not None:
            join.draft.records.extend(replaced.tombstones())
        self._groups[group.group_id] = group
        join.draft.records.append(group.foundation())
        self._join(group, join)

    def _join(self, group: ClassicGroup, join: Joining) -> None:
        member_id = join.request.member_id
        if not self._has_room_for(group, member_id):
            self._turn_away(group, join)
        elif not group.supports(join.request.protocol_type, join.protocols):
            join.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id != NO_MEMBER_ID:
            self._join_known(group, join)
        elif join.request.group_instance_id is not None:
            self._join_static(group, join, join.request.group_instance_id)
        elif join.version >= MEMBER_ID_REQUIRED_SINCE:
            self._give_member_id(group, join)
        else:
            self._add(group, join, self._new_member_id(join.client_id))

    # -- room

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group may take a member. Existing members stay. While a group rebalances, only
        members that have joined again count, so a group that is too large shrinks.
        """
        if member_id == NO_MEMBER_ID and len(group.pending_joins) >= PENDING_JOINS_MAX:
            return False
        if group.state is State.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            is_waiting = member is not None and member.join_token is not None
            return is_waiting or group.awaiting_join < self._settings.size_max
        return member is not None or len(group.members) < self._settings.size_max

    def _turn_away(self, group: ClassicGroup, join: Joining) -> None:
        member = group.members.get(join.request.member_id)
        self._rebalances.forget_pending(group, join.request.member_id)
        join.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        if member is not None:
            self._rebalances.drop_member(group, member, ErrorCode.UNKNOWN_MEMBER_ID, join.draft)
        self._rebalances.complete_if_joined(group, join.draft, join.now)

    # -- newcomers

    def _new_member_id(self, prefix: str) -> str:
        """`prefix` and a random UUID (RFC 9562, version 4), so that ids cannot be guessed. A prefix that
        is too long for an id is cut.
        """
        random = int.from_bytes(self._entropy(16), "big")
        text = f"{random & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62:032x}"
        return (
            f"{cut(prefix, STRING_BYTES_MAX - _UUID_BYTES)}"
            f"-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        )

    def _give_member_id(self, group: ClassicGroup, join: Joining) -> None:
        """Answer MEMBER_ID_REQUIRED with a new member id (KIP-394): a client that does not return with it
        never becomes a member that the group waits for.
        """
        member_id = self._new_member_id(join.client_id)
        timer = Timer(Deadline(Due.SESSION, group.group_id, member_id))
        group.pending_joins[member_id] = timer
        self._rebalances.arm(timer, join.request.session_timeout_ms, join.now)
        join.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _add(self, group: ClassicGroup, join: Joining, member_id: str) -> None:
        self._rebalances.forget_pending(group, member_id)
        member = ClassicMember(
            member_id,
            join.request.group_instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.request.session_timeout_ms,
            protocols=join.protocols,
            session=Timer(Deadline(Due.SESSION, group.group_id, member_id)),
        )
        member.is_new = True
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.new_member_added = True
        group.add(member, join.request.protocol_type)
        self._rebalances.park_join(group, member, join.token, join.draft)
        self._rebalances.arm(member.session, NEW_MEMBER_JOIN_TIMEOUT_MS, join.now)
        self._rebalances.prepare_or_complete(group, join.draft, join.now)

    # -- static members (KIP-345)

    def _join_static(self, group: ClassicGroup, join: Joining, instance_id: str) -> None:
        new_id = self._new_member_id(instance_id)
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            self._add(group, join, new_id)
            return
        member = group.members[old_id]
        was_leader_id = group.leader_id or ""
        self._rebalances.dismiss(group, member, ErrorCode.FENCED_INSTANCE_ID, join.draft)
        self._rebalances.timers.cancel(member.session)
        group.rename(member, new_id)
        member.session = Timer(Deadline(Due.SESSION, group.group_id, new_id))
        member.is_new = False
        self._update(group, member, join)
        self._rebalances.keep_alive(member, join.now)
        if (
            group.state is State.STABLE
            and group.voted_protocol() == group.protocol
            and self._resume(group, member, was_leader_id, join)
        ):
            return
        self._rebalances.park_join(group, member, join.token, join.draft)
        self._rebalances.prepare_or_complete(group, join.draft, join.now)

    def _resume(self, group: ClassicGroup, member: ClassicMember, was_leader_id: str, join: Joining) -> bool:
        """A static member returns to a stable generation and keeps its assignment, without a rebalance.
        False if the record cannot be written.

        From version 9 a returning leader learns that it leads and must not assign (KIP-814); in older
        versions it is answered as a follower.
        """
        record = group.record({one.member_id: one.assignment for one in group.members.values()})
        if len(record.key) + len(record.value or b"") > self._record_bytes_max():
            return False
        join.draft.records.append(record)
        reply = joined(group, member.member_id)
        if join.version >= SKIP_ASSIGNMENT_SINCE:
            reply.skip_assignment = group.leader_id == member.member_id
        else:
            reply.members = []
            reply.leader = was_leader_id
        join.draft.answers.append(Answer(join.token, reply))
        return True

    # -- members with an id

    def _join_known(self, group: ClassicGroup, join: Joining) -> None:
        member_id, instance_id = join.request.member_id, join.request.group_instance_id
        if member_id in group.pending_joins and instance_id is None:
            self._add(group, join, member_id)
            return
        error = group.member_error(member_id, instance_id)
        if error is not ErrorCode.NONE:
            join.refuse(error)
            return
        self._join_again(group, group.members[member_id], join)

    def _join_again(self, group: ClassicGroup, member: ClassicMember, join: Joining) -> None:
        """Handle a member that joins again: it gets the current generation if its subscription is unchanged
        and it is not the leader; the leader starts a rebalance.
        """
        is_same = member.has_protocols(join.protocols)
        is_leader = group.leader_id == member.member_id
        if is_same and (
            group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not is_leader)
        ):
            join.draft.answers.append(Answer(join.token, joined(group, member.member_id)))
        else:
            self._update(group, member, join)
            self._rebalances.park_join(group, member, join.token, join.draft)
            self._rebalances.prepare_or_complete(group, join.draft, join.now)

    def _update(self, group: ClassicGroup, member: ClassicMember, join: Joining) -> None:
        group.update_protocols(member, join.protocols)
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.request.session_timeout_ms
