"""This node's registrations with the controller: that of its broker, with its heartbeats, and that of its
controller.

    registering ── registered, with an epoch ──► fenced ── heartbeat: not fenced ──► ready ──┐ a directory
      │  ▲ └─ refused for good, or too late ─► halted   ▲                             │  ▲   │ fails: the
      └──┘ refused for now                              └── silent, or a sync hangs ──┘  └───┘ controller
                                                                                               is told

    ready ── stop ──► leaving ── heartbeat: should shut down, or 30 s are over ──► left

A broker that is alone sends one heartbeat, since its own controller never fences it (decision 0005). With
several nodes it sends one each `broker.heartbeat.interval.ms`, and more often while it catches up or leaves.
A request that the controller cannot write, since its disk is full, is repeated every second.

The controller of a node tells the cluster its listeners and features (KIP-919):

    new image ── without this incarnation ──► asked ── refused ──► asked again after 0.1 s to 2 min
        └────── with it ──► nothing is due          └─ granted ──► the next image has it
"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from sparklog.effects import Effect, Halt
from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, Micros, NodeId, Uuid, earlier
from sparklog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from sparklog.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from sparklog_server.agenda import Agenda
from sparklog_server.broker.cluster.quorum import Quorum
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.broker.proposals import Proposing
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.entries import Assignment
from sparklog_server.metadata.features import METADATA_VERSION, SUPPORTED, unsupported
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.directory import Trace
from sparklog_server.replica.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from sparklog_server.broker.cluster.controller_link import ControllerLink
    from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards

REPORTED_AT_ONCE_MAX: Final = 2_000
"""For how many replicas one request tells where they lie: a controller refuses a request that is too large
as a whole.
"""
CATCH_UP_US: Final = 10_000
LEAVE_US: Final = 50_000
"""The intervals of heartbeats while the broker catches up with the metadata, and in a controlled shutdown."""
LEAVE_TIME_US: Final = 30_000_000
SILENCE_US: Final = 1_000_000
"""How long a controlled shutdown lasts at most: in all, and without any answer, since the other nodes may
have stopped before. An election after a controller has died takes about 0.3 s.
"""

_RETRY_US: Final = 1_000_000
_FULL: Final = ErrorCode.KAFKA_STORAGE_ERROR
"""The controller's answer when its metadata log has no room."""
_LATER: Final = (_FULL, ErrorCode.REQUEST_TIMED_OUT)
_FINAL: Final = (
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""Refusals of a registration that time does not heal."""
_REMEDIES: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "its directories belong to another cluster than the controllers: "
    "correct controller.quorum.bootstrap.servers or controller.quorum.voters, or format new directories",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "a live broker has the same node.id: stop it, or give this one "
    "another node.id and new directories",
    ErrorCode.INVALID_REGISTRATION: "one of its directories is registered by a broker with another node.id: "
    "start it with the node.id of its directories",
    ErrorCode.REQUEST_TIMED_OUT: "no controller decided: start a majority of the controllers, and check "
    "controller.quorum.bootstrap.servers or controller.quorum.voters",
}
_DEPOSED: Final = (
    "the controller no longer knows this incarnation of the broker (STALE_BROKER_EPOCH): another process has "
    "registered with its node.id or a copy of its directories, or the broker was unregistered. Run one "
    "process for each node.id, each with directories of its own"
)


class BrokerEpoch:
    """The epoch of this broker's registration; -1 before it is registered. `BrokerLifecycle` sets it."""

    __slots__ = ("value",)

    def __init__(self, value: int = -1) -> None:
        self.value = value


class LifecyclePort(Proposing, Protocol):
    """What a registration uses of the broker; `controllers` is None on a node that decides itself."""

    cluster_id: str
    broker_epoch: BrokerEpoch
    live: DynamicBrokerConfig
    quorum: Quorum
    controllers: "ControllerLink | None"
    partitions: ReplicaManager
    coordinators: "tuple[CoordinatorShards, CoordinatorShards]"

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def image(self) -> MetadataImage: ...


class BrokerLifecycle:
    """Registers the broker, and tells of `failed`: the ids of directories that can no longer be used and
    are not yet told of.

    Invariant: at most one registration or regular heartbeat waits for its answer.
    """

    def __init__(
        self,
        context: LifecyclePort,
        failed: list[Uuid],
        agenda: Agenda,
        effects: list[Effect],
        trace: Trace,
    ) -> None:
        self.is_ready = False
        self.deadline_us: Micros | None = None
        """When `tick` is wanted."""
        self._context = context
        self._live = context.live
        self._failed = failed
        self._assignments = context.partitions.moving.assignments
        self._reported_cordoned: tuple[str, ...] = ()
        self._agenda = agenda
        self._effects = effects
        self._trace = trace
        self._again: list[Callable[[Instant], None]] = []
        self._again_us: Micros | None = None
        self._register_until_us: Micros | None = None
        self._refusal = ErrorCode.REQUEST_TIMED_OUT  # the last one of a registration
        self._beat_us: Micros | None = None  # when the next heartbeat is due
        self._awaits_beat = False  # a heartbeat has no answer yet
        self._wants_beat = False  # another one is to follow at once
        self._is_heard = False  # a heartbeat was answered
        self.is_recovered = True  # the logs are open
        self._left: Callable[[Instant], None] | None = None  # set once the broker is to stop
        self._leave_until_us: Micros | None = None
        self._silent_until_us: Micros | None = None

    # -- registration

    def begin(
        self, registration: BrokerRegistrationRequest, now: Instant, *, is_recovered: bool = True
    ) -> None:
        """Register; ready follows by itself, but not before `recovered` if the logs are not open yet."""
        self.is_recovered = is_recovered
        if not self._is_alone:
            timeout_ms = self._context.settings.initial_broker_registration_timeout_ms
            self._register_until_us = Micros(now.mono_us + timeout_ms * 1000)
        for directory in self._context.partitions.directories:
            directory.log_dir.registers(Uuid(registration.incarnation_id))
        self._register(registration, now)
        self._schedule()

    def recovered(self, now: Instant) -> None:
        """The logs are open: ask at once to be unfenced."""
        self.is_recovered = True
        if self._context.broker_epoch.value >= 0:
            self.beat(now)

    @property
    def is_leaving(self) -> bool:
        """Whether the broker is to stop, and its leaderships are moved away first."""
        return self._left is not None

    @property
    def _is_alone(self) -> bool:
        return self._context.controllers is None

    def _register(self, registration: BrokerRegistrationRequest, now: Instant) -> None:
        def registered(reply: BrokerRegistrationResponse, now: Instant) -> None:
            code = code_of(reply.error_code)
            if code is ErrorCode.NONE:
                self._register_until_us = None
                self._context.broker_epoch.value = reply.broker_epoch
                for directory in self._context.partitions.directories:
                    directory.log_dir.registered(reply.broker_epoch)
                self.beat(now)
            elif code is _FULL or not (self._is_alone or code in _FINAL):
                self._refusal = code
                self._ask_later(partial(self._register, registration), now)
            else:
                self._halt_unregistered(code)

        self._context.propose(registration, BrokerRegistrationResponse, registered, now)

    def _halt_unregistered(self, code: ErrorCode) -> None:
        reason = unsupported(self._context.image.features) or _REMEDIES.get(code) or code.name
        if not self._is_alone:
            reason += f" (node.id={self._context.settings.node_id}, cluster.id={self._context.cluster_id})"
        self._effects.append(Halt(f"the controller refused the registration: {reason}"))

    # -- heartbeats

    def beat(self, now: Instant) -> None:
        """Send a heartbeat, or another one as soon as the one under way is answered. It asks to be unfenced
        and tells the cordoned directories, or asks to shut down.
        """
        self._beat_us = None
        if self._awaits_beat:
            self._wants_beat = True
            return
        self._awaits_beat = True
        heartbeat = self._heartbeat(now, offline_log_dirs=[], tells_cordoned=not self.is_ready)
        self._context.propose(heartbeat, BrokerHeartbeatResponse, self._beat_answered, now)
        self._schedule()

    def controller_elected(self, now: Instant) -> None:
        """Tell a new controller at once that the broker lives: it probes those that it does not hear."""
        if self._is_heard:
            self.beat(now)

    def brokers_changed(self, image: MetadataImage, now: Instant) -> None:
        """Where another broker leaves, report at once that this one has applied it: the controller waits
        for all of them.
        """
        own = self._context.settings.node_id
        is_awaited = any(
            one.is_in_controlled_shutdown and not one.is_fenced and one.node_id != own
            for one in image.brokers.values()
        )
        if is_awaited and self.is_ready and not self._is_alone:
            self.beat(now)

    def _beat_answered(self, reply: BrokerHeartbeatResponse, now: Instant) -> None:
        self._awaits_beat = False
        code = code_of(reply.error_code)
        interval_us = self._context.settings.broker_heartbeat_interval_ms * 1000
        if code is _FULL:
            interval_us = _RETRY_US
        elif code is ErrorCode.STALE_BROKER_EPOCH:
            self._effects.append(Halt(_DEPOSED))
            return
        elif code is ErrorCode.NONE:
            self._silent_until_us = Micros(now.mono_us + SILENCE_US)
            self._learn(is_ready=not reply.is_fenced)
            if self._left is not None:
                interval_us = LEAVE_US
                if reply.should_shut_down:
                    self._leave("the controller has moved its leaderships", now)
                    return
            elif not reply.is_caught_up:
                interval_us = CATCH_UP_US
        if self._wants_beat:
            self._beat_us = now.mono_us
        elif not self._is_alone or code is _FULL:
            self._beat_us = Micros(now.mono_us + interval_us)
        self._wants_beat = False
        self._schedule()

    def _learn(self, *, is_ready: bool) -> None:
        if is_ready != self.is_ready or not self._is_heard:
            self._trace(
                "broker-ready" if is_ready else "broker-still-fenced", node=self._context.settings.node_id
            )
        if is_ready and not self.is_ready:
            self._agenda.has_deadlines = True  # reports about directories may wait for this
        self.is_ready, self._is_heard = is_ready, True

    # -- controlled shutdown

    def leave(self, left: Callable[[Instant], None], now: Instant) -> None:
        """Have the controller move the leaderships away, then call `left`: at once for a broker that is alone
        or leads nothing, since it is fenced.
        """
        if self._left is not None:
            return
        self._left = left
        if self._is_alone or not self.is_ready:
            left(now)
            return
        self._trace("controlled-shutdown-begins", node=self._context.settings.node_id)
        self._leave_until_us = Micros(now.mono_us + LEAVE_TIME_US)
        self._silent_until_us = Micros(now.mono_us + SILENCE_US)
        self.beat(now)
        self._schedule()

    def _leave(self, reason: str, now: Instant) -> None:
        self._trace("controlled-shutdown-ends", node=self._context.settings.node_id, reason=reason)
        self._leave_until_us = self._beat_us = None
        self._schedule()
        assert self._left is not None
        self._left(now)

    # -- time

    def tick(self, now: Instant) -> None:
        """Resend requests that are due, and end a registration or shutdown that takes too long."""
        if self._again_us is not None and self._again_us <= now.mono_us:
            again, self._again, self._again_us = self._again, [], None
            for ask in again:
                ask(now)
        if self._register_until_us is not None and self._register_until_us <= now.mono_us:
            self._register_until_us = None
            self._halt_unregistered(self._refusal)
        if self._leave_until_us is not None and self._silent_until_us is not None:
            if self._leave_until_us <= now.mono_us:
                self._leave("the controller has not moved its leaderships in time", now)
            elif self._silent_until_us <= now.mono_us:
                self._leave("no controller answers", now)
        if self._beat_us is not None and self._beat_us <= now.mono_us:
            self.beat(now)
        self._schedule()

    def _schedule(self) -> None:
        deadline_us = earlier(self._again_us, earlier(self._beat_us, self._register_until_us))
        if self._leave_until_us is not None:
            deadline_us = earlier(deadline_us, earlier(self._leave_until_us, self._silent_until_us))
        self.deadline_us = deadline_us

    def _ask_later(self, ask: Callable[[Instant], None], now: Instant) -> None:
        self._again.append(ask)
        self._again_us = Micros(now.mono_us + _RETRY_US)
        self._schedule()

    # -- reports about directories

    @property
    def has_failures(self) -> bool:
        """Whether there are reports about directories, and the broker is ready to send them."""
        return self.is_ready and bool(
            self._failed
            or self._assignments
            or self._reported_cordoned is not self._live.settings.cordoned_log_dirs
        )

    def report_failures(self, now: Instant) -> None:
        """Report to the controller in which directories replicas lie, and then the failed directories, so
        that it moves leaderships away and places no replica there.
        """
        if self._assignments:
            reported = tuple(islice(self._assignments.values(), REPORTED_AT_ONCE_MAX))
            for one in reported:
                del self._assignments[one.topic_id, one.partition]
            self._tell_assigned(reported, now)
        if self._reported_cordoned is not self._live.settings.cordoned_log_dirs:
            self._tell_cordoned(now)
        if self._failed:
            failed, self._failed[:] = tuple(self._failed), []
            self._tell_failed(failed, now)

    def _tell_cordoned(self, now: Instant) -> None:
        def answered(reply: BrokerHeartbeatResponse, now: Instant) -> None:
            if reply.error_code in _LATER:
                self._ask_later(self._tell_cordoned, now)

        heartbeat = self._heartbeat(now, offline_log_dirs=[], tells_cordoned=True)
        self._context.propose(heartbeat, BrokerHeartbeatResponse, answered, now)

    def _tell_failed(self, failed: tuple[Uuid, ...], now: Instant) -> None:
        def answered(reply: BrokerHeartbeatResponse, now: Instant) -> None:
            if reply.error_code in _LATER:
                self._ask_later(partial(self._tell_failed, failed), now)
                return
            for shards in self._context.coordinators:
                shards.check()

        heartbeat = self._heartbeat(now, offline_log_dirs=list(failed))
        self._context.propose(heartbeat, BrokerHeartbeatResponse, answered, now)

    def _tell_assigned(self, reported: tuple[Assignment, ...], now: Instant) -> None:
        self._context.propose(
            self._assigning(reported), AssignReplicasToDirsResponse, partial(self._assigned, reported), now
        )

    def _assigning(self, reported: tuple[Assignment, ...]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, AssignReplicasToDirsRequestTopicData]] = {}
        for one in reported:
            topics = directories.setdefault(one.directory_id, {})
            topic = topics.setdefault(one.topic_id, AssignReplicasToDirsRequestTopicData(one.topic_id, []))
            topic.partitions.append(AssignReplicasToDirsRequestPartitionData(one.partition))
        return AssignReplicasToDirsRequest(
            broker_id=self._context.settings.node_id,
            broker_epoch=self._context.broker_epoch.value,
            directories=[
                AssignReplicasToDirsRequestDirectoryData(one, list(topics.values()))
                for one, topics in directories.items()
            ],
        )

    def _assigned(
        self, reported: tuple[Assignment, ...], reply: AssignReplicasToDirsResponse, now: Instant
    ) -> None:
        if reply.error_code == ErrorCode.REQUEST_TIMED_OUT:
            self._ask_later(partial(self._tell_assigned, reported), now)
            return
        refused = frozenset(
            (Uuid(topic.topic_id), part.partition_index)
            for directory in reply.directories
            for topic in directory.topics
            for part in topic.partitions
            if part.error_code
        )
        if reply.error_code:
            refused = frozenset((one.topic_id, one.partition) for one in reported)
        self._context.partitions.moving.assigned(reported, refused, now)

    def _is_stalled(self, now: Instant) -> bool:
        """Whether a sync hangs, of a data directory or of the metadata log, without which this broker learns
        of no change: others can lead meanwhile.
        """
        limit_us = now.mono_us - self._context.settings.sparklog_log_dir_stall_ms * 1000
        directories, quorum = self._context.partitions.directories, self._context.quorum.raft.state
        begun_us = [quorum.sync_began_us, *(one.sync_began_us for one in directories)]
        return any(began_us is not None and began_us <= limit_us for began_us in begun_us)

    def _heartbeat(
        self, now: Instant, *, offline_log_dirs: list[Uuid], tells_cordoned: bool = False
    ) -> BrokerHeartbeatRequest:
        cordoned = None
        if tells_cordoned:
            self._reported_cordoned = self._context.settings.cordoned_log_dirs
            cordoned = [
                Uuid(one.log_dir.directory_id)
                for one in self._context.partitions.directories
                if one.is_cordoned
            ]
        return BrokerHeartbeatRequest(
            broker_id=self._context.settings.node_id,
            broker_epoch=self._context.broker_epoch.value,
            current_metadata_offset=self._context.image.offset,
            want_fence=not self.is_recovered or (not self._is_alone and self._is_stalled(now)),
            want_shut_down=self._left is not None,
            offline_log_dirs=list(offline_log_dirs),
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
        )


_PAUSE_US: Final = 100_000
_PAUSE_US_MAX: Final = 120_000_000


class ControllerRegistration:
    """Invariant: at most one request waits for its answer."""

    def __init__(self, context: LifecyclePort, incarnation_id: Uuid) -> None:
        self.deadline_us: Micros | None = None
        """When `tick` is wanted."""
        self._context = context
        self._request = _request_of(context.settings, incarnation_id)
        self._is_asked = False
        self._pause_us = _PAUSE_US

    def published(self, now: Instant) -> None:
        """There is a new image: register if it has a cluster, and not this incarnation."""
        is_begun = METADATA_VERSION in self._context.image.features
        if self._is_asked or self.deadline_us is not None or self.is_registered or not is_begun:
            return
        self._is_asked = True
        self._context.propose(self._request, ControllerRegistrationResponse, self._answered, now)

    def tick(self, now: Instant) -> None:
        """Repeat a refused registration."""
        if self.deadline_us is not None and self.deadline_us <= now.mono_us:
            self.deadline_us = None
            self.published(now)

    @property
    def is_registered(self) -> bool:
        """Whether the cluster knows this incarnation."""
        known = self._context.image.controllers.get(NodeId(self._request.controller_id))
        return known is not None and known.incarnation_id == self._request.incarnation_id

    def _answered(self, reply: ControllerRegistrationResponse, now: Instant) -> None:
        self._is_asked = False
        if reply.error_code:
            self.deadline_us = Micros(now.mono_us + self._pause_us)
            self._pause_us = min(2 * self._pause_us, _PAUSE_US_MAX)
        else:
            self._pause_us = _PAUSE_US


def _request_of(settings: BrokerSettings, incarnation_id: Uuid) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=settings.node_id,
        incarnation_id=incarnation_id,
        listeners=[
            Listener(one.name, one.host, one.port, one.protocol_number)
            for one in settings.advertised_listeners
            if one.name in settings.controller_listener_names
        ],
        features=[Feature(name, low, high) for name, (low, high) in SUPPORTED.items()],
    )
