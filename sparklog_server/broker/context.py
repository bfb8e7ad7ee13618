"""The parts of the broker that a handler may use: the image, this node's partitions, the quorum, and the
calls that park, propose and disconnect.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sparklog.model import Instant, Micros, NodeId, Uuid, earlier
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Authorization
from sparklog_server.broker.access.client_quotas import ClientQuotas
from sparklog_server.broker.cluster.active_controller import Decided
from sparklog_server.broker.cluster.links import Address, Links
from sparklog_server.broker.cluster.quorum import Quorum
from sparklog_server.broker.coordinators.coordinator_shards import CoordinatorShards
from sparklog_server.broker.coordinators.transaction_coordinator_service import TransactionCoordinator
from sparklog_server.broker.dynamic_config import DynamicBrokerConfig
from sparklog_server.broker.memory import ReplyMemory, RequestMemory
from sparklog_server.broker.request_jobs import RequestJobs
from sparklog_server.broker.request_timers import RequestTimers
from sparklog_server.broker.session import (
    Answer,
    AnsweredInSteps,
    Call,
    Parked,
    Session,
    Wakeable,
    is_in_steps,
    principal_of,
)
from sparklog_server.broker.sliced_requests import SlicedRequests
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.metadata.entries import TopicImage
from sparklog_server.metadata.image import MetadataImage
from sparklog_server.replica.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from sparklog_server.broker.consumer_sessions import ConsumerSessions
    from sparklog_server.broker.coordinators.transaction_peers import TransactionPeers
    from sparklog_server.broker.metrics.client_telemetry import ClientTelemetry
    from sparklog_server.replica.sessions import ReplicaSessions
    from sparklog_server.replica.throttle import Throttles

_Reply = TypeVar("_Reply", bound=Message)
CertificatesRefusal = Callable[[BrokerSettings], str | None]
"""Why this node cannot use the certificates of these settings; None if it can. Reads files: for jobs."""


class Controllers(Protocol):
    """The way to the active controller, wherever it is."""

    deadline_us: Micros | None

    def propose(self, command: Message, then: Decided, caller: Call | None, now: Instant) -> None:
        """Have `command` decided in the name of the caller, or of this broker; `then` takes the reply."""

    def tick(self, now: Instant) -> None: ...

    def close(self) -> None: ...


OWN_DISK_WAIT_MS = 30_000
"""The minimum wait of a request that waits only for this broker's disk (Kafka's default request.timeout.ms).
The timeout of a request bounds the wait for other replicas: in Kafka a partition with one replica
completes with any timeout.
"""


_PART_PAUSE_MS = 1
"""The pause between two parts of a request: a part without records is decided at once."""


class _NextPart:
    """The next part of a request, after a turn of other sessions."""

    __slots__ = ("_propose", "call")

    def __init__(self, call: Call, propose: Callable[[Instant], None]) -> None:
        self.call = call
        self._propose = propose

    def expired(self, now: Instant) -> None:
        """The pause is over."""
        self.call.waiting = None
        self._propose(now)

    def abandoned(self) -> None:
        """The client has closed the connection: the other parts are not proposed."""


class _Refusal:
    """A failed authentication that is answered at its time."""

    __slots__ = ("_answer", "_disconnect", "_message", "_reason", "call")

    def __init__(
        self,
        call: Call,
        message: Message,
        reason: str,
        answer: Callable[[Call, Message, Instant], None],
        disconnect: Callable[[Session, str], None],
    ) -> None:
        self.call = call
        self._message = message
        self._reason = reason
        self._answer = answer
        self._disconnect = disconnect

    def expired(self, now: Instant) -> None:
        """The delay is over."""
        self._answer(self.call, self._message, now)
        self._disconnect(self.call.session, self._reason)

    def abandoned(self) -> None:
        """The client has closed the connection."""


class Context:
    """The broker as its handlers see it. A waiter added to `woken` is called in this turn; `disconnect`
    closes a session and drops the requests that it has sent.
    """

    def __init__(
        self,
        live: DynamicBrokerConfig,
        cluster_id: str,
        quorum: Quorum,
        partitions: ReplicaManager,
        groups: CoordinatorShards,
        transactions: TransactionCoordinator,
        links: Links,
        authorization: Authorization,
        newest_served: Mapping[int, int],
        jobs: RequestJobs,
        *,
        answer: Callable[[Call, Message, Instant], None],
        disconnect: Callable[[Session, str], None],
        memory: RequestMemory,
        replies: ReplyMemory,
        quotas: ClientQuotas,
        entropy: Callable[[int], bytes],
    ) -> None:
        self.live = live
        self.newest_served = newest_served
        self.cluster_id = cluster_id
        self.broker_epoch = -1
        self.certificates_refusal: CertificatesRefusal = lambda _settings: None
        self.controllers: Controllers | None = None
        """None where this node is the only voter and decides itself."""
        self.quorum = quorum
        self.partitions = partitions
        self.groups = groups
        self.transactions = transactions
        self.links = links
        self.coordinators = (groups, transactions.shards)
        self.quotas = quotas
        self._entropy = entropy
        self._replica_sessions: ReplicaSessions | None = None
        self.throttles: Throttles | None = None
        """Of replication, once a throttle was set."""
        self._consumer_sessions: ConsumerSessions | None = None
        self._client_telemetry: ClientTelemetry | None = None
        self.auto_creations: set[str] = set()
        self.suspects: dict[NodeId, Micros] = {}
        """The brokers whose link has just ended, and until when Metadata leaves them out."""
        self.disconnect = disconnect
        self.paused: list[Session] = []
        self.woken: dict[Wakeable, None] = {}
        self.timers = RequestTimers()
        self.jobs = jobs
        self.slices = SlicedRequests(self.woken, memory, replies, quotas.work_ns, disconnect)
        self._transaction_peers: TransactionPeers | None = None
        self.authorization = authorization
        self.allow = authorization.allow
        self.may = authorization.may
        self.allow_some = authorization.allow_some
        self._answer = answer

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

    def propose(
        self,
        command: Message,
        reply_type: type[_Reply],
        then: Callable[[_Reply, Instant], None],
        now: Instant,
        caller: Call | None = None,
    ) -> None:
        """Have the controller decide `command` in the name of the caller, or of this broker; `then` takes its
        reply once that is committed.
        """

        def decided(reply: Message, now: Instant) -> None:
            assert isinstance(reply, reply_type), f"{type(reply).__name__} for {type(command).__name__}"
            then(reply, now)

        if self.controllers is None or (caller is not None and caller.session.is_controller):
            self.quorum.propose(command, decided, principal_of(caller), now)
        else:
            self.controllers.propose(command, decided, caller, now)

    def propose_for(
        self,
        call: Call,
        command: Message,
        reply_type: type[_Reply],
        answer_of: Callable[[_Reply], Message | AnsweredInSteps],
        now: Instant,
    ) -> Parked:
        """Have the controller decide `command` for the caller, which gets `answer_of` its reply.

        On a listener of controllers the caller is another node: this node decides, or answers NOT_CONTROLLER.
        """

        return self.propose_each_for(call, (command,), reply_type, lambda replies: answer_of(replies[0]), now)

    def propose_each_for(
        self,
        call: Call,
        commands: Iterable[Message],
        reply_type: type[_Reply],
        answer_of: Callable[[list[_Reply]], Message | AnsweredInSteps],
        now: Instant,
    ) -> Parked:
        """As `propose_for`, for a request in parts: each is decided when the one before it is committed."""
        rest, replies = iter(commands), list[_Reply]()

        def decided(reply: _Reply, now: Instant) -> None:
            replies.append(reply)
            if call.session.is_closing:
                return
            if (command := next(rest, None)) is not None:
                propose = partial(self.propose, command, reply_type, decided, caller=call)
                self.timers.park(_NextPart(call, propose), _PART_PAUSE_MS, now)
                return
            made = answer_of(replies)
            answer = self.slices.answered(call, made, now) if is_in_steps(made) else made
            if answer is not None:
                self._answer(call, answer, now)

        self.propose(next(rest), reply_type, decided, now, call)
        return Parked.MUTING

    def refuse(self, call: Call, message: Message, reason: str, now: Instant) -> Parked:
        """Answer with an error and close the session, later than at once, so that guessing takes time."""
        delay_ms = self.settings.sasl.failed_authentication_delay_ms
        self.timers.park(_Refusal(call, message, reason, self._answer, self.disconnect), delay_ms, now)
        return Parked.MUTING

    def transaction_peers(self) -> "TransactionPeers":
        """The other brokers, as transactions use them."""
        if self._transaction_peers is None:
            # At its only use: a broker alone has no peers.
            from sparklog_server.broker.coordinators.transaction_peers import TransactionPeers

            self._transaction_peers = TransactionPeers(self.links, self.address_of)
        return self._transaction_peers

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

    def address_of(self, node: NodeId) -> Address | None:
        """The inter-broker listener of a broker that is not fenced."""
        broker = self.image.brokers.get(node)
        if broker is None or broker.is_fenced:
            return None
        endpoint = broker.endpoint(self.settings.inter_broker_listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def pause(self, session: Session) -> None:
        """Mute the session until the disk has caught up."""
        if not session.is_paused:
            session.is_paused = True
            self.paused.append(session)


# Any: each handler takes the request class of its own API, which the type of the table cannot express.
Handler = Callable[[Context, Call, Any, Instant], Answer | AnsweredInSteps]
Handlers = dict[int, tuple[Handler, type[Message]]]
"""By API key."""
