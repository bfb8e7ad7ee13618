"""A member of a classic group: joins in two steps, gets its assignment from the leader (or is the leader),
and sends heartbeats.

    APART ──polled──► PREPARING ──listener called──► JOINING ──JoinGroup──► [LISTING, the leader only]
                        ▲    ▲                        │  ▲                      │
                        │    │                        └──┘ MEMBER_ID_REQUIRED   ▼
                        │    └── generation or member id lost (step LOSE) ─── SYNCING ──SyncGroup──► STABLE
                        │                                                                             │
                        └──── the group rebalances, the subscription or the topics changed ◄──────────┘
    any ──no poll for max.poll.interval.ms──► APART (leaves the group, unless it is a static member)
    any ──fatal error──► FAILED

Eager members give up every partition in PREPARING; cooperative ones (KIP-429) keep theirs, give up in
STABLE those that the new assignment lacks, and join again. A machine: no clock, no I/O.
"""

import re
from collections.abc import Mapping, Set
from enum import Enum, auto
from typing import Final

from sparklog.client.cluster import Backoff, Entropy
from sparklog.client.failures import FencedInstance
from sparklog.client.membership.assignors import (
    ASSIGNORS,
    Subscriber,
    assignor_names,
    decode_assignment,
    encode_assignment,
    is_cooperative,
    subscriber,
    subscription,
)
from sparklog.client.membership.member import (
    COORDINATOR_GONE,
    US_PER_MS,
    Coordinator,
    Errand,
    GroupMetadata,
    Step,
    StepKind,
    Steps,
    Subscription,
    group_refused,
    minus,
)
from sparklog.client.membership.member import US_PER_MS as _MS
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError, DecodeError, ErrorCode, SparklogError, code_of
from sparklog.model import Micros, TopicPartition
from sparklog.wire.messages.consumer_protocol import PROTOCOL_TYPE
from sparklog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from sparklog.wire.schema import Message

NO_GENERATION: Final = -1
_MISSING_TOPICS_US: Final = 1_000 * _MS
"""How often the leader looks for subscribed topics that do not exist."""

_DISOWNING: Final = (
    *(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID),
    ErrorCode.REBALANCE_IN_PROGRESS,
)


class Stage(Enum):
    APART = auto()
    PREPARING = auto()
    JOINING = auto()
    LISTING = auto()
    SYNCING = auto()
    STABLE = auto()
    FAILED = auto()


class ClassicMember:
    """One classic member. Invariants: at most one request for the group is in flight; a generation is held
    from JoinGroup's reply until it is lost.
    """

    def __init__(self, settings: ClientSettings, coordinator: Coordinator, entropy: Entropy) -> None:
        assert settings.group_id is not None
        self.error: SparklogError | None = None
        self.stage = Stage.APART
        self._settings = settings
        self._coordinator = coordinator
        self._backoff = Backoff(settings, entropy)
        self._group_id = settings.group_id
        self._names = assignor_names(settings.partition_assignment_strategy)
        self._is_cooperative = is_cooperative(self._names)
        self._subscription: Subscription | None = None
        self._topics: tuple[str, ...] = ()  # subscribed to by name, or matched by the pattern
        self.steps = Steps()
        self._member_id = ""
        self._generation = NO_GENERATION
        self._had: tuple[TopicPartition, ...] = ()  # the last assignment, and its generation
        self._had_generation = NO_GENERATION
        self._protocol = ""
        self._others: list[Subscriber] = []  # all members, if this is the leader
        self._counts: dict[str, int] = {}  # of the topics that the leader assigned
        self._is_leader = False
        self._skips_assignment = False
        self._joined_topics: tuple[str, ...] = ()  # topics of the last JoinGroup
        self._wants_rejoin = False
        self._gave_up = False  # other members wait for those partitions: rejoin (KIP-429)
        self._is_lost = False
        self._wants_leave = False
        self._asked: int | None = None  # the number of the errand in flight
        self._number = 0
        self._not_before = Micros(0)
        self._heartbeat_at = Micros(0)
        self._list_at: Micros | None = None
        self._is_inside = False
        self._polled_at: Micros | None = None  # the time at which the user left poll; None inside

    # -- calls of the user's thread --------------------------------------------------------------------------

    @property
    def identity(self) -> GroupMetadata:
        """The member, and its generation."""
        return GroupMetadata(
            self._group_id, self._generation, self._member_id, self._settings.group_instance_id
        )

    @property
    def is_rebalancing(self) -> bool:
        """Whether commits must wait for a new generation: behind a JoinGroup they would wait for every other
        member.
        """
        return self.stage in (Stage.JOINING, Stage.LISTING, Stage.SYNCING)

    @property
    def has_left(self) -> bool:
        """Whether no request is left to send."""
        return self.stage in (Stage.APART, Stage.FAILED) and not self._wants_leave

    def subscribe(self, subscription: Subscription, now: Micros) -> None:
        """Subscribe to these topics from the next poll on."""
        self._subscription = subscription
        self._topics = tuple(sorted(dict.fromkeys(subscription.topics)))
        self._wants_rejoin = self.stage is not Stage.APART
        if subscription.pattern is not None:
            self._list_at = now

    def polled(self, now: Micros, *, is_inside: bool) -> None:
        """The user's thread enters or leaves poll; the first poll of a subscription joins the group."""
        self._polled_at = None if is_inside else now
        self._is_inside = is_inside
        self._set_out(now)

    def step_done(self, now: Micros) -> None:
        """The listener has been called."""
        step = self.steps.begin()
        is_last = self.steps.done()
        if step.kind is StepKind.ASSIGN and not self._is_lost:
            self._had, self._had_generation = step.owned, self._generation
        if self._is_lost and self.stage is not Stage.APART:
            self._prepare()
        elif self.stage is Stage.PREPARING and is_last:
            self.stage = Stage.JOINING
        elif self.stage is Stage.STABLE:
            self._gave_up = self._gave_up or step.kind is StepKind.REVOKE
            self._wants_rejoin = self._wants_rejoin or (self._gave_up and is_last)

    def leave(self, now: Micros) -> None:
        """Leave the group, unless this is a static member, which may return before its session ends and keep
        its partitions (KIP-345).
        """
        is_in = self._member_id != "" and self.stage is not Stage.FAILED
        self._wants_leave = is_in and self._settings.group_instance_id is None
        self._depart()
        self._subscription = None
        self.steps = Steps()

    def disowned(self, code: ErrorCode, now: Micros) -> None:
        """Handle a commit that was refused with that code."""
        if self.stage is Stage.STABLE and code in _DISOWNING:
            self._group_said(code, now)

    # -- requests to send ------------------------------------------------------------------------------------

    def errands(self, now: Micros) -> list[Errand]:
        """Requests to send now."""
        self._check_poll(now)
        self._set_out(now)
        if self._wants_rejoin and self.stage is Stage.STABLE and not self.steps.is_begun:
            self._prepare()
        if self._asked is not None or now < self._not_before or self.stage is Stage.FAILED:
            return []
        if self._lists_topics(now):
            return [self._ask(self._metadata_request(), to_coordinator=False)]
        request = self._request(now)
        if request is None:
            return []
        self._coordinator.want()
        if self._coordinator.node is None:
            return []
        return [self._ask(request, to_coordinator=True)]

    def deadline(self) -> Micros | None:
        """The next time to call `errands` without an event before it."""
        times: list[Micros] = []
        if self._polled_at is not None and self.stage is not Stage.APART:
            times.append(Micros(self._polled_at + self._settings.max_poll_interval_ms * _MS))
        if self._asked is None and self.stage is not Stage.FAILED:
            if self._list_at is not None and self.stage is Stage.STABLE:
                times.append(max(self._list_at, self._not_before))
            if self._coordinator.node is not None or self.stage is Stage.LISTING or self._is_pattern_due:
                if self.stage in (Stage.JOINING, Stage.LISTING, Stage.SYNCING) or self._wants_leave:
                    times.append(self._not_before)
                elif self._generation >= 0:
                    times.append(max(self._heartbeat_at, self._not_before))
        return min(times, default=None)

    def _request(self, now: Micros) -> Message | None:
        instance_id = self._settings.group_instance_id
        if self._wants_leave:
            gone = MemberIdentity(member_id=self._member_id, reason="the consumer is being closed or silent")
            return LeaveGroupRequest(group_id=self._group_id, members=[gone])
        if self.stage is Stage.JOINING:
            return self._join_request()
        if self.stage is Stage.SYNCING:
            return SyncGroupRequest(
                group_id=self._group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=self._protocol,
                assignments=self._assignments(),
            )
        is_in_group = self.stage in (Stage.STABLE, Stage.PREPARING) and self._generation >= 0
        if is_in_group and now >= self._heartbeat_at:
            return HeartbeatRequest(
                group_id=self._group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=instance_id,
            )
        return None

    def _join_request(self) -> JoinGroupRequest:
        self._joined_topics = self._topics
        owned = self.steps.owned if self._is_cooperative else ()
        rack = self._settings.client_rack
        subscriptions = {
            name: subscription(name, self._topics, owned, self._had_generation, had=self._had, rack=rack)
            for name in self._names
        }
        return join_request(self._settings, self._group_id, self._member_id, subscriptions)

    def _ask(self, request: Message, *, to_coordinator: bool) -> Errand:
        self._number += 1
        self._asked = self._number
        node = self._coordinator.node if to_coordinator else None
        return Errand(request, node, self._number, timeout_us(request, self._settings))

    # -- replies ---------------------------------------------------------------------------------------------

    def replied(self, errand: Errand, reply: Message, now: Micros) -> None:
        """Process a reply; the reply to an abandoned request is ignored."""
        if isinstance(reply, LeaveGroupResponse):
            self._asked = None if errand.number == self._asked else self._asked
            self._wants_leave, self._member_id = False, ""
            return
        if errand.number != self._asked:
            return
        self._asked = None
        if isinstance(reply, MetadataResponse):
            self._listed(errand, reply, now)
        elif isinstance(reply, JoinGroupResponse):
            self._joined(reply, now)
        elif isinstance(reply, SyncGroupResponse):
            self._synced(reply, now)
        elif isinstance(reply, HeartbeatResponse):
            self._heartbeat_at = Micros(now + self._settings.heartbeat_interval_ms * _MS)
            self._group_said(code_of(reply.error_code), now)

    def failed(self, errand: Errand, error: SparklogError, now: Micros) -> None:
        """Retry a failed request with the coordinator looked up again, unless a retry cannot help."""
        if errand.number != self._asked:
            return
        self._asked = None
        if isinstance(errand.request, LeaveGroupRequest):
            self._wants_leave, self._member_id = False, ""  # its session ends at its timeout
        elif isinstance(error, BrokerError) and not error.is_retriable:
            self._fail(error)
        else:
            if errand.node is not None:
                self._coordinator.lost(now)
            self._back_off(now)

    def _joined(self, reply: JoinGroupResponse, now: Micros) -> None:
        code = code_of(reply.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED and not self._member_id:
            self._member_id = reply.member_id
            return
        if code is not ErrorCode.NONE:
            self._back_off(now)
            self._group_said(code, now)
            return
        self._backoff.over()
        self._member_id, self._generation = reply.member_id, reply.generation_id
        self._protocol = reply.protocol_name or ""
        self._is_leader = reply.leader == reply.member_id
        self._skips_assignment = reply.skip_assignment
        self._heartbeat_at = Micros(now + self._settings.heartbeat_interval_ms * _MS)
        if self._protocol not in self._names:
            self._fail(
                group_refused(
                    self._group_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"it chose {self._protocol!r}"
                )
            )
            return
        self.stage = Stage.SYNCING
        self._others = []
        if self._is_leader:
            try:
                self._others = [
                    subscriber(self._protocol, m.member_id, m.group_instance_id, m.metadata)
                    for m in reply.members
                ]
            except DecodeError as error:
                self._fail(
                    group_refused(
                        self._group_id,
                        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                        f"a member's subscription: {error}",
                    )
                )
                return
            self.stage = Stage.LISTING

    def _synced(self, reply: SyncGroupResponse, now: Micros) -> None:
        code = code_of(reply.error_code)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.stage = Stage.JOINING
            return
        if code is not ErrorCode.NONE:
            self._back_off(now)
            self._group_said(code, now)
            return
        try:
            target = decode_assignment(reply.assignment)
        except DecodeError as error:
            self._fail(
                group_refused(
                    self._group_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the assignment: {error}"
                )
            )
            return
        self._backoff.over()
        self.stage, self._gave_up = Stage.STABLE, False
        self._wants_rejoin = self._topics != self._joined_topics
        self._heartbeat_at = Micros(now + self._settings.heartbeat_interval_ms * _MS)
        owned = self.steps.owned
        kept = tuple(partition for partition in owned if partition in target)
        given_up, added = minus(owned, target), minus(target, owned)
        steps = [Step(StepKind.REVOKE, given_up, kept)] if given_up else []
        self.steps.replace([*steps, Step(StepKind.ASSIGN, added, target)])

    def _group_said(self, code: ErrorCode, now: Micros) -> None:
        """Handle a group error, for every request type."""
        if code is ErrorCode.NONE:
            self._backoff.over()
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._wants_rejoin = self.stage is Stage.STABLE
        elif code in COORDINATOR_GONE:
            self._coordinator.lost(now)
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            self._generation, self._is_lost = NO_GENERATION, True
            self._prepare()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(
                FencedInstance(
                    f"group {self._group_id!r}: another member is {self._settings.group_instance_id!r} now"
                )
            )
        elif code.is_retriable:
            self._back_off(now)
        else:
            self._fail(group_refused(self._group_id, code))

    # -- topics ----------------------------------------------------------------------------------------------

    @property
    def _is_pattern_due(self) -> bool:
        """Whether the topics of a pattern must be known before joining."""
        return (
            self._list_at is not None
            and self._subscription is not None
            and self._subscription.pattern is not None
        )

    def _lists_topics(self, now: Micros) -> bool:
        if self._wants_leave:
            return False
        if self.stage is Stage.LISTING:
            return True
        is_time = self._list_at is not None and now >= self._list_at
        return is_time and (
            self.stage is Stage.STABLE or (self.stage is Stage.JOINING and self._is_pattern_due)
        )

    def _metadata_request(self) -> MetadataRequest:
        if self._subscription is not None and self._subscription.pattern is not None:
            return request_for(None)
        return request_for({topic for other in self._others for topic in other.topics} | {*self._topics})

    def _listed(self, errand: Errand, reply: MetadataResponse, now: Micros) -> None:
        counts = partition_counts(reply)
        if self._subscription is not None and self._subscription.pattern is not None:
            matched = matching(
                self._subscription.pattern, reply, excludes_internal=self._settings.exclude_internal_topics
            )
            if matched != self._topics:
                self._topics, self._wants_rejoin = matched, self.stage is not Stage.JOINING
        wanted = {topic for other in self._others for topic in other.topics}
        counts = {topic: counts[topic] for topic in sorted(wanted) if topic in counts}
        if self.stage is Stage.LISTING:
            self._counts, self.stage = counts, Stage.SYNCING
        elif self.stage is Stage.STABLE and self._is_leader and counts != self._counts:
            self._wants_rejoin = True
        self._list_again(now, is_missing=len(counts) < len(wanted))

    def _list_again(self, now: Micros, *, is_missing: bool) -> None:
        has_pattern = self._subscription is not None and self._subscription.pattern is not None
        wait = _MISSING_TOPICS_US if is_missing else self._settings.metadata_max_age_ms * _MS
        self._list_at = Micros(now + wait) if has_pattern or self._is_leader else None

    def _assignments(self) -> list[SyncGroupRequestAssignment]:
        if not self._is_leader or self._skips_assignment:
            return []
        shares = ASSIGNORS[self._protocol](self._others, self._counts)
        return [
            SyncGroupRequestAssignment(member_id, encode_assignment(share))
            for member_id, share in shares.items()
        ]

    # -- inside ----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Begin to join: first the user's thread gives up the partitions that may not be held meanwhile."""
        self.stage = Stage.PREPARING
        if self.steps.is_begun:
            return  # `step_done` calls this again
        owned = self.steps.owned
        self._wants_rejoin = False
        dropped = tuple(p for p in owned if p.topic not in self._topics) if self._is_cooperative else owned
        if self._is_lost:
            self.steps.replace([Step(StepKind.LOSE, owned, ())] if owned else [])
            if self._is_cooperative:
                self._had, self._had_generation = (), NO_GENERATION
        else:
            self.steps.replace([Step(StepKind.REVOKE, dropped, minus(owned, dropped))] if dropped else [])
        self._is_lost = False
        if self.steps.first is None:
            self.stage = Stage.JOINING

    def _set_out(self, now: Micros) -> None:
        """Join, if the user polls with a subscription, and the last membership is over."""
        if (
            self._is_inside
            and self.stage is Stage.APART
            and self._subscription is not None
            and not self._wants_leave
        ):
            self._list_at = now if self._subscription.pattern is not None else None
            self._prepare()

    def _check_poll(self, now: Micros) -> None:
        """Leave the group if the user has not polled within max.poll.interval.ms (KIP-62)."""
        if self._polled_at is None or self.stage in (Stage.APART, Stage.FAILED):
            return
        if now >= self._polled_at + self._settings.max_poll_interval_ms * _MS:
            self._wants_leave = self._member_id != "" and self._settings.group_instance_id is None
            self._depart()

    def _depart(self) -> None:
        """End the membership; the next poll reports its partitions as lost."""
        self._asked = None
        self._is_lost = True
        self._generation, self._list_at = NO_GENERATION, None
        self._not_before = Micros(0)
        if self.stage is not Stage.FAILED:
            self.stage = Stage.APART
        if not self._wants_leave and self._settings.group_instance_id is None:
            self._member_id = ""

    def _fail(self, error: SparklogError) -> None:
        self.error, self.stage = error, Stage.FAILED
        self._generation = NO_GENERATION

    def _back_off(self, now: Micros) -> None:
        self._not_before = self._backoff.later(now)


_JOIN_MARGIN_US: Final = 5_000 * US_PER_MS
"""A JoinGroup is answered when the rebalance timeout is over at the latest; the request waits that much
longer, as in Kafka's consumer.
"""


def join_request(
    settings: ClientSettings, group_id: str, member_id: str, subscriptions: Mapping[str, bytes]
) -> JoinGroupRequest:
    """A JoinGroup with the encoded subscription for each assignor, the preferred one first."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name, encoded) for name, encoded in subscriptions.items()],
    )


def timeout_us(request: Message, settings: ClientSettings) -> int:
    """The time that the request may wait for its reply."""
    given_us = settings.request_timeout_ms * US_PER_MS
    if isinstance(request, JoinGroupRequest):
        return max(given_us, settings.max_poll_interval_ms * US_PER_MS + _JOIN_MARGIN_US)
    if isinstance(request, HeartbeatRequest):
        return min(given_us, settings.session_timeout_ms * US_PER_MS)
    return given_us


def request_for(topics: Set[str] | None) -> MetadataRequest:
    """A request for these topics, None for all; it creates none."""
    named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in sorted(topics)]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def partition_counts(reply: MetadataResponse) -> dict[str, int]:
    """The number of partitions of each topic that exists."""
    return {topic.name: len(topic.partitions) for topic in reply.topics if topic.name and topic.partitions}


def matching(pattern: str, reply: MetadataResponse, *, excludes_internal: bool) -> tuple[str, ...]:
    """The existing topics whose whole name matches a regular expression, in order."""
    hidden = {topic.name for topic in reply.topics if topic.is_internal and excludes_internal}
    matches = re.compile(pattern).fullmatch
    return tuple(sorted(name for name in partition_counts(reply) if name not in hidden and matches(name)))
