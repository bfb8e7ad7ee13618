"""Membership in a consumer group: the code that its machines share, and the machine that finds the group's
coordinator.

A membership is one of two machines: `classic` (JoinGroup, SyncGroup, Heartbeat) or
`modern` (KIP-848: heartbeats carry everything). `offsets` commits and fetches
offsets. All of them return requests from `errands`, take their outcome by `replied` or `failed`, and never
wait. A change that needs the user's thread is a `Step`: that thread calls the rebalance listener and then
`step_done`; heartbeats continue meanwhile.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

import msgspec

from sparklog.client.cluster import Backoff, Entropy
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError, ErrorCode, SparklogError, code_of
from sparklog.model import Micros, NodeId, TopicPartition
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.schema import Message

US_PER_MS = 1000
GROUP_KEY = 0
TRANSACTION_KEY = 1


class GroupMetadata(NamedTuple):
    """A member's identity, for transactions and tools; the generation is the member epoch in a KIP-848 group,
    -1 outside.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class StepKind(Enum):
    REVOKE = auto()
    LOSE = auto()
    ASSIGN = auto()


class Step(NamedTuple):
    """A change of the assignment: `partitions` are added or removed, `owned` are those held afterwards. Lost
    ones may have a new owner already.
    """

    kind: StepKind
    partitions: tuple[TopicPartition, ...]
    owned: tuple[TopicPartition, ...]


class Subscription(NamedTuple):
    """Topics by name, or by a regular expression that must match the whole name. The client matches it for
    classic groups, the broker for others.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class Errand(msgspec.Struct):
    """A request of one of a group's machines; to any broker if `node` is None. `number` identifies the
    request to the machine.
    """

    request: Message
    node: NodeId | None = None
    number: int = 0
    timeout_us: int | None = None
    version_max: int | None = None


class Member(Protocol):
    """A member of a group, with either protocol."""

    @property
    def identity(self) -> GroupMetadata: ...
    @property
    def error(self) -> SparklogError | None:
        """The fatal error of the membership; the next poll raises it."""

    @property
    def steps(self) -> "Steps":
        """The next step for the user's thread, and the partitions it holds."""

    @property
    def is_rebalancing(self) -> bool:
        """Whether commits must wait for a new generation."""

    @property
    def has_left(self) -> bool:
        """Whether no request is left to send after `leave`."""

    def subscribe(self, subscription: Subscription, now: Micros) -> None: ...
    def polled(self, now: Micros, *, is_inside: bool) -> None:
        """The user's thread enters or leaves poll."""

    def step_done(self, now: Micros) -> None: ...
    def leave(self, now: Micros) -> None: ...
    def disowned(self, code: ErrorCode, now: Micros) -> None:
        """Handle a refused commit: the coordinator does not have this member any more."""

    def errands(self, now: Micros) -> list[Errand]: ...
    def replied(self, errand: Errand, reply: Message, now: Micros) -> None: ...
    def failed(self, errand: Errand, error: SparklogError, now: Micros) -> None: ...
    def deadline(self) -> Micros | None: ...


class Coordinator:
    """The coordinator of a group or of a transactional id. Invariant: at most one FindCoordinator is in
    flight, none while `node` is known.
    """

    def __init__(
        self, settings: ClientSettings, entropy: Entropy, *, key: str | None = None, key_type: int = GROUP_KEY
    ) -> None:
        key = settings.group_id if key is None else key
        assert key is not None
        self.node: NodeId | None = None
        self.is_wanted = False
        self.error: SparklogError | None = None
        self._key = key
        self._key_type = key_type
        self._backoff = Backoff(settings, entropy)
        self._is_asked = False
        self._not_before = Micros(0)

    def want(self) -> None:
        """Note that a request for the coordinator is pending."""
        self.is_wanted = True

    def lost(self, now: Micros) -> None:
        """Forget the coordinator: the broker is not the coordinator any more, or cannot be reached."""
        self.node = None
        self._back_off(now)

    def errands(self, now: Micros) -> list[Errand]:
        """The FindCoordinator request, if one is due."""
        if (
            self.node is not None
            or self._is_asked
            or not self.is_wanted
            or self.error is not None
            or now < self._not_before
        ):
            return []
        self._is_asked = True
        return [Errand(FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key]))]

    def replied(self, reply: FindCoordinatorResponse, now: Micros) -> None:
        """Process a reply."""
        self._is_asked = False
        found = next(
            (coordinator for coordinator in reply.coordinators if coordinator.key == self._key), None
        )
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if found is None else code_of(found.error_code)
        if found is not None and code is ErrorCode.NONE:
            self.node = NodeId(found.node_id)
            self._backoff.over()
        elif code.is_retriable:
            self._back_off(now)
        else:
            is_group = self._key_type == GROUP_KEY
            self.error = (
                group_refused(self._key, code)
                if is_group
                else BrokerError(code, f"transactional id {self._key!r}")
            )

    def failed(self, error: SparklogError, now: Micros) -> None:
        """Retry later: the request failed without a reply."""
        self._is_asked = False
        if isinstance(error, BrokerError) and not error.is_retriable:
            self.error = error
        self._back_off(now)

    def deadline(self) -> Micros | None:
        """The time of the next request; None if none is due."""
        is_due = self.node is None and not self._is_asked and self.is_wanted and self.error is None
        return self._not_before if is_due else None

    def _back_off(self, now: Micros) -> None:
        self._not_before = self._backoff.later(now)


COORDINATOR_GONE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)

_REMEDIES = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this principal may not READ the group",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full: see group.max.size of the broker",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "its members have no partition.assignment.strategy in common with this one"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms is outside what the broker allows (group.min and group.max.session.timeout.ms)"
    ),
    ErrorCode.INVALID_GROUP_ID: "the broker refuses this group.id",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not speak this group.protocol: choose the other one",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the broker has no such group.remote.assignor",
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another member holds this group.instance.id: stop that one, or wait for its session to end"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker cannot read the pattern as RE2",
}


def group_refused(group_id: str, code: ErrorCode, reason: str = "") -> BrokerError:
    """The error of a group that the member cannot join or stay in, with its remedy."""
    return BrokerError(
        code, f"group {group_id!r}: {reason or _REMEDIES.get(code, 'the coordinator refused')}"
    )


def minus(
    partitions: Sequence[TopicPartition], others: Sequence[TopicPartition]
) -> tuple[TopicPartition, ...]:
    """The partitions that are not among the others, in their order."""
    gone = dict.fromkeys(others)
    return tuple(partition for partition in partitions if partition not in gone)


class Steps:
    """The steps that the user's thread must perform, in order, and the partitions that it holds. A step
    that has begun is always completed.
    """

    __slots__ = ("_is_begun", "_waiting", "owned")

    def __init__(self) -> None:
        self.owned: tuple[TopicPartition, ...] = ()
        self._waiting: list[Step] = []
        self._is_begun = False

    @property
    def first(self) -> Step | None:
        """The step to perform, or being performed."""
        return self._waiting[0] if self._waiting else None

    @property
    def is_begun(self) -> bool:
        """Whether the user's thread is performing a step."""
        return self._is_begun

    def replace(self, steps: Sequence[Step]) -> None:
        """Replace the waiting steps; not while one is being performed."""
        assert not self._is_begun
        self._waiting = list(steps)

    def begin(self) -> Step:
        """Begin with the first step, in the user's thread."""
        self._is_begun = True
        return self._waiting[0]

    def done(self) -> bool:
        """End the step; returns whether it was the last."""
        assert self._is_begun
        self._is_begun = False
        self.owned = self._waiting.pop(0).owned
        return not self._waiting
