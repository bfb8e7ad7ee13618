"""A classic group: in each generation the members agree on a protocol, and one of them, the leader, assigns
the partitions (KIP-62, KIP-345).

                ┌───────────────────── all members left ─────────────────────┐
                ▼                                                            │
              EMPTY ─ a join ─► PREPARING_REBALANCE ─ all rejoined, ─► COMPLETING_REBALANCE
                                   ▲      ▲           or timed out       │        │
                                   │      └──── joins, leaves, expires ──┘        │ the leader syncs:
                                   │                                              ▼ GroupMetadata is written
                                   └─────────── joins, leaves, expires ──────── STABLE
    any of them ─ deleted, or moved away ─► DEAD

The durable state is the content of the last GroupMetadata record. The record is written when a generation
becomes stable or empty, when a static member returns in a stable one, and when the group is created. State
between two records (the members that have joined or are awaited) is soft: after a failover the members find
their generation unknown or stale, and join again. `classic_rebalance.py` moves the group from state to state;
`classic_requests.py` decides on the requests of members.
"""

from enum import StrEnum
from typing import Final

from sparklog.errors import DecodeError, ErrorCode
from sparklog.model import Millis
from sparklog.wire.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    decode_prefixed,
)
from sparklog_server.coordinator.command import Token
from sparklog_server.coordinator.shard import CoordinatorRecord
from sparklog_server.coordinator.timers import Timer

from .classic_member import ClassicMember, Deadline, Due
from .group import GroupKind
from .records import GroupMetadataKey, GroupMetadataMember, GroupMetadataValue, encode_record


class State(StrEnum):
    """The states of a classic group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL = {
    State.EMPTY: {State.PREPARING_REBALANCE, State.DEAD},
    State.PREPARING_REBALANCE: {State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD},
    State.COMPLETING_REBALANCE: {State.PREPARING_REBALANCE, State.STABLE, State.DEAD},
    State.STABLE: {State.PREPARING_REBALANCE, State.DEAD},
    State.DEAD: set[State](),
}

# Reading an enum member through its class costs as much as two calls, and heartbeats and commits are
# frequent.
_NONE: Final = ErrorCode.NONE
_DEAD: Final = State.DEAD
_EMPTY: Final = State.EMPTY
_COMPLETING: Final = State.COMPLETING_REBALANCE

REBALANCED_FROM = frozenset({State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE})


class ClassicGroup:
    """One group. Invariants: `awaiting_join` is the number of members with a parked JoinGroup; `supported`
    counts, for each protocol, the members that support it.

    One class, as Kafka's ClassicGroup is: each join and leave changes the members, their static ids, the
    votes for protocols and the state together. The requests and their deadlines are in `ClassicGroups`.
    """

    __slots__ = (
        "_subscribed",
        "awaiting_join",
        "changed_at",
        "generation",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "leader_id",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "phase",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "static_members",
        "supported",
    )

    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str, changed_at: Millis | None) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.changed_at = changed_at
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, Timer[Deadline]] = {}
        """Member ids given to clients that must join again with them (MEMBER_ID_REQUIRED), and their
        deadlines.
        """
        self.pending_syncs: dict[str, None] = {}
        self.awaiting_join = 0
        self.supported: dict[str, int] = {}
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.phase = Timer(Deadline(Due.PHASE, group_id))
        self._subscribed: frozenset[str] | bool | None = False  # False: not yet computed in this generation

    # -- states

    def move_to(self, state: State, now_ms: Millis) -> None:
        """Enter `state`. A move that is not in `LEGAL` is a bug of the broker."""
        assert state in LEGAL[self.state], f"{self.group_id}: {self.state} → {state}"
        self.previous_state = self.state
        self.state = state
        self.changed_at = now_ms

    def begin_generation(self, now_ms: Millis) -> None:
        """All remaining members have joined: choose the protocol, or become empty."""
        self.generation = (self.generation + 1) & 0x7FFF_FFFF
        self._subscribed = False
        if self.members:
            self.protocol = self.voted_protocol()
            self.move_to(State.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.leader_id = None
            self.move_to(State.EMPTY, now_ms)

    # -- members

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_joins

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout among the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member that `supports` has accepted; the first member becomes the leader until the next
        election.
        """
        assert member.member_id not in self.members, member.member_id
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, member.instance_id
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.awaiting_join += member.join_token is not None

    def remove(self, member_id: str) -> ClassicMember:
        """Remove a member, whose requests have been answered. If the leader is removed, the next one is
        elected when all members have joined again.
        """
        member = self.members.pop(member_id)
        assert member.join_token is None, member_id
        assert member.sync_token is None, member_id
        self._count(member.protocols, -1)
        self.pending_syncs.pop(member_id, None)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = None
        return member

    def wait_for_join(self, member: ClassicMember, token: Token) -> None:
        """Park the JoinGroup of `member` under `token`; None if it no longer waits."""
        self.awaiting_join += (token is not None) - (member.join_token is not None)
        member.join_token = token

    def update_protocols(self, member: ClassicMember, protocols: dict[str, bytes]) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def rename(self, member: ClassicMember, new_id: str) -> None:
        """Give the member a new id after a static member has returned under it; its state is kept."""
        assert member.instance_id is not None
        old_id = member.member_id
        del self.members[old_id]
        self.members[new_id] = member
        self.static_members[member.instance_id] = new_id
        member.member_id = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_syncs:
            del self.pending_syncs[old_id]
            self.pending_syncs[new_id] = None

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else elect the first member that has; False if none has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_token is not None:
            return True
        elected = next(
            (member.member_id for member in self.members.values() if member.join_token is not None), None
        )
        if elected is None:
            return False
        self.leader_id = elected
        return True

    # -- protocols

    def supports(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Whether a client of this protocol type, with these protocols, may join the group."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        members = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.supported.get(name, 0) == members for name in protocols
        )

    def voted_protocol(self) -> str:
        """The protocol with the most votes among those that all members support; on a tie, the one voted for
        first.
        """
        members = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == members}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count(self, protocols: dict[str, bytes], change: int) -> None:
        for name in protocols:
            count = self.supported.get(name, 0) + change
            if count:
                self.supported[name] = count
            else:
                del self.supported[name]

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None if they are not consumers or a subscription cannot
        be decoded.
        """
        if self._subscribed is False:
            self._subscribed = self._read_subscriptions()
        assert not isinstance(self._subscribed, bool)
        return self._subscribed

    def _read_subscriptions(self) -> frozenset[str] | None:
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        if self.members and self.protocol is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                metadata = member.protocols.get(self.protocol or "")
                # A member that joins for the next generation may not support the protocol of this one.
                if metadata is not None:
                    topics.update(decode_prefixed(ConsumerProtocolSubscription, metadata).topics)
        except DecodeError:
            return None
        return frozenset(topics)

    @property
    def is_simple(self) -> bool:
        """Whether the group exists only because offsets are committed under its id. It has no record, so a
        KIP-848 group may take its place.
        """
        return self.protocol_type is None and self.state is State.EMPTY and not self.pending_joins

    # -- the interface of every group (`group.Group`)

    def state_name(self) -> str:
        return self.state.value

    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member; FENCED_INSTANCE_ID if another process has taken the instance id."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return _NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> ErrorCode:
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_or_epoch < 0 and self.state is _EMPTY:
            return _NONE
        if generation_or_epoch >= 0 or member_id or instance_id is not None:
            error = self.member_error(member_id, instance_id)
            if error is not _NONE:
                return error
            if generation_or_epoch != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID  # while the group has members, only they may commit
        if not is_transactional and self.state is _COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS  # the partitions of this generation are not assigned yet
        return _NONE

    def validate_commit_of(
        self, member_id: str, generation_or_epoch: int, topic_id: bytes, partition: int
    ) -> ErrorCode:
        return ErrorCode.NONE

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state is State.DEAD else ErrorCode.NONE

    def validate_offset_delete(self) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        is_legible = self.state is State.EMPTY or self.protocol_type == PROTOCOL_TYPE
        return ErrorCode.NONE if is_legible else ErrorCode.NON_EMPTY_GROUP

    def validate_delete(self) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.state is State.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        topics = self.subscribed_topics()
        return self.protocol_type == PROTOCOL_TYPE if topics is None else topic in topics

    def offset_unused_since(self, commit_timestamp_ms: Millis) -> Millis | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is State.EMPTY:
            return commit_timestamp_ms if self.changed_at is None else self.changed_at
        if self.state is State.STABLE and self.subscribed_topics() is not None:
            return commit_timestamp_ms
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        return [encode_record(GroupMetadataKey(group=self.group_id), None)]

    # -- records

    def record(self, assignments: dict[str, bytes]) -> CoordinatorRecord:
        """The GroupMetadata record of this generation, with all members and their assignments (empty for a
        member that is not in `assignments`).
        """
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=-1 if self.changed_at is None else self.changed_at,
            members=[
                GroupMetadataMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.protocols[self.protocol or ""],
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )
        return encode_record(GroupMetadataKey(group=self.group_id), value)

    def foundation(self) -> CoordinatorRecord:
        """The GroupMetadata record of a new group without a generation."""
        value = GroupMetadataValue(current_state_timestamp=-1 if self.changed_at is None else self.changed_at)
        return encode_record(GroupMetadataKey(group=self.group_id), value)

    @classmethod
    def of_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        """The group that a record describes; the sessions of its members are not running yet. Raises
        DecodeError if a member occurs twice.
        """
        timestamp = value.current_state_timestamp
        group = cls(group_id, None if timestamp == -1 else Millis(timestamp))
        for stored in value.members:
            if stored.member_id in group.members or stored.group_instance_id in group.static_members:
                raise DecodeError(
                    f"group {group_id!r} is recorded with member {stored.member_id!r} "
                    f"({stored.group_instance_id!r}) twice"
                )
            member = ClassicMember(
                stored.member_id,
                stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                # Version 0 of the record has no rebalance timeout: the session timeout takes its place.
                rebalance_timeout_ms=stored.session_timeout
                if stored.rebalance_timeout == -1
                else stored.rebalance_timeout,
                session_timeout_ms=stored.session_timeout,
                protocols={value.protocol or "": stored.subscription},
                session=Timer(Deadline(Due.SESSION, group_id, stored.member_id)),
                assignment=stored.assignment,
            )
            group.add(member, value.protocol_type)
        group.state = State.STABLE if value.members else State.EMPTY
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.leader_id = value.leader
        return group

    def recorded(self, value: GroupMetadataValue) -> None:
        """Take note that a record of this group is in the log: a generation that waits for the record becomes
        stable.
        """
        if (
            self.state is not State.COMPLETING_REBALANCE
            or value.generation != self.generation
            or not value.members
        ):
            return
        for stored in value.members:
            self.members[stored.member_id].assignment = stored.assignment
        self.move_to(State.STABLE, Millis(value.current_state_timestamp))
