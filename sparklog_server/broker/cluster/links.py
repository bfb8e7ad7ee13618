"""Links: the connections that this broker opens, to other nodes and as a client of its own cluster.

    ask ─► waiting ── versions known, room in flight ──► in flight ── response, loss, time-out ──► `then`
     │                                                                                              ▲
     └── the first request to an address for a purpose opens the connection ── lost ────────────────┘

A link has one address and one purpose, since responses come in order: a long poll on one link delays no
request on another. Links does no I/O; it reconnects only when the next request comes, so that the caller
decides about pauses.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from sparklog.effects import Disconnect, Effect, LinkId, Loss, SendTo
from sparklog.errors import BrokerError, ConnectionFailed, DecodeError, SparklogError
from sparklog.model import Instant, Micros, NodeId
from sparklog.wire.schema import Message
from sparklog_server.metadata.image import MetadataImage

if TYPE_CHECKING:
    from sparklog.client.sasl.login import Login
    from sparklog.client.transport.connection import Answer, Connection
    from sparklog.client.transport.frames import ReceiveBuffers

Address = tuple[str, int]
"""Host and port."""

Answered = Callable[[Message | Loss, Instant], None]
"""Takes the response to a request, or why there is none."""

ELECTION: Final = "election"
REPLICATION: Final = "replication"
CONTROL: Final = "control"
HEARTBEAT: Final = "heartbeat"
PROBE: Final = "probe"
TRANSACTIONS: Final = "transactions"
CLIENT: Final = "client"
REPLICAS: Final = "replicas"
CATCHING_UP: Final = "catching-up"
OFFSETS: Final = "offsets"
AUDIT: Final = "audit"

TO_CONTROLLERS: Final = frozenset((ELECTION, REPLICATION, CONTROL, HEARTBEAT))
"""The purposes of links to the listeners of controllers; the others go to the inter-broker listener."""

IN_FLIGHT_MAX: Final = 8
WAITING_MAX: Final = 2_000
"""How many requests may wait on one link, those in flight included."""
LINKS_MAX: Final = 4_000
RESPONSE_BYTES_MAX: Final = 128 << 20
"""A longer response ends its link."""


class Logins(Protocol):
    """The logins of this node on other nodes."""

    def login(self, *, is_controller: bool) -> "Login | None":
        """The login for a new link to a controller, or to another broker; None without SASL."""


def address_in(image: MetadataImage, node: NodeId, listener: str) -> Address | None:
    """The listener of that name of a broker that is not fenced."""
    broker = image.brokers.get(node)
    if broker is None or broker.is_fenced:
        return None
    endpoint = broker.endpoint(listener)
    return None if endpoint is None else (endpoint.host, endpoint.port)


class LinkTraffic:
    """The traffic of the links of one purpose, in requests and bytes."""

    __slots__ = ("received_bytes", "requests", "responses", "sent_bytes")

    def __init__(self) -> None:
        self.requests = self.responses = self.sent_bytes = self.received_bytes = 0


class _Request(msgspec.Struct, eq=False):
    message: Message
    then: Answered
    deadline: Micros
    version_max: int | None


class _Link:
    """One connection. `due_us` is not after the first deadline of its requests; None without a request."""

    __slots__ = ("connection", "due_us", "id", "waiting")

    def __init__(self, link: LinkId, connection: "Connection") -> None:
        self.id = link
        self.connection = connection
        self.waiting: deque[_Request] = deque()
        self.due_us: Micros | None = None


class Links:
    """Invariants: the `then` of each request is called exactly once, in a call of `deliver` and never
    within `ask`, unless the broker stops before; at most one link is open for an address and a purpose.
    """

    def __init__(self, effects: list[Effect], client_id: str, logins: Logins | None = None) -> None:
        """`effects` are those of the broker's turn; `logins` is None on a node without SASL."""
        self.deadline_us: Micros | None = None
        self.has_answers = False
        """Whether `deliver` has something to do."""
        self._effects = effects
        self._client_id = client_id
        self._by_id: dict[LinkId, _Link] = {}
        self._by_use: dict[tuple[Address, str], _Link] = {}
        self._numbers = count(1)
        self.traffic: defaultdict[str, LinkTraffic] = defaultdict(LinkTraffic)
        """By purpose."""
        self._buffers: ReceiveBuffers | None = None
        self._answers: list[tuple[Answered, Message | Loss]] = []
        self._logins = logins

    # -- requests of this broker

    def ask(
        self,
        address: Address,
        purpose: str,
        request: Message,
        then: Answered,
        now: Instant,
        *,
        timeout_us: int,
        version_max: int | None = None,
    ) -> None:
        """Send a request to an address; `then` takes its response, or the loss, within `timeout_us`.

        Opens the link if there is none. Requests of one link are sent and answered in order.
        """
        link = self._by_use.get((address, purpose))
        deadline = Micros(now.mono_us + timeout_us)
        if link is None:
            if len(self._by_id) >= LINKS_MAX:
                self._answer(then, Loss.CROWDED)
                return
            link = self._open(address, purpose, deadline)
        if link.waiting and len(link.waiting) + link.connection.in_flight >= WAITING_MAX:
            self._answer(then, Loss.CROWDED)
            return
        link.waiting.append(_Request(request, then, deadline, version_max))
        if link.due_us is None or deadline < link.due_us:
            self._due(link, deadline)
        self._send(link, now)

    def close(self, address: Address, purpose: str) -> None:
        """Close a link if it is open; its requests are lost (ENDED)."""
        link = self._by_use.get((address, purpose))
        if link is not None:
            self._effects.append(Disconnect(link.id, "closed by its owner", is_at_once=True))
            self._end(link, Loss.ENDED)

    def close_all(self) -> None:
        """Close every link and forget the requests: the broker stops."""
        for link in self._by_id.values():
            self._effects.append(Disconnect(link.id, "the broker stops", is_at_once=True))
        self._by_id.clear()
        self._by_use.clear()
        self._answers.clear()
        self.has_answers = False
        self.deadline_us = None

    def deliver(self, now: Instant) -> None:
        """Give out the answers that have come."""
        answers, self._answers, self.has_answers = self._answers, [], False
        for then, answer in answers:
            then(answer, now)

    # -- the outside

    def buffer(self, link_id: LinkId) -> memoryview | None:
        """Where the next bytes of a link go; None for a link that was closed."""
        link = self._by_id.get(link_id)
        return None if link is None else link.connection.buffer()

    def received(self, link_id: LinkId, size: int, now: Instant) -> None:
        """`size` bytes were put into `buffer(link_id)`. A link whose bytes are no response is closed."""
        link = self._by_id.get(link_id)
        if link is None:
            return
        connection, traffic = link.connection, self.traffic[link_id.purpose]
        traffic.received_bytes += size
        was_ready = connection.is_ready
        try:
            answers = connection.received(size)
        except SparklogError as error:
            reason = f"not a response: {error}" if isinstance(error, DecodeError) else str(error)
            self._effects.append(Disconnect(link_id, reason, is_at_once=True))
            self._end(link, Loss.UNUSABLE)
            return
        traffic.responses += len(answers)
        self._answered(answers, Loss.UNUSABLE)
        if not was_ready and connection.is_ready:
            connection.begin_lifetime(now.mono_us, link_id.number & 0xFF)
        if link.waiting or not was_ready:
            self._send(link, now)

    def lost(self, link_id: LinkId, loss: Loss) -> None:
        """A link could not be opened, or has ended."""
        link = self._by_id.get(link_id)
        if link is not None:
            # A broker that does not accept the login may close without an answer.
            is_refused = loss in (Loss.ENDED, Loss.RESET) and link.connection.is_authenticating
            self._end(link, Loss.UNUSABLE if is_refused else loss)

    def tick(self, now: Instant) -> None:
        """Give up the requests that got no response in time. One that was sent takes its link with it,
        because the responses of all later ones come after its own.
        """
        if self.deadline_us is None or now.mono_us < self.deadline_us:
            return
        for link in [one for one in self._by_id.values() if one.due_us is not None]:
            sent_us = link.connection.deadline()
            if sent_us is not None and sent_us <= now.mono_us:
                reason = "no response in time"
                self._effects.append(Disconnect(link.id, reason, is_at_once=True))
                self._end(link, Loss.TIMED_OUT)
                continue
            kept = [one for one in link.waiting if one.deadline > now.mono_us]
            for one in link.waiting:
                if one.deadline <= now.mono_us:
                    self._answer(one.then, Loss.TIMED_OUT)
            link.waiting = deque(kept)
            link.due_us = min(
                [one.deadline for one in kept] + ([] if sent_us is None else [sent_us]), default=None
            )
        self._set_deadline()

    # -- inside

    def _open(self, address: Address, purpose: str, deadline: Micros) -> _Link:
        # At its only use: a broker alone opens no link, and need not import a client.
        from sparklog.client.transport.connection import Connection
        from sparklog.client.transport.frames import ReceiveBuffers

        if self._buffers is None:
            self._buffers = ReceiveBuffers(kept_max=1)
        link_id = LinkId(address, purpose, next(self._numbers))
        connection = Connection(
            client_id=self._client_id,
            in_flight_max=IN_FLIGHT_MAX,
            buffers=self._buffers,
            reply_bytes_max=RESPONSE_BYTES_MAX,
            login=self._login_for(purpose),
        )
        link = self._by_id[link_id] = self._by_use[address, purpose] = _Link(link_id, connection)
        connection.opened(deadline)
        return link

    def _login_for(self, purpose: str) -> "Login | None":
        if self._logins is None or purpose == PROBE:
            return None  # a probe asks only for ApiVersions
        return self._logins.login(is_controller=purpose in TO_CONTROLLERS)

    def _send(self, link: _Link, now: Instant) -> None:
        """Send what there is room for in flight."""
        connection = link.connection
        if link.waiting and connection.is_due(now.mono_us):
            connection.reauthenticate(link.waiting[0].deadline)
        while link.waiting and connection.has_room:
            one = link.waiting.popleft()
            try:
                connection.request(one.message, one, one.deadline, version_max=one.version_max)
                self.traffic[link.id.purpose].requests += 1
            except (BrokerError, ValueError):
                self._answer(one.then, Loss.UNSUPPORTED)
        if output := connection.take_output():
            self.traffic[link.id.purpose].sent_bytes += sum(map(len, output))
            self._effects.append(SendTo(link.id, output))

    def _end(self, link: _Link, loss: Loss) -> None:
        """Forget a link; its requests have no response."""
        del self._by_id[link.id]
        del self._by_use[link.id.address, link.id.purpose]
        self._answered(link.connection.closed(ConnectionFailed(loss.value), Micros(0)), loss)
        for one in link.waiting:
            self._answer(one.then, loss)
        self._due(link, None)

    def _answered(self, answers: "list[Answer]", loss: Loss) -> None:
        for answer in answers:
            assert isinstance(answer.token, _Request)
            self._answers.append((answer.token.then, loss if answer.message is None else answer.message))
        self.has_answers = self.has_answers or bool(answers)

    def _answer(self, then: Answered, answer: Message | Loss) -> None:
        self._answers.append((then, answer))
        self.has_answers = True

    def _due(self, link: _Link, due_us: Micros | None) -> None:
        link.due_us = due_us
        self._set_deadline()

    def _set_deadline(self) -> None:
        due = [link.due_us for link in self._by_id.values() if link.due_us is not None]
        self.deadline_us = min(due, default=None)
