"""Brokers: registration, heartbeats and fencing.

    (unknown) --register--> fenced --caught up--> unfenced --wants to shut down--> controlled shutdown
                              ^ ^                    |                                      |
                              | +--session expired---+                                      |
                              |    or want_fence                                            |
                              +------------------------no leaderships left------------------+

Registration and fencing are durable records; `sessions` has the soft state.
"""

from sparklog.errors import ErrorCode
from sparklog.model import Instant, NodeId, Offset, Uuid
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from sparklog.wire.schema import INT64_MAX, Message
from sparklog_server.metadata.entries import BrokerImage, is_reserved
from sparklog_server.metadata.features import METADATA_VERSION, unsupported
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from sparklog_server.outcome import Outcome, Refused

from .broker_fencing import (
    broker_left,
    broker_restarted,
    broker_returned,
    forgotten,
    has_leaderships,
    lone_broker_restarted,
)
from .elections import SettingsFor
from .sessions import Session, Sessions


class Brokers:
    """The decisions of the active controller on brokers; this node's own broker stays registered."""

    def __init__(self, own_node: NodeId, cluster_id: str, sessions: Sessions) -> None:
        self._own_node = own_node
        self._cluster_id = cluster_id
        self._sessions = sessions

    def register(
        self,
        image: MetadataImage,
        request: BrokerRegistrationRequest,
        next_offset: Offset,
        now: Instant,
        settings_for: SettingsFor,
    ) -> Outcome[Message, BrokerRegistrationResponse]:
        """Give a broker a new broker epoch; the partitions that its former incarnation led have no leader
        until it has caught up, unless it was the only broker.
        """
        try:
            return self._register(image, request, next_offset, now, settings_for)
        except Refused as refusal:
            return Outcome((), BrokerRegistrationResponse(error_code=refusal.code))

    def heartbeat(
        self,
        image: MetadataImage,
        request: BrokerHeartbeatRequest,
        next_offset: Offset,
        now: Instant,
        settings_for: SettingsFor,
    ) -> Outcome[Message, BrokerHeartbeatResponse]:
        """Handle a heartbeat: unfence a broker that has caught up, and fence or release one that
        requests it.
        """
        broker = image.brokers.get(NodeId(request.broker_id))
        if broker is None or broker.epoch != request.broker_epoch:
            return Outcome((), BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        session = self._sessions.heard(broker, Offset(request.current_metadata_offset), now)
        is_caught_up = request.current_metadata_offset >= broker.registered_at
        records: list[Message] = []
        is_fenced, should_shut_down = broker.is_fenced, False
        if broker.is_fenced:
            should_shut_down = request.want_shut_down
            # With a directory that has just gone offline, the next heartbeat does: the elections see it then.
            wants_fence = request.want_fence or _offline_directories(broker, request)
            if not request.want_shut_down and not wants_fence and is_caught_up:
                is_fenced = False
                records.append(_change(broker, fenced=-1))
                records += broker_returned(image, broker.node_id, settings_for)
        elif broker.is_in_controlled_shutdown:
            if session.shutdown_offset is None:  # an earlier leadership decided it
                session.shutdown_offset = Offset(next_offset - 1)
            should_shut_down = not has_leaderships(image, broker.node_id) and self._all_have_seen(
                image, session
            )
            is_fenced = should_shut_down
        elif request.want_fence or (request.want_shut_down and not has_leaderships(image, broker.node_id)):
            is_fenced, should_shut_down = True, request.want_shut_down
        elif request.want_shut_down:
            session.shutdown_offset = next_offset
            records.append(_change(broker, in_controlled_shutdown=1))
            records += broker_left(image, broker.node_id, settings_for)
        if is_fenced and not broker.is_fenced:
            records += fencing(image, broker, settings_for)
            self._sessions.end(broker.node_id)
        records += _directories_changed(image, broker, request, settings_for)
        reply = BrokerHeartbeatResponse(
            is_caught_up=is_caught_up, is_fenced=is_fenced, should_shut_down=should_shut_down
        )
        return Outcome(tuple(records), reply, is_atomic=False)

    def unregister(
        self, image: MetadataImage, request: UnregisterBrokerRequest, settings_for: SettingsFor
    ) -> Outcome[Message, UnregisterBrokerResponse]:
        """Unregister a broker that is fenced.

        INVALID_REQUEST for an unfenced one, which Kafka 4.3 unregisters: it would lead no partition until its
        restart, and a cluster of one would have no broker.
        """
        node = NodeId(request.broker_id)
        broker = image.brokers.get(node)
        if broker is None:
            message = f"Broker ID {node} is not currently registered"
            return Outcome(
                (),
                UnregisterBrokerResponse(
                    error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=message
                ),
            )
        if not broker.is_fenced or node == self._own_node:
            message = f"Broker {node} is alive: stop it, wait until it is fenced, then unregister it."
            return Outcome(
                (), UnregisterBrokerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)
            )
        self._sessions.forget(node)
        records = [
            *broker_left(image, node, settings_for),
            UnregisterBrokerRecord(broker_id=node, broker_epoch=broker.epoch),
            *forgotten(image, node),
        ]
        return Outcome(tuple(records), UnregisterBrokerResponse(error_message=None), is_atomic=False)

    def fence_silent(
        self, image: MetadataImage, now: Instant, settings_for: SettingsFor
    ) -> tuple[Message, ...]:
        """The records that fence one broker whose session expired; one at a time, so that the next decision
        sees the effect.
        """
        while (node := self._sessions.take_expired(now)) is not None:
            broker = image.brokers.get(node)
            if broker is not None and not broker.is_fenced:
                return tuple(fencing(image, broker, settings_for))
        return ()

    def check_epoch(self, image: MetadataImage, node: int, epoch: int) -> None:
        """Refuse a broker that is not registered with that epoch."""
        broker = image.brokers.get(NodeId(node))
        if broker is None:
            raise Refused(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {node}")
        if broker.epoch != epoch:
            raise Refused(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}",
            )

    def _register(
        self,
        image: MetadataImage,
        request: BrokerRegistrationRequest,
        next_offset: Offset,
        now: Instant,
        settings_for: SettingsFor,
    ) -> Outcome[Message, BrokerRegistrationResponse]:
        if request.cluster_id != self._cluster_id:
            raise Refused(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )
        if request.is_migrating_zk_broker:
            raise Refused(
                ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers."
            )
        node = NodeId(request.broker_id)
        if node < 0:
            raise Refused(ErrorCode.INVALID_REGISTRATION, f"Node ids are not negative: {node}")
        existing = image.brokers.get(node)
        # A directory that was reported offline may have lost records before it came back.
        has_all = existing is not None and {Uuid(one) for one in request.log_dirs} <= set(
            existing.directories
        )
        is_same_life = existing is not None and existing.incarnation_id == request.incarnation_id and has_all
        _check_directories(image, request)
        if (
            existing is not None
            and not is_same_life
            and self._sessions.is_alive(existing, now)
            and not _is_successor(existing, request)
        ):
            raise Refused(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker is registered with id {node} and still alive.",
            )
        _check_features(image, request)
        was_clean = existing is not None and request.previous_broker_epoch == existing.epoch and has_all
        records: list[Message] = []
        if existing is None:
            # A single broker leads while it is fenced (decision 0005); from the second registration on, its
            # partitions need another leader.
            fenced = [broker for broker in image.brokers.values() if broker.is_fenced]
            records = [
                record for broker in fenced for record in broker_left(image, broker.node_id, settings_for)
            ]
            records += broker_restarted(image, node, settings_for, was_clean=False)
        elif not is_same_life and len(image.brokers) == 1:
            directories = [Uuid(one) for one in request.log_dirs]
            records = lone_broker_restarted(
                image, existing, settings_for, directories=directories, was_clean=was_clean
            )
        elif not is_same_life:
            records = broker_restarted(image, node, settings_for, was_clean=was_clean)
        if existing is not None and not _is_successor(existing, request):
            records += forgotten(image, node)  # another machine: what was asked of the former is not for it
        epoch = existing.epoch if existing is not None and is_same_life else next_offset
        records.append(
            RegisterBrokerRecord(
                broker_id=node,
                incarnation_id=request.incarnation_id,
                broker_epoch=epoch,
                end_points=[
                    BrokerEndpoint(one.name, one.host, one.port, one.security_protocol)
                    for one in request.listeners
                ],
                features=[
                    BrokerFeature(one.name, one.min_supported_version, one.max_supported_version)
                    for one in request.features
                ],
                rack=request.rack or None,
                fenced=existing.is_fenced if existing is not None and is_same_life else True,
                in_controlled_shutdown=existing.is_in_controlled_shutdown
                if existing is not None and is_same_life
                else False,
                log_dirs=list(request.log_dirs),
            )
        )
        if not is_same_life:
            self._sessions.registered(node, epoch, now)
        # The registration comes last, so after a failure in between the broker registers again and the other
        # records follow.
        return Outcome(tuple(records), BrokerRegistrationResponse(broker_epoch=epoch), is_atomic=False)

    def _all_have_seen(self, image: MetadataImage, leaving: Session) -> bool:
        """Whether every active broker has applied the metadata that moved the leaderships away from the
        stopping broker.
        """
        seen = (
            self._sessions.metadata_offset(node) for node, broker in image.brokers.items() if broker.is_active
        )
        reached = min((offset for offset in seen if offset is not None), default=INT64_MAX)
        return reached >= (leaving.shutdown_offset or 0)


def fencing(image: MetadataImage, broker: BrokerImage, settings_for: SettingsFor) -> list[Message]:
    """The records that fence a broker: first its leaderships and ISR memberships are removed."""
    return [*broker_left(image, broker.node_id, settings_for), _change(broker, fenced=1)]


def _change(
    broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.node_id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


def _is_successor(existing: BrokerImage, request: BrokerRegistrationRequest) -> bool:
    """Whether the request comes from the next incarnation of the same broker: it holds a directory, which
    only one process at a time can hold.

    Kafka waits for the old session to expire, which would add nine seconds to a restart after a crash.
    """
    return not set(existing.directories).isdisjoint(request.log_dirs)


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    if not request.log_dirs:
        raise Refused(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(is_reserved(Uuid(directory)) for directory in request.log_dirs):
        raise Refused(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise Refused(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for broker in image.brokers.values():
        if broker.node_id != request.broker_id and not set(broker.directories).isdisjoint(request.log_dirs):
            raise Refused(
                ErrorCode.INVALID_REGISTRATION,
                f"Broker {broker.node_id} is already registered with one of the directories",
            )


def _check_features(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    """Refuse a broker if it, or this controller, does not support the finalized feature levels; a broker
    supports only level 0 of a feature that it does not name.
    """
    if reason := unsupported(image.features):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, reason)
    ranges = {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    if METADATA_VERSION not in ranges:
        raise Refused(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
    for name in (*ranges, *(name for name in image.features if name not in ranges)):
        lowest, highest = ranges.get(name, (0, 0))
        level = image.features.get(name, 0)
        if not lowest <= level <= highest:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of "
                f"{name}. The broker wants a version "
                f"between {lowest} and {highest}, inclusive.",
            )


def _offline_directories(broker: BrokerImage, request: BrokerHeartbeatRequest) -> list[Uuid]:
    """The directories that have gone offline since the last heartbeat."""
    return [directory for directory in broker.directories if directory in request.offline_log_dirs]


def _directories_changed(
    image: MetadataImage, broker: BrokerImage, request: BrokerHeartbeatRequest, settings_for: SettingsFor
) -> list[Message]:
    """The records for directories that went offline or were cordoned since the last heartbeat."""
    records: list[Message] = []
    offline = _offline_directories(broker, request)
    for directory in offline:
        records += broker_left(image, broker.node_id, settings_for, directory=Uuid(directory))
    if offline:
        online = [directory for directory in broker.directories if directory not in offline]
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.node_id, broker_epoch=broker.epoch, log_dirs=list(online)
            )
        )
    cordoned = request.cordoned_log_dirs
    if cordoned is not None and set(cordoned) != set(broker.cordoned_directories):
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.node_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned)
            )
        )
    return records
