"""The connections of the resolver, a client of this cluster: on the reactor, and open only while it has
requests.

call_soon ─► turn ─► resolver.asks ─► by broker: look up, connect, handshake, send ─► answers ─►
resolver.replied ─► next requests
"""

import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from sparklog.client.cluster import Cluster
from sparklog.client.connection import Answer, Connection, State, broken
from sparklog.client.frames import ReceiveBuffers
from sparklog.errors import DecodeError, SparklogError
from sparklog.model import Micros, NodeId
from sparklog.wire.schema import Message
from sparklog_server.broker.resolver import ResolverRequest
from sparklog_server.daemon.jobs import Done, Job
from sparklog_server.daemon.reactor import READ, WRITE, Reactor
from sparklog_server.daemon.transport import PlainTransport, Transport

CLIENT_ID: Final = "sparklog-resolver"
CONNECT_US: Final = 10_000_000
ANSWER_US: Final = 30_000_000
IDLE_US: Final = 5_000_000
"""How often to check whether idle connections can be closed."""


class ResolverPort(Protocol):
    """The interface of the resolver to its environment."""

    cluster: Cluster

    @property
    def is_at_work(self) -> bool: ...
    def asks(self, now: Micros) -> list[ResolverRequest]: ...
    def replied(self, ask: ResolverRequest, message: Message, now: Micros) -> None: ...
    def failed(self, ask: ResolverRequest, now: Micros) -> None: ...
    def deadline(self) -> Micros | None: ...
    def forget(self, now: Micros) -> bool: ...


class _Link:
    """One broker's connection, the requests that wait until it is ready, and the unsent bytes."""

    __slots__ = ("connection", "deadline", "output", "socket", "transport", "waiting", "wants_write")

    def __init__(self, connection: Connection, deadline: Micros) -> None:
        # None until the broker's name is resolved to an address.
        self.socket: socket.socket | None = None
        self.transport: Transport | None = None
        self.connection = connection
        self.deadline = deadline  # until the handshake is done
        self.waiting: deque[ResolverRequest] = deque()
        self.output = bytearray()
        self.wants_write = True


class Resolving:
    """Sends the resolver's requests. Connections stay open for at most a minute after the last request."""

    def __init__(
        self,
        resolver: ResolverPort,
        reactor: Reactor,
        *,
        after: Callable[[float, Callable[[], None]], None],
        run: Callable[[Job, Done], None],
    ) -> None:
        """`after(seconds, call)` makes a call later, on the reactor's thread; `run` runs a job outside the
        event loop.
        """
        self._after = after
        self._run = run
        self._next_us: Micros | None = None  # the time of the next turn
        self._resolver = resolver
        self._reactor = reactor
        self._buffers = ReceiveBuffers(kept_max=1)
        self._links: dict[NodeId, _Link] = {}

    def call_soon(self, delay_us: int = 0) -> None:
        """Schedule a turn after `delay_us`, unless one is due earlier."""
        due = Micros(_now() + delay_us)
        if self._next_us is None or due < self._next_us:
            self._next_us = due
            self._after(delay_us / 1e6, self._due_turn)

    def _due_turn(self) -> None:
        if self._next_us is not None and _now() >= self._next_us:
            self._next_us = None
            self._turn()

    def _turn(self) -> None:
        """Send the resolver's requests, and schedule the next turn in case no response arrives."""
        if not self._resolver.is_at_work and not self._links:
            return
        now = _now()
        for link in list(self._links.items()):
            self._expire(*link, now)
        if self._resolver.forget(now):
            for node in list(self._links):
                self._drop(node)
            return
        for ask in self._resolver.asks(now):
            self._send(ask, now)
        times = [
            deadline
            for deadline in (self._resolver.deadline(), *(self._due(link) for link in self._links.values()))
            if deadline
        ]
        self.call_soon(max(1_000, min(times) - now) if times else IDLE_US)

    # -- one request -----------------------------------------------------------------------------------------

    def _send(self, ask: ResolverRequest, now: Micros) -> None:
        node = ask.node
        if node is None:
            node = next(iter(self._links), None)
            if node is None:
                node = next(
                    (
                        one
                        for one in self._resolver.cluster.candidates()
                        if self._resolver.cluster.may_connect(one, now)
                    ),
                    None,
                )
        link = None if node is None else self._links.get(node) or self._connect(node, now)
        if link is None:
            self._resolver.failed(ask, now)
            return
        link.waiting.append(ask)
        self._flush(link)

    def _connect(self, node: NodeId, now: Micros) -> _Link | None:
        cluster = self._resolver.cluster
        broker = cluster.brokers.get(node)
        if broker is None or not cluster.may_connect(node, now):
            return None
        connection = Connection(client_id=CLIENT_ID, in_flight_max=2, buffers=self._buffers)
        link = self._links[node] = _Link(connection, Micros(now + CONNECT_US))
        look_up = partial(socket.getaddrinfo, broker.host, broker.port, type=socket.SOCK_STREAM)
        # Outside the event loop: a name lookup may take seconds.
        self._run(look_up, partial(self._looked_up, node, link))
        return link

    def _looked_up(self, node: NodeId, link: _Link, found: object) -> None:
        """Take the result of a broker's name lookup: `found` has its addresses or the error."""
        if self._links.get(node) is not link:
            return
        try:
            if isinstance(found, Exception):
                raise OSError(f"its name cannot be looked up: {found}")
            family, _, _, _, address = cast(list[tuple[int, int, int, str, tuple[str, int]]], found)[0]
            link.socket = socket.socket(family, socket.SOCK_STREAM)
            link.transport = PlainTransport(link.socket)
            link.socket.setblocking(False)
            link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.socket.connect_ex(address)
            # A connection becomes writable when it is established, and when it fails.
            self._reactor.watch(
                link.socket.fileno(), lambda events: self._ready(node, link, events), READ | WRITE
            )
        except OSError as error:
            self._fail(node, broken(str(error)))
        self.call_soon()

    # -- sockets ---------------------------------------------------------------------------------------------

    def _ready(self, node: NodeId, link: _Link, events: int) -> None:
        if self._links.get(node) is not link:
            return
        assert link.socket is not None
        try:
            if link.connection.state is State.CONNECTING:
                code = link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, "cannot connect")
                link.connection.opened(link.deadline)
            if events & ~WRITE and link.connection.state is not State.CONNECTING:
                self._receive(node, link)
            if self._links.get(node) is link:
                self._flush(link)
        except (OSError, DecodeError) as error:
            self._fail(node, broken(str(error)))
        self.call_soon()

    def _receive(self, node: NodeId, link: _Link) -> None:
        assert link.transport is not None
        while True:
            buffer = link.connection.buffer()
            try:
                size = link.transport.receive_into(buffer)
            except BlockingIOError:
                return
            if size == 0:
                raise OSError("the broker closed the connection")
            for answer in link.connection.received(size):
                self._answered(answer)
            if link.connection.state is State.READY:
                self._resolver.cluster.connected(node)
            if size < len(buffer):
                return

    def _flush(self, link: _Link) -> None:
        now = _now()
        while link.waiting and link.connection.has_room:
            ask = link.waiting.popleft()
            try:
                link.connection.request(
                    ask.message, ask, Micros(now + ANSWER_US), version_max=ask.version_max
                )
            except (SparklogError, ValueError):
                self._resolver.failed(ask, now)
        for chunk in link.connection.take_output():
            assert isinstance(chunk, bytes | bytearray | memoryview), "a client sends no files"
            link.output += chunk
        if link.transport is None or link.connection.state is State.CONNECTING:
            return
        try:
            while link.output:
                del link.output[: link.transport.send(link.output)]
        except BlockingIOError:
            pass
        if bool(link.output) is not link.wants_write:
            link.wants_write = bool(link.output)
            self._reactor.change(link.transport.fileno(), READ | WRITE if link.wants_write else READ)

    def _answered(self, answer: Answer) -> None:
        assert isinstance(answer.token, ResolverRequest)
        if answer.message is None:
            self._resolver.failed(answer.token, _now())
        else:
            self._resolver.replied(answer.token, answer.message, _now())

    def _expire(self, node: NodeId, link: _Link, now: Micros) -> None:
        due = self._due(link)
        if due is not None and now >= due:
            self._fail(node, broken("no answer in time"))

    def _due(self, link: _Link) -> Micros | None:
        if link.connection.state in (State.CONNECTING, State.HANDSHAKE):
            return link.deadline
        return link.connection.deadline()

    def _fail(self, node: NodeId, error: SparklogError) -> None:
        now = _now()
        link = self._links[node]
        self._resolver.cluster.connect_failed(node, now)
        self._drop(node)
        for answer in link.connection.closed(error, now):
            self._answered(answer)
        for ask in link.waiting:
            self._resolver.failed(ask, now)

    def _drop(self, node: NodeId) -> None:
        link = self._links.pop(node)
        if link.transport is not None:
            self._reactor.forget(link.transport.fileno())
            link.transport.close()


def _now() -> Micros:
    return Micros(time.monotonic_ns() // 1000)
