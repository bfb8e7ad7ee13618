"""A member of a KIP-848 group: one kind of request sends the subscription and the owned partitions, and
returns the target assignment.

    APART ──polled──► JOINING ──epoch, target──► RECONCILING ──listener called──► ACKNOWLEDGING
                         ▲                          ▲                                  │
                         │                          │ target changed                   │ heartbeat
                         │                          ├───────────────────────────────── ▼
                         │                          └── target changed ───────────── STABLE
                         └── LOSE, then JOINING with epoch 0: fenced, or unknown to the coordinator
    any ──no poll for max.poll.interval.ms──► APART (epoch -1)
    any ──fatal error──► FAILED

Partitions that the target lacks are committed and given up before any partition is taken or acknowledged. A
machine: no clock, no I/O.
"""

import base64
from enum import Enum, auto
from typing import Final

from sparklog.client.cluster import Backoff, Entropy
from sparklog.client.failures import FencedInstance
from sparklog.client.membership.member import (
    COORDINATOR_GONE,
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
from sparklog.errors import BrokerError, ErrorCode, SparklogError, code_of
from sparklog.model import Micros, TopicPartition, Uuid
from sparklog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.schema import Message

_JOIN: Final = 0
_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2
"""The member epoch of a static member that leaves temporarily and keeps its partitions."""
_FIRST_INTERVAL_US: Final = 3_000 * _MS
"""The heartbeat interval until the first reply has the broker's own."""

Target = dict[Uuid, tuple[int, ...]]


class Stage(Enum):
    APART = auto()
    JOINING = auto()
    RECONCILING = auto()
    ACKNOWLEDGING = auto()
    STABLE = auto()
    FAILED = auto()


class ConsumerMember:
    """One KIP-848 member. Invariants: at most one heartbeat and one lookup of topics are in flight;
    partitions outside the target are revoked first.
    """

    def __init__(self, settings: ClientSettings, coordinator: Coordinator, entropy: Entropy) -> None:
        assert settings.group_id is not None
        self.error: SparklogError | None = None
        self.stage = Stage.APART
        self._settings = settings
        self._coordinator = coordinator
        self._backoff = Backoff(settings, entropy)
        self._group_id = settings.group_id
        # Chosen once for the lifetime of the client (KIP-1082), in the text form of Kafka's ids.
        self._member_id = base64.urlsafe_b64encode(entropy(16)).rstrip(b"=").decode()
        self._epoch = _JOIN
        self._subscription: Subscription | None = None
        self._sent_subscription: Subscription | None = None
        self.steps = Steps()
        self._target: Target = {}
        self._has_assigned = False
        self._ids: dict[str, Uuid] = {}
        self._names: dict[Uuid, str] = {}
        self._is_lost = False
        self._leaves_with: int | None = None
        self._asked: int | None = None
        self._asked_names: int | None = None
        self._number = 0
        self._not_before = Micros(0)
        self._names_not_before = Micros(0)
        self._interval_us = _FIRST_INTERVAL_US
        self._heartbeat_at = Micros(0)
        self._is_inside = False
        self._polled_at: Micros | None = None

    # -- calls of the user's thread --------------------------------------------------------------------------

    @property
    def identity(self) -> GroupMetadata:
        """This member and its epoch, -1 outside the group."""
        epoch = self._epoch if self._epoch > 0 else -1
        return GroupMetadata(self._group_id, epoch, self._member_id, self._settings.group_instance_id)

    @property
    def is_rebalancing(self) -> bool:
        """Whether commits must wait for a new epoch: never, because partitions are kept until they are
        revoked.
        """
        return False

    @property
    def has_left(self) -> bool:
        """Whether no request is left to send."""
        return self.stage in (Stage.APART, Stage.FAILED) and self._leaves_with is None

    def subscribe(self, subscription: Subscription, now: Micros) -> None:
        """Subscribe to these topics from the next poll on."""
        self._subscription = Subscription(
            tuple(sorted(dict.fromkeys(subscription.topics))), subscription.pattern
        )

    def polled(self, now: Micros, *, is_inside: bool) -> None:
        """The user's thread enters or leaves poll; the first poll of a subscription joins the group."""
        self._polled_at = None if is_inside else now
        self._is_inside = is_inside
        self._set_out(now)

    def step_done(self, now: Micros) -> None:
        """The listener has been called."""
        is_last = self.steps.done()
        if self._is_lost and self.stage is not Stage.APART:
            self._begin()
        elif self.stage is Stage.RECONCILING and is_last:
            self.stage = Stage.ACKNOWLEDGING
            self._reconcile()
        elif self.stage is Stage.JOINING and is_last:
            self._heartbeat_at = now

    def leave(self, now: Micros) -> None:
        """Leave the group; a static member leaves temporarily."""
        if self.stage not in (Stage.APART, Stage.FAILED):
            self._leaves_with = _LEAVE if self._settings.group_instance_id is None else _LEAVE_FOR_A_WHILE
        self._depart()
        self._subscription = None
        self.steps = Steps()

    def disowned(self, code: ErrorCode, now: Micros) -> None:
        """Handle a commit that was refused with that code."""
        is_news = code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.FENCED_INSTANCE_ID,
        )
        if is_news and self._is_in:
            self._heartbeat_at = now  # its reply carries the error

    # -- requests to send ------------------------------------------------------------------------------------

    def errands(self, now: Micros) -> list[Errand]:
        """Requests to send now."""
        self._check_poll(now)
        self._set_out(now)
        errands: list[Errand] = []
        if self.stage is Stage.FAILED:
            return errands
        unknown = [topic_id for topic_id in self._target if topic_id not in self._names]
        if unknown and self._asked_names is None and now >= self._names_not_before:
            topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in unknown]
            errands.append(self._numbered(MetadataRequest(topics=topics, allow_auto_topic_creation=False)))
            self._asked_names = errands[0].number
        if self._asked is not None or now < self._not_before or not self._is_due(now):
            return errands
        self._coordinator.want()
        if self._coordinator.node is not None:
            errand = self._numbered(self._heartbeat())
            errand.node = self._coordinator.node
            self._asked = errand.number
            errands.append(errand)
        return errands

    def deadline(self) -> Micros | None:
        """The next time to call `errands` without an event before it."""
        times: list[Micros] = []
        if self._polled_at is not None and self.stage not in (Stage.APART, Stage.FAILED):
            times.append(Micros(self._polled_at + self._settings.max_poll_interval_ms * _MS))
        if self._asked_names is None and any(topic_id not in self._names for topic_id in self._target):
            times.append(self._names_not_before)
        if self._asked is None and self._coordinator.node is not None and self.stage is not Stage.FAILED:
            if self._is_urgent:
                times.append(self._not_before)
            elif self._is_in:
                times.append(max(self._heartbeat_at, self._not_before))
        return min(times, default=None)

    @property
    def _is_in(self) -> bool:
        return self.stage in (Stage.RECONCILING, Stage.ACKNOWLEDGING, Stage.STABLE)

    @property
    def _is_urgent(self) -> bool:
        """Whether a change must be sent to the coordinator at once."""
        if self._leaves_with is not None:
            return True
        if self.stage is Stage.JOINING:
            return self.steps.first is None
        has_news = self._subscription is not None and self._sent_subscription != self._subscription
        return self.stage is Stage.ACKNOWLEDGING or (self._is_in and has_news)

    def _is_due(self, now: Micros) -> bool:
        return self._is_urgent or (self._is_in and now >= self._heartbeat_at)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        settings = self._settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=settings.group_instance_id,
        )
        if self._leaves_with is not None:
            request.member_epoch = self._leaves_with
            return request
        is_joining = self.stage is Stage.JOINING
        if is_joining:
            request.rack_id = settings.client_rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.group_remote_assignor
        wanted = self._subscription
        if wanted is not None and (is_joining or wanted != self._sent_subscription):
            request.subscribed_topic_names = list(wanted.topics)
            # An empty pattern removes an earlier one; v0 has no patterns.
            had_pattern = self._sent_subscription is not None and self._sent_subscription.pattern is not None
            request.subscribed_topic_regex = (
                wanted.pattern if wanted.pattern is not None or not had_pattern else ""
            )
            self._sent_subscription = wanted
        if is_joining:
            request.topic_partitions = []
        elif self.stage is Stage.ACKNOWLEDGING:
            request.topic_partitions = self._owned_by_topic()
        return request

    def _owned_by_topic(self) -> list[TopicPartitions]:
        topics: dict[Uuid, TopicPartitions] = {}
        for topic, partition in sorted(self.steps.owned):
            topic_id = self._ids[topic]
            topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id, partitions=[])).partitions.append(
                partition
            )
        return list(topics.values())

    def _numbered(self, request: Message) -> Errand:
        self._number += 1
        return Errand(request, None, self._number, self._settings.request_timeout_ms * _MS)

    # -- replies ---------------------------------------------------------------------------------------------

    def replied(self, errand: Errand, reply: Message, now: Micros) -> None:
        """Process a reply; the reply to an abandoned request is ignored."""
        if isinstance(reply, MetadataResponse):
            if errand.number == self._asked_names:
                self._asked_names = None
                self._named(reply, now)
            return
        if errand.number != self._asked or not isinstance(reply, ConsumerGroupHeartbeatResponse):
            return
        self._asked = None
        if self._leaves_with is not None:
            self._leaves_with = None
            return
        self._heartbeat_at = Micros(now + self._interval_us)
        code = code_of(reply.error_code)
        if code is not ErrorCode.NONE:
            self._refused(code, reply.error_message or "", now)
            return
        self._backoff.over()
        self._epoch = reply.member_epoch
        self._interval_us = max(1, reply.heartbeat_interval_ms) * _MS
        self._heartbeat_at = Micros(now + self._interval_us)
        if self.stage in (Stage.JOINING, Stage.ACKNOWLEDGING):
            self.stage = Stage.STABLE
        if reply.assignment is not None:
            target = {
                Uuid(topic.topic_id): tuple(topic.partitions) for topic in reply.assignment.topic_partitions
            }
            self._target = target
        self._reconcile()

    def failed(self, errand: Errand, error: SparklogError, now: Micros) -> None:
        """The request failed without a reply."""
        if errand.number == self._asked_names:
            self._asked_names = None
            self._names_not_before = self._backoff.later(now)
            return
        if errand.number != self._asked:
            return
        self._asked = None
        if self._leaves_with is not None:
            self._leaves_with = None  # its session ends at its timeout
            return
        if isinstance(error, BrokerError) and not error.is_retriable:
            is_unsupported = error.code is ErrorCode.UNSUPPORTED_VERSION
            self._fail(group_refused(self._group_id, error.code) if is_unsupported else error)
            return
        # The coordinator may not have received the last heartbeat: send its fields again.
        self._sent_subscription = None
        if self.stage is Stage.STABLE:
            self.stage = Stage.ACKNOWLEDGING
        self._coordinator.lost(now)
        self._not_before = self._backoff.later(now)

    def _refused(self, code: ErrorCode, reason: str, now: Micros) -> None:
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._is_lost = True
            self._begin()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(
                FencedInstance(
                    f"group {self._group_id!r}: another member is {self._settings.group_instance_id!r} now"
                )
            )
        elif code in COORDINATOR_GONE:
            self._coordinator.lost(now)
            self._sent_subscription = None
        elif code.is_retriable:
            self._sent_subscription = None
            self._not_before = self._backoff.later(now)
        else:
            self._fail(group_refused(self._group_id, code, reason))

    def _named(self, reply: MetadataResponse, now: Micros) -> None:
        for topic in reply.topics:
            if topic.name and not topic.error_code:
                topic_id = Uuid(topic.topic_id)
                self._names[topic_id], self._ids[topic.name] = topic.name, topic_id
        self._names_not_before = self._backoff.later(now)
        self._reconcile()

    # -- inside ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Join without partitions."""
        self.stage, self._epoch, self._target, self._sent_subscription = Stage.JOINING, _JOIN, {}, None
        self._has_assigned = False
        if self.steps.is_begun:
            return  # `step_done` calls this again
        owned = self.steps.owned
        self.steps.replace([Step(StepKind.LOSE, owned, ())] if owned else [])
        self._is_lost = False

    def _reconcile(self) -> None:
        """Compare the held partitions with the target, as far as the names of its topics are known."""
        if not self._is_in or self.steps.is_begun:
            return
        target = tuple(
            TopicPartition(self._names[topic_id], partition)
            for topic_id, partitions in self._target.items()
            if topic_id in self._names
            for partition in partitions
        )
        owned = self.steps.owned
        given_up, added = minus(owned, target), minus(target, owned)
        is_whole = all(topic_id in self._names for topic_id in self._target)
        if not given_up and not added and (self._has_assigned or not is_whole):
            if self.stage is Stage.RECONCILING:
                self.steps.replace([])
                self.stage = Stage.ACKNOWLEDGING
            return
        kept = minus(owned, given_up)
        revoke = [Step(StepKind.REVOKE, given_up, kept)] if given_up else []
        assign = [Step(StepKind.ASSIGN, added, target)] if added or not given_up else []
        self.steps.replace([*revoke, *assign])
        self.stage, self._has_assigned = Stage.RECONCILING, True

    def _set_out(self, now: Micros) -> None:
        """Join, if the user polls with a subscription, and the last membership is over."""
        if (
            self._is_inside
            and self.stage is Stage.APART
            and self._subscription is not None
            and self._leaves_with is None
        ):
            self._begin()

    def _check_poll(self, now: Micros) -> None:
        """Leave the group if the user has not polled in time, so that other members can read its partitions
        (KIP-62).
        """
        if self._polled_at is None or self.stage in (Stage.APART, Stage.FAILED):
            return
        if now >= self._polled_at + self._settings.max_poll_interval_ms * _MS:
            self._leaves_with = _LEAVE if self._settings.group_instance_id is None else _LEAVE_FOR_A_WHILE
            self._depart()

    def _depart(self) -> None:
        """End the membership; the next poll reports its partitions as lost."""
        self._asked = None
        self._is_lost = True
        self._epoch, self._target, self._not_before = _JOIN, {}, Micros(0)
        if self.stage is not Stage.FAILED:
            self.stage = Stage.APART

    def _fail(self, error: SparklogError) -> None:
        self.error, self.stage, self._epoch = error, Stage.FAILED, _JOIN
