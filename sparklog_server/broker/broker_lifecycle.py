"""This broker's registration with the controller.

    begun ── registered, with an epoch ──► fenced ── heartbeat: not fenced ──► ready ──┐ a directory fails:
      └───── refused ──► halted                                                 ▲      │ the controller is
                                                                                └──────┘ told

A request that the controller cannot write, since its disk is full, is repeated every second.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from sparklog.effects import Effect, Halt
from sparklog.errors import ErrorCode, code_of
from sparklog.model import Instant, Micros, Uuid
from sparklog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from sparklog_server.broker.context import Context
from sparklog_server.metadata.features import unsupported
from sparklog_server.replica.directory import Trace
from sparklog_server.replica.replica_move import Assignment

TOLD_AT_ONCE_MAX: Final = 2_000
"""For how many replicas one request tells where they lie: a controller refuses a request that is too large
as a whole.
"""


_RETRY_US: Final = 1_000_000
_FULL: Final = ErrorCode.KAFKA_STORAGE_ERROR
"""What the controller says when its metadata log has no room."""


class BrokerLifecycle:
    """Registers the broker, and tells of `failed`: the ids of directories that can no longer be used and
    are not yet told of.
    """

    def __init__(self, context: Context, failed: list[Uuid], effects: list[Effect], trace: Trace) -> None:
        self.is_ready = False
        self._context = context
        self._live = context.live
        self._failed = failed
        self._assignments = context.partitions.moving.assignments
        self._told_cordoned: tuple[str, ...] = ()
        self._effects = effects
        self._trace = trace
        self._again: list[Callable[[Instant], None]] = []
        self.again_at_us: Micros | None = None
        """When `tick` is wanted."""

    def begin(self, registration: BrokerRegistrationRequest, now: Instant) -> None:
        """Register; ready follows by itself."""

        def registered(reply: BrokerRegistrationResponse, now: Instant) -> None:
            if reply.error_code == _FULL:
                self._ask_later(partial(self.begin, registration), now)
            elif reply.error_code:
                features = self._context.image.features
                reason = unsupported(features) or code_of(reply.error_code).name
                self._effects.append(Halt(f"the controller refused the registration: {reason}"))
            else:
                self._context.broker_epoch = reply.broker_epoch
                for directory in self._context.partitions.directories:
                    directory.log_dir.broker_epoch = reply.broker_epoch
                self._unfence(now)

        self._context.propose(registration, BrokerRegistrationResponse, registered, now)

    def _unfence(self, now: Instant) -> None:
        """Ask by a heartbeat to be unfenced, which tells the cordoned directories too."""

        def answered(reply: BrokerHeartbeatResponse, now: Instant) -> None:
            if reply.error_code == _FULL:
                self._ask_later(self._unfence, now)
                return
            self.is_ready = not reply.is_fenced
            self._trace(
                "broker-ready" if self.is_ready else "broker-still-fenced",
                node=self._context.settings.node_id,
            )

        heartbeat = self._heartbeat(offline_log_dirs=[], tells_cordoned=True)
        self._context.propose(heartbeat, BrokerHeartbeatResponse, answered, now)

    def tick(self, now: Instant) -> None:
        """Repeat the requests for which the controller had no room."""
        if self.again_at_us is not None and self.again_at_us <= now.mono_us:
            again, self._again, self.again_at_us = self._again, [], None
            for ask in again:
                ask(now)

    def _ask_later(self, ask: Callable[[Instant], None], now: Instant) -> None:
        self._again.append(ask)
        self.again_at_us = Micros(now.mono_us + _RETRY_US)

    @property
    def has_failures(self) -> bool:
        """Whether there are reports about directories, and the broker is ready to send them."""
        return self.is_ready and bool(
            self._failed
            or self._assignments
            or self._told_cordoned is not self._live.settings.cordoned_log_dirs
        )

    def report_failures(self, now: Instant) -> None:
        """Report to the controller in which directories replicas lie, and then the failed directories, so
        that it moves leaderships away and places no replica there.
        """
        if self._assignments:
            told = tuple(islice(self._assignments.values(), TOLD_AT_ONCE_MAX))
            for one in told:
                del self._assignments[one.topic_id, one.partition]
            self._context.propose(
                self._assigning(told), AssignReplicasToDirsResponse, partial(self._assigned, told), now
            )
        if self._told_cordoned is not self._live.settings.cordoned_log_dirs:
            self._tell_cordoned(now)
        if self._failed:
            failed, self._failed[:] = tuple(self._failed), []
            self._tell_failed(failed, now)

    def _tell_cordoned(self, now: Instant) -> None:
        def answered(reply: BrokerHeartbeatResponse, now: Instant) -> None:
            if reply.error_code == _FULL:
                self._ask_later(self._tell_cordoned, now)

        heartbeat = self._heartbeat(offline_log_dirs=[], tells_cordoned=True)
        self._context.propose(heartbeat, BrokerHeartbeatResponse, answered, now)

    def _tell_failed(self, failed: tuple[Uuid, ...], now: Instant) -> None:
        def answered(reply: BrokerHeartbeatResponse, now: Instant) -> None:
            if reply.error_code == _FULL:
                self._ask_later(partial(self._tell_failed, failed), now)
                return
            for shards in self._context.coordinators:
                shards.check()

        heartbeat = self._heartbeat(offline_log_dirs=list(failed))
        self._context.propose(heartbeat, BrokerHeartbeatResponse, answered, now)

    def _assigning(self, told: tuple[Assignment, ...]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, AssignReplicasToDirsRequestTopicData]] = {}
        for one in told:
            topics = directories.setdefault(one.directory_id, {})
            topic = topics.setdefault(one.topic_id, AssignReplicasToDirsRequestTopicData(one.topic_id, []))
            topic.partitions.append(AssignReplicasToDirsRequestPartitionData(one.partition))
        return AssignReplicasToDirsRequest(
            broker_id=self._context.settings.node_id,
            broker_epoch=self._context.broker_epoch,
            directories=[
                AssignReplicasToDirsRequestDirectoryData(one, list(topics.values()))
                for one, topics in directories.items()
            ],
        )

    def _assigned(
        self, told: tuple[Assignment, ...], reply: AssignReplicasToDirsResponse, now: Instant
    ) -> None:
        refused = frozenset(
            (Uuid(topic.topic_id), part.partition_index)
            for directory in reply.directories
            for topic in directory.topics
            for part in topic.partitions
            if part.error_code
        )
        if reply.error_code:
            refused = frozenset((one.topic_id, one.partition) for one in told)
        self._context.partitions.moving.assigned(told, refused, now)

    def _heartbeat(
        self, *, offline_log_dirs: list[Uuid], tells_cordoned: bool = False
    ) -> BrokerHeartbeatRequest:
        cordoned = None
        if tells_cordoned:
            self._told_cordoned = self._context.settings.cordoned_log_dirs
            cordoned = [
                Uuid(one.log_dir.directory_id)
                for one in self._context.partitions.directories
                if one.is_cordoned
            ]
        return BrokerHeartbeatRequest(
            broker_id=self._context.settings.node_id,
            broker_epoch=self._context.broker_epoch,
            current_metadata_offset=self._context.image.offset,
            want_fence=False,
            offline_log_dirs=list(offline_log_dirs),
            cordoned_log_dirs=None if cordoned is None else list(cordoned),
        )
