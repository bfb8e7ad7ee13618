"""The broker as its handlers see it: the image, this node's partitions, the quorum, the coordinators, and the
calls that park, propose and disconnect.

A handler does not take the whole `Context`, but the port of its family (`ports.py`), which this class has.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from sparklog.model import Instant, Micros, NodeId, Uuid, earlier
from sparklog.wire.schema import Message
from sparklog_server.broker.access.client_quotas import ClientQuotas
from sparklog_server.broker.cluster.broker_lifecycle import BrokerEpoch
from sparklog_server.broker.opening.parts import Parts
from sparklog_server.broker.proposals import Proposals
from sparklog_server.broker.request_jobs import RequestJobs
from sparklog_server.broker.request_timers import RequestTimers
from sparklog_server.broker.session import Answer, AnsweredInSteps, Call, Session
from sparklog_server.broker.sliced_requests import SlicedRequests
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.entries import TopicImage
from sparklog_server.metadata.image import MetadataImage

if TYPE_CHECKING:
    from sparklog_server.broker.consumer_sessions import ConsumerSessions
    from sparklog_server.broker.metrics.client_telemetry import ClientTelemetry
    from sparklog_server.broker.ports import (
        AdministrationPort,
        ConnectionPort,
        FetchPort,
        GroupPort,
        MetadataPort,
        PartitionPort,
        ProducePort,
        QuorumPort,
        TransactionPort,
    )
    from sparklog_server.replica.sessions import ReplicaSessions
    from sparklog_server.replica.throttle import Throttles


class SessionsPort(Protocol):
    """What a handler may do with a session other than answer at once: `Sessions` does it."""

    slices: SlicedRequests
    jobs: RequestJobs

    def answer(self, call: Call, message: Message, now: Instant) -> None: ...

    def close(self, session: Session, reason: str) -> None: ...

    def pause(self, session: Session) -> None: ...


class Context:
    """What the handlers of one broker share. A waiter added to `woken` is called in this turn; `disconnect`
    closes a session and drops the requests that it has sent.
    """

    def __init__(
        self, parts: Parts, sessions: SessionsPort, quotas: ClientQuotas, newest_served: Mapping[int, int]
    ) -> None:
        self.live = parts.live
        self.cluster_id = parts.cluster_id
        self.quorum = parts.quorum
        self.partitions = parts.partitions
        self.groups = parts.groups
        self.transactions = parts.transactions
        self.coordinators = (parts.groups, parts.transactions.shards)
        self.links = parts.links
        self.address_of = parts.address_of
        self.transaction_peers = parts.transaction_peers
        self.controllers = parts.controllers
        """None where this node is the only voter and decides itself."""
        self.woken = parts.woken

        self.authorization = parts.authorization
        self.allow = parts.authorization.allow
        self.may = parts.authorization.may
        self.allow_some = parts.authorization.allow_some
        self.quotas = quotas
        self.newest_served = newest_served

        self.answer = sessions.answer
        self.disconnect = sessions.close
        self.pause = sessions.pause
        self.slices = sessions.slices
        self.jobs = sessions.jobs
        self.timers = RequestTimers()

        self.proposals = Proposals(
            parts.quorum, parts.controllers, self.timers, sessions.slices, sessions.answer
        )
        self.propose = self.proposals.propose
        self.propose_for = self.proposals.propose_for
        self.propose_each_for = self.proposals.propose_each_for

        self.broker_epoch = BrokerEpoch()
        self._entropy = parts.entropy
        self._replica_sessions: ReplicaSessions | None = None
        self.throttles: Throttles | None = None
        """Of replication, once a throttle was set."""
        self._consumer_sessions: ConsumerSessions | None = None
        self._client_telemetry: ClientTelemetry | None = None
        self.auto_creations: set[str] = set()
        self.suspects: dict[NodeId, Micros] = {}
        """The brokers whose link has just ended, and until when Metadata leaves them out."""

    @property
    def settings(self) -> BrokerSettings:
        """The current settings of this broker."""
        return self.live.settings

    @property
    def image(self) -> MetadataImage:
        """The published metadata."""
        return self.quorum.image

    def tick_shards(self, now: Instant) -> None:
        """Call `tick` of the coordinator shards."""
        for shards in self.coordinators:
            shards.tick(now)
        self.transactions.resume()
        self.transactions.resolver.tick(now)
        self.slices.tick(now)

    def shards_deadline(self) -> Micros | None:
        """The next time for `tick_shards`."""
        transactions = self.transactions
        earliest = earlier(self.groups.runtime.deadline(), transactions.shards.runtime.deadline())
        return earlier(earliest, transactions.resolver.deadline_us)

    def topic_of_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic of that id."""
        return self.quorum.image.topics_by_id.get(Uuid(topic_id))

    @property
    def replica_sessions(self) -> "ReplicaSessions":
        """The fetch sessions of followers."""
        if self._replica_sessions is None:
            from sparklog_server.replica.sessions import ReplicaSessions  # a broker alone has no followers

            self._replica_sessions = ReplicaSessions(self._entropy)
        return self._replica_sessions

    @property
    def consumer_sessions(self) -> "ConsumerSessions":
        """The fetch sessions of consumers."""
        if self._consumer_sessions is None:
            from sparklog_server.broker.consumer_sessions import ConsumerSessions  # many clients use none

            self._consumer_sessions = ConsumerSessions(self.settings.fetch_session_slots, self._entropy)
        return self._consumer_sessions

    @property
    def cached_consumer_sessions(self) -> "ConsumerSessions | None":
        """The fetch sessions of consumers, if there were any."""
        return self._consumer_sessions

    @property
    def client_telemetry(self) -> "ClientTelemetry":
        """The clients that push metrics."""
        if self._client_telemetry is None:
            from sparklog_server.broker.metrics.client_telemetry import (
                ClientTelemetry,  # most clients push none
            )

            self._client_telemetry = ClientTelemetry(self.settings.telemetry, self._entropy)
        return self._client_telemetry

    @property
    def known_client_telemetry(self) -> "ClientTelemetry | None":
        """The clients that push metrics, if there were any."""
        return self._client_telemetry

    def suspected(self, now: Instant) -> frozenset[NodeId]:
        """The brokers that Metadata leaves out at the moment."""
        if not self.suspects:
            return frozenset()
        self.suspects = {node: until for node, until in self.suspects.items() if until > now.mono_us}
        return frozenset(self.suspects)


# Any: each handler takes the request class of its own API, which the type of the table cannot express.
Handler = Callable[[Context, Call, Any, Instant], Answer | AnsweredInSteps]
Handlers = dict[int, tuple[Handler, type[Message]]]
"""By API key."""


if TYPE_CHECKING:

    def _ports_of(context: Context) -> tuple[object, ...]:
        """The families of handlers, of which most are imported by name: mypy checks here what it cannot see
        in the table.
        """
        connection: ConnectionPort = context
        metadata: MetadataPort = context
        administration: AdministrationPort = context
        quorum: QuorumPort = context
        partition: PartitionPort = context
        produce: ProducePort = context
        fetch: FetchPort = context
        group: GroupPort = context
        transaction: TransactionPort = context
        return (
            connection,
            metadata,
            administration,
            quorum,
            partition,
            produce,
            fetch,
            group,
            transaction,
        )
