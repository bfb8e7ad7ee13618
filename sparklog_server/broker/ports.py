"""What each family of handlers may use of the broker: one port for each, and the pieces that several have.

    ConnectionPort       ApiVersions, SASL, the metrics of clients
    MetadataPort         Metadata, FindCoordinator, DescribeCluster, DescribeTopicPartitions
    AdministrationPort   what the controller decides for a client: topics, configurations, access, quotas
    QuorumPort           requests of other nodes to this node as a voter and controller
    PartitionPort        offsets, deletion, epochs, producers and directories of this node's partitions
    ├── ProducePort      Produce
    └── FetchPort        Fetch, of consumers and of followers
    GroupPort            groups and their offsets
    TransactionPort      producer ids, transactions and their markers

Only mypy reads a port: `Context` has what the ports name, which `context.py` has it check. A function that
several families call takes the pieces that it uses.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from sparklog.model import Instant, NodeId
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Authorization, Operation, Resource
from sparklog_server.broker.access.client_quotas import ClientQuotas
from sparklog_server.broker.cluster.broker_lifecycle import BrokerEpoch
from sparklog_server.broker.cluster.quorum import Quorum
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards
from sparklog_server.broker.coordinators.transaction_coordinator_service import TransactionCoordinator
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.broker.proposals import Proposing, ProposingFor
from sparklog_server.broker.request_jobs import RequestJobs
from sparklog_server.broker.request_timers import RequestTimers
from sparklog_server.broker.session import Call, Session, Wakeable
from sparklog_server.broker.sliced_requests import SlicedRequests
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.entries import TopicImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from sparklog_server.broker.cluster.controller_link import ControllerLink
    from sparklog_server.broker.consumer_sessions import ConsumerSessions
    from sparklog_server.broker.coordinators.transaction_peers import TransactionPeers
    from sparklog_server.broker.metrics.client_telemetry import ClientTelemetry
    from sparklog_server.replica.sessions import ReplicaSessions

# -- pieces


class Authorizing(Protocol):
    """Decides about access, as `access/authorization.py` describes."""

    def allow(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool: ...

    def may(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool: ...


class Informed(Protocol):
    """Knows the current settings and the published metadata."""

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def image(self) -> MetadataImage: ...


class Disconnecting(Informed, Protocol):
    """Closes the session of a request that it cannot or must not answer."""

    def disconnect(self, session: Session, reason: str) -> None: ...


class Commanding(Authorizing, ProposingFor, Protocol):
    """Has the controller decide what a caller may ask of it."""


# -- families


class ConnectionPort(Disconnecting, Protocol):
    """A client introduces itself, and proves who it is."""

    quorum: Quorum
    newest_served: Mapping[int, int]
    timers: RequestTimers
    jobs: RequestJobs

    @property
    def client_telemetry(self) -> "ClientTelemetry": ...

    def answer(self, call: Call, message: Message, now: Instant) -> None: ...


class MetadataPort(Authorizing, Informed, Proposing, Protocol):
    """A client asks what there is, and where; topics that it names, and internal ones, may be created."""

    cluster_id: str
    quorum: Quorum
    partitions: ReplicaManager
    coordinators: tuple[CoordinatorShards, CoordinatorShards]
    auto_creations: set[str]
    timers: RequestTimers
    slices: SlicedRequests
    woken: dict[Wakeable, None]

    def suspected(self, now: Instant) -> frozenset[NodeId]: ...


class AdministrationPort(Commanding, Disconnecting, Protocol):
    """A client has the cluster changed, or asks about what may be changed so."""

    authorization: Authorization
    live: DynamicBrokerConfig
    quotas: ClientQuotas
    partitions: ReplicaManager
    jobs: RequestJobs
    slices: SlicedRequests

    def topic_of_id(self, topic_id: bytes) -> TopicImage | None: ...


class QuorumPort(Commanding, Informed, Protocol):
    """Another node asks this one as a voter, or has the active controller decide."""

    quorum: Quorum
    controllers: "ControllerLink | None"
    woken: dict[Wakeable, None]


class PartitionPort(Authorizing, Disconnecting, Protocol):
    """A request for this node's partitions, which may wait for their high watermarks, or search them in a
    job.
    """

    partitions: ReplicaManager
    jobs: RequestJobs
    slices: SlicedRequests
    timers: RequestTimers
    woken: dict[Wakeable, None]

    def topic_of_id(self, topic_id: bytes) -> TopicImage | None: ...


class ProducePort(PartitionPort, Protocol):
    """Records are appended, those of a transaction once its coordinator has verified them."""

    transactions: TransactionCoordinator

    def transaction_peers(self) -> "TransactionPeers": ...

    def pause(self, session: Session) -> None: ...


class FetchPort(PartitionPort, Protocol):
    """Records are read, within the fetch session of a consumer or of a follower."""

    live: DynamicBrokerConfig
    quotas: ClientQuotas

    @property
    def consumer_sessions(self) -> "ConsumerSessions": ...

    @property
    def replica_sessions(self) -> "ReplicaSessions": ...


class GroupPort(Authorizing, Informed, Protocol):
    """Shards of the group coordinator answer."""

    groups: CoordinatorShards
    quorum: Quorum
    jobs: RequestJobs
    slices: SlicedRequests

    def topic_of_id(self, topic_id: bytes) -> TopicImage | None: ...


class TransactionPort(Authorizing, Disconnecting, Proposing, Protocol):
    """Shards of the transaction coordinator answer; those of groups for offsets within a transaction."""

    groups: CoordinatorShards
    transactions: TransactionCoordinator
    broker_epoch: BrokerEpoch
    live: DynamicBrokerConfig
    partitions: ReplicaManager
    jobs: RequestJobs
    slices: SlicedRequests
    timers: RequestTimers
    woken: dict[Wakeable, None]

    def allow_some(self, call: Call, operation: Operation, resource: Resource) -> bool: ...

    def transaction_peers(self) -> "TransactionPeers": ...
