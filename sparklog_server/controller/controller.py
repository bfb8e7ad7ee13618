"""The controller's two entry points: `decide` answers a command on the pending image, `replay` applies
appended records.

`pending` is the image after every appended record; `ActiveController`, which appends them, knows which are
committed. A leadership begins with `reset(committed)`. While it leads, the owner calls `tick` at `deadline`,
and then takes `take_probes`.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sparklog.errors import ErrorCode
from sparklog.model import Instant, Micros, NodeId, Offset, earlier
from sparklog.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from sparklog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from sparklog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest
from sparklog.wire.messages.controller_registration import ControllerRegistrationRequest
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.schema import INT64_MAX, Message
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.config.topic_settings import TopicSettings
from sparklog_server.metadata.features import INITIAL, METADATA_VERSION
from sparklog_server.metadata.image import BROKER_RESOURCE, MetadataDelta, MetadataImage
from sparklog_server.metadata.records import (
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
    UserScramCredentialRecord,
)
from sparklog_server.outcome import Outcome, Refused

from .broker_fencing import leaderless_elected
from .brokers import Brokers
from .configs import CreatedConfigs, layers_in
from .min_isr import with_cluster_level
from .sessions import Probe, Sessions
from .topic_names import unified

if TYPE_CHECKING:
    from .acls import KnownRules
    from .broker_states import BrokerStates
    from .quorum_port import QuorumPort
    from .timed_elections import TimedElections
    from .tokens import DelegationTokens

PRODUCER_IDS_PER_BLOCK = 1000


class Controller:
    """Decides on changes of the cluster. The only durable state is `pending`; the broker sessions are soft,
    and the name index follows `pending`.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        cluster_id: str,
        entropy: Callable[[int], bytes],
        quorum: "QuorumPort",
        idle_interval_ms: int = 500,
    ) -> None:
        self.pending = MetadataImage()
        self._settings = settings
        self._own_node = own_node = NodeId(settings.node_id)
        self.sessions = Sessions(
            own_node, settings.inter_broker_listener_name, settings.broker_session_timeout_ms
        )
        self._brokers = Brokers(own_node, cluster_id, self.sessions)
        self._elections: TimedElections | None = None  # None for a node alone
        self._states: BrokerStates | None = None  # likewise
        self._tokens: DelegationTokens | None = None
        # Topic names with `.` or `_` by their unified form, oldest first: metric names cannot tell them
        # apart.
        self._colliding: dict[str, dict[str, None]] = {}
        self._entropy = entropy
        self._quorum = quorum
        self._idle_interval_us = idle_interval_ms * 1000
        self._idle_since_us = Micros(0)
        self._known_rules: KnownRules | None = None  # of `pending`, once a command needs them
        self._has_several_nodes = False
        self._is_new = False
        self._probes: list[Probe] = []
        self._settings_changed()

    def activate(self, now: Instant) -> None:
        """Begin a leadership; `pending` contains the records of earlier leaders."""
        self.sessions.activate(self.pending, now)
        self._elections = self._states = None
        self._idle_since_us = now.mono_us
        self._is_new = True
        self._probes = []
        self._tokens = None
        if self._settings.sasl.token_secret_key:
            self._delegation_tokens(now)

    def bootstrap(self) -> tuple[Message, ...]:
        """The records that begin a new cluster; none if it exists."""
        if METADATA_VERSION in self.pending.features:
            return ()
        return self.completed(
            FeatureLevelRecord(name=name, feature_level=level) for name, level in sorted(INITIAL.items())
        )

    def completed(self, records: Iterable[Message]) -> tuple[Message, ...]:
        """The first records of a cluster, with min.insync.replicas and the secret of SCRAM if they need
        these.
        """
        first = with_cluster_level(records, self._settings.topics.min_insync_replicas)
        return (*first, *self._secret_for(first))

    def due_once(self) -> tuple[Message, ...]:
        """What a cluster of an earlier release lacks, at the beginning of a leadership."""
        return self._secret_for(self.pending.carried.values())

    def _secret_for(self, records: Iterable[Message]) -> tuple[Message, ...]:
        if not any(isinstance(one, UserScramCredentialRecord) for one in records):
            return ()
        from sparklog_server.metadata.scram_secret import missing_secret  # most clusters have no such users

        return missing_secret(self.pending, self._entropy)

    def decide(
        self, command: Message, next_offset: Offset, now: Instant, principal: str = "User:ANONYMOUS"
    ) -> Outcome[Message, Message]:
        """The records and the reply for a command of `principal`; `next_offset` is the offset of the first
        record. `pending` does not change.
        """
        outcome = self._decided(command, next_offset, now, principal)
        if outcome.records:
            self._idle_since_us = now.mono_us
            if self._elections is not None:
                self._elections.decided(outcome.records, now)
            if self._states is not None:
                self._states.decided(outcome.records, now)
        return outcome

    def _decided(
        self, command: Message, next_offset: Offset, now: Instant, principal: str
    ) -> Outcome[Message, Message]:
        if isinstance(command, BrokerHeartbeatRequest):
            return self._brokers.heartbeat(self.pending, command, next_offset, now, self._settings_for)
        if isinstance(command, BrokerRegistrationRequest):
            return self._brokers.register(self.pending, command, next_offset, now, self._settings_for)
        if isinstance(command, AllocateProducerIdsRequest):
            return self._allocate_producer_ids(command)
        if isinstance(command, AssignReplicasToDirsRequest):
            return self._assign_replicas_to_dirs(command)
        if isinstance(command, AlterPartitionRequest):
            return self._alter_partition(command)
        if isinstance(command, UnregisterBrokerRequest):
            return self._brokers.unregister(self.pending, command, self._settings_for)
        # A start does not need the commands of clients, and imports are most of its time. A node with a
        # controller listener registers it.
        if isinstance(command, ControllerRegistrationRequest):
            from .controllers import register_controller

            return register_controller(self.pending, command)
        from .administration import administer
        from .tokens import TokenCommand
        from .topics import DecisionInputs

        if isinstance(command, TokenCommand):
            return self._delegation_tokens(now).decide(self.pending, command, principal, now)
        inputs = DecisionInputs(self._layers.effective, self._entropy, self._collision, self._created_configs)
        if self._known_rules is None:
            from .acls import KnownRules

            self._known_rules = KnownRules()
        return administer(
            self.pending,
            command,
            inputs,
            self._layers,
            self._settings_for,
            self._quorum,
            self._known_rules,
            now,
        )

    def replay(self, records: Iterable[tuple[Offset, Message]]) -> MetadataDelta:
        """Apply appended (offset, record) pairs; returns the changes."""
        self.pending, delta = self.pending.apply(records)
        if self._known_rules is not None:
            self._known_rules.follow(delta)
        self._has_several_nodes = _has_several_nodes(self.pending)
        if any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.configs_changed):
            self._settings_changed()
        for topic in delta.topics_deleted:
            if names := self._colliding.get(unified(topic.name)):
                names.pop(topic.name, None)
        for topic in delta.topics_created:
            if "." in topic.name or "_" in topic.name:
                self._colliding.setdefault(unified(topic.name), {})[topic.name] = None
        return delta

    def reset(self, committed: MetadataImage) -> None:
        """Discard appended records that are not committed."""
        self.pending = committed
        self._known_rules = None
        if self._tokens is not None:
            self._tokens.reset()
        self._has_several_nodes = _has_several_nodes(committed)
        self._settings_changed()
        self._colliding = {}
        for name in committed.topics_by_name:
            if "." in name or "_" in name:
                self._colliding.setdefault(unified(name), {})[name] = None

    def tick(self, now: Instant) -> tuple[Message, ...]:
        """The records that are due by time: at most one broker is fenced at a time, so that the next decision
        sees the effect; elections; in a log that was idle for long, one by which the lag of the other nodes
        shows.
        """
        self._probes += self.sessions.due_probes(self.pending, now)
        if self._is_new and self._has_several_nodes:
            # The elections for a broker that returned may take several batches: the last leader may have
            # written only the first.
            self._is_new = False
            if unfinished := leaderless_elected(self.pending, self._settings_for):
                return tuple(unfinished)
        records = self._brokers.fence_silent(self.pending, now, self._settings_for)
        if not records and self._has_several_nodes:
            if self._elections is None:
                from .timed_elections import TimedElections  # as in `decide`

                self._elections = TimedElections(self._settings.elections, now)
            records = self._elections.due(self.pending, self._settings_for, now)
            if not records and self.pending.has_broker_work:
                if self._states is None:
                    from .broker_states import BrokerStates  # as in `decide`

                    self._states = BrokerStates(self._own_node, now)
                records = self._states.due(self.pending, self._settings_for, now)
        if not records and self._tokens is not None:
            records = self._tokens.due(self.pending, now)
        idle_until_us = self._idle_until_us()
        if not records and idle_until_us is not None and idle_until_us <= now.mono_us:
            records = (NoOpRecord(),)
        if records:
            self._idle_since_us = now.mono_us
            if self._states is not None:
                self._states.decided(records, now)
        return records

    def take_probes(self) -> list[Probe]:
        """The brokers to which a connection is to be tried since the last call: the caller opens a new one to
        each and gives the outcome to `sessions.probed`.
        """
        probes, self._probes = self._probes, []
        return probes

    def deadline(self) -> Micros | None:
        """The time of the next call of `tick`."""
        sessions_us = self.sessions.deadline()
        if self._tokens is not None:
            sessions_us = earlier(sessions_us, self._tokens.due_us)
        if not self._has_several_nodes:
            return sessions_us
        elections_us = None if self._elections is None else self._elections.deadline()
        if self.pending.has_broker_work:
            states_us = Micros(0) if self._states is None else self._states.deadline(self.pending)
            elections_us = earlier(elections_us, states_us)
        return earlier(earlier(sessions_us, self._idle_until_us()), elections_us)

    def _idle_until_us(self) -> Micros | None:
        """The time of the next NoOpRecord, and of the first call of `tick`; None for a node alone."""
        if not self._has_several_nodes or not self._idle_interval_us:
            return None
        return Micros(self._idle_since_us + (0 if self._is_new else self._idle_interval_us))

    def _delegation_tokens(self, now: Instant) -> "DelegationTokens":
        if self._tokens is None:
            from .tokens import DelegationTokens  # as in `decide`

            self._tokens = DelegationTokens(self._settings.sasl, self._entropy)
            self._tokens.activate(now)
        return self._tokens

    def _settings_for(self, topic: str) -> TopicSettings:
        return TopicSettings.kept(self._layers.effective.topics, self.pending.topic_config(topic))

    def _settings_changed(self) -> None:
        """Use the dynamic settings in the pending image and this node's own settings for decisions."""
        self._layers = layers_in(self.pending, self._settings)
        self._created_configs = CreatedConfigs(self._layers)

    def _collision(self, name: str) -> str | None:
        if "." not in name and "_" not in name:
            return None
        return next(iter(self._colliding.get(unified(name), ())), None)

    def _assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Outcome[Message, AssignReplicasToDirsResponse]:
        try:
            self._brokers.check_epoch(self.pending, request.broker_id, request.broker_epoch)
        except Refused as refusal:
            return Outcome((), AssignReplicasToDirsResponse(error_code=refusal.code))
        from .directory_assignment import assign_replicas_to_dirs  # as in `decide`

        return assign_replicas_to_dirs(self.pending, request, self._settings_for)

    def _alter_partition(self, request: AlterPartitionRequest) -> Outcome[Message, AlterPartitionResponse]:
        try:
            self._brokers.check_epoch(self.pending, request.broker_id, request.broker_epoch)
        except Refused as refusal:
            return Outcome((), AlterPartitionResponse(error_code=refusal.code))
        from .alter_partition import alter_partition  # as in `decide`

        return alter_partition(self.pending, request, self._settings_for)

    def _allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> Outcome[Message, AllocateProducerIdsResponse]:
        try:
            self._brokers.check_epoch(self.pending, request.broker_id, request.broker_epoch)
        except Refused as refusal:
            return Outcome((), AllocateProducerIdsResponse(error_code=refusal.code))
        first = self.pending.next_producer_id
        if first > INT64_MAX - PRODUCER_IDS_PER_BLOCK:
            return Outcome((), AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
        record = ProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            next_producer_id=first + PRODUCER_IDS_PER_BLOCK,
        )
        return Outcome(
            (record,),
            AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=PRODUCER_IDS_PER_BLOCK),
        )


def _has_several_nodes(image: MetadataImage) -> bool:
    return len(image.brokers) > 1 or len(image.brokers.keys() | image.controllers.keys()) > 1
