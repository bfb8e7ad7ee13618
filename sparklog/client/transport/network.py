"""The blocking shell around the client's machines: streams, the clock and waiting; one thread at a time.

`Network` keeps one connection per broker and the metadata of the cluster. Callers `send` requests and
collect answers from `poll`; `call` does both. `poll` also sends Metadata requests. Streams never block:
a thread waits only in `poll` and in `wait`, which another thread ends by `wake`.
"""

import os
import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar

from sparklog.client.clock import entropy, now_us
from sparklog.client.cluster import NO_NODE, Broker, Cluster
from sparklog.client.failures import (
    FORKED,
    AuthenticationFailed,
    BrokerGone,
    ClientClosed,
    UnknownTopic,
    WrongProtocol,
    not_pickled,
)
from sparklog.client.logs import Reports
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.connection import Answer, Connection, State, broken
from sparklog.client.transport.frames import ReceiveBuffers
from sparklog.client.transport.stream import Address, Output, PlainStream, Stream
from sparklog.errors import (
    BrokerError,
    ConnectionFailed,
    DecodeError,
    ErrorCode,
    RequestTimeout,
    SparklogError,
)
from sparklog.model import Micros, NodeId
from sparklog.wire.messages.metadata import MetadataResponse
from sparklog.wire.schema import Message

R = TypeVar("R", bound=Message)

_MS: Final = 1000
_OPENING_US: Final = 1_000_000
"""A connection that takes longer to open does not keep back a request that any broker answers."""
_NEVER: Final = Micros(1 << 62)
_CONNECTING: Final = State.CONNECTING  # Reading an enum member through its class costs as much as two calls.


class Streams:
    """Opens streams. The context of TLS is built once; `ssl` is imported only for it."""

    def __init__(self, settings: ClientSettings) -> None:
        """Raises SettingsError if the key store or trust store cannot be read."""
        self._send_buffer = settings.send_buffer_bytes
        self._receive_buffer = settings.receive_buffer_bytes
        self._context = None
        if settings.security_protocol.endswith("SSL"):
            from sparklog.tls.contexts import client_context

            self._context = client_context(settings.tls)

    def open(self, address: Address, host: str) -> Stream:
        """Begin to connect to a server, whose certificate must be for `host`; raises OSError."""
        if self._context is None:
            return PlainStream(address, send_buffer=self._send_buffer, receive_buffer=self._receive_buffer)
        from sparklog.client.transport.tls_stream import TlsStream

        return TlsStream(
            address,
            self._context,
            host,
            send_buffer=self._send_buffer,
            receive_buffer=self._receive_buffer,
        )


Resolved = list[Any] | OSError
"""The result of `socket.getaddrinfo`, or why a name has none."""
Resolve = Callable[[str, int, Callable[[Resolved], None]], None]
"""(host, port, done) looks up a name and calls `done`."""


def resolve(host: str, port: int, done: Callable[[Resolved], None]) -> None:
    """Look up a name, and wait for the result."""
    try:
        done(socket.getaddrinfo(host.encode() if host.isascii() else host, port, type=socket.SOCK_STREAM))
    except OSError as error:
        done(error)
    except UnicodeError as error:  # a label of the name is empty or too long
        done(OSError(str(error)))


class Waker:
    """A pair of sockets, of which the selector watches one; its key has no data."""

    __slots__ = ("_in", "_out", "_selector")

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._in, self._out = socket.socketpair()
        self._in.setblocking(False)
        self._out.setblocking(False)
        selector.register(self._in, selectors.EVENT_READ, None)

    def wake(self) -> None:
        """End the wait, or the next one."""
        try:
            self._out.send(b"\0")
        except OSError:
            return  # full of wake-ups already, or closed

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        try:
            while self._in.recv(4096):
                pass
        except BlockingIOError:
            return

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Leave wake-ups for later."""
        self._selector.unregister(self._in)
        try:
            yield
        finally:
            self._selector.register(self._in, selectors.EVENT_READ, None)

    def close(self) -> None:
        """Close both sockets; the selector is closed before."""
        self._in.close()
        self._out.close()


@dataclass(slots=True, eq=False)
class Link:
    """One broker's stream, its machine, and the bytes that the stream has not accepted yet."""

    node: NodeId
    broker: Broker
    connection: Connection
    deadline: Micros  # until the handshake is done
    last_used: Micros
    addresses: list[Address] = field(default_factory=list)  # the remaining addresses
    stream: Stream | None = None
    output: Output = field(default_factory=Output)
    is_registered_for_write: bool = False

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"{self.broker.host}:{self.broker.port}"

    @property
    def is_opening(self) -> bool:
        """Whether the handshake, or the first authentication, is not done yet."""
        return self.connection.state in (State.CONNECTING, State.HANDSHAKE, State.AUTHENTICATING)


class Network:
    """Connections to the brokers of one cluster, for one thread at a time; only `wake` and `interrupt` may
    be called from another.
    """

    def __init__(
        self, settings: ClientSettings, *, can_be_woken: bool = False, in_flight_max: int | None = None
    ) -> None:
        self.settings = settings
        self.cluster = Cluster(settings, entropy)
        self._login = None
        if settings.security_protocol.startswith("SASL_"):
            from sparklog.client.sasl.token_endpoint import shell_login  # most clients need none

            self._login = shell_login(settings, entropy)
        self.refusal: SparklogError | None = None  # of a connection, not raised yet
        self.allow_auto_create = True
        self._in_flight_max = (
            settings.max_in_flight_requests_per_connection if in_flight_max is None else in_flight_max
        )
        self._buffers = ReceiveBuffers()
        self._selector = selectors.DefaultSelector()
        self._links: dict[NodeId, Link] = {}
        self._answers: list[Answer] = []
        self._polled = Micros(0)
        """The end of the last `poll`: the caller may have met a back-off that ended since."""
        self._last_error: SparklogError | None = None
        self._is_closed = False
        self.reports = Reports(settings.client_id)
        self._pid = os.getpid()
        self._streams = Streams(settings)
        self.resolve: Resolve = resolve  # a loop has one that does not wait
        self._waker = Waker(self._selector) if can_be_woken else None

    now = staticmethod(now_us)

    def fileno(self) -> int:
        """The descriptor of the selector, which is readable when `poll` has something to do."""
        return self._selector.fileno()  # those of epoll and kqueue have one

    # -- sending ---------------------------------------------------------------------------------------------

    def is_ready(self, node: NodeId) -> bool:
        """Whether `send` to that broker is possible now; starts a missing connection after its back-off."""
        link = self._links.get(node)
        if link is not None:
            return link.connection.has_room and not link.output
        now = now_us()
        if node in self.cluster.brokers and self.cluster.may_connect(node, now):
            self._connect(node, now)
        return False

    def is_connected(self, node: NodeId) -> bool:
        """Whether the connection is established, even if it has no room for one more request."""
        link = self._links.get(node)
        return link is not None and link.connection.state is State.READY

    def send(
        self,
        node: NodeId,
        message: Message,
        token: object,
        *,
        timeout_us: int | None = None,
        version_max: int | None = None,
        expects_reply: bool = True,
    ) -> None:
        """Send a request to a broker that is ready; `poll` returns its answer: the error of the connection
        if that broke since then, at another request. Raises UnsupportedByBroker.
        """
        link = self._links.get(node)
        if link is None or link.is_opening:
            if expects_reply:
                self._answers.append(Answer(token, None, self._last_error or broken("the connection broke")))
            return
        link.last_used = now = now_us()
        if link.connection.is_due(now):
            link.connection.reauthenticate(Micros(now + self.settings.request_timeout_ms * _MS))
        wait = self.settings.request_timeout_ms * _MS if timeout_us is None else timeout_us
        link.connection.request(
            message, token, Micros(now + wait), version_max=version_max, expects_reply=expects_reply
        )
        self._flush(link)

    def raise_refusal(self) -> None:
        """Raise the AuthenticationFailed or WrongProtocol of a connection since the last call."""
        if (refusal := self.refusal) is not None:
            self.refusal = None
            raise refusal

    @property
    def last_error(self) -> SparklogError | None:
        """The last error of a connection."""
        return self._last_error

    @property
    def trouble(self) -> SparklogError | None:
        """The last error of a connection, if no connection is established."""
        return None if any(map(self.is_connected, self._links)) else self._last_error

    def anyone(self) -> NodeId:
        """A broker that is ready; NO_NODE if none is, and then a connection is started.

        If several are, the one whose oldest request in flight is the youngest: a broker may hang.
        """
        ready = [link for link in self._links.values() if link.connection.has_room]
        if ready:
            return max(ready, key=lambda link: link.connection.deadline() or _NEVER).node
        now = now_us()
        if not any(link.is_opening and now < link.last_used + _OPENING_US for link in self._links.values()):
            for node in self.cluster.candidates():
                if node not in self._links and self.cluster.may_connect(node, now):
                    self._connect(node, now)
                    break
        return NO_NODE

    def call(
        self,
        message: Message,
        reply: type[R],
        *,
        node: NodeId | None = None,
        deadline: Micros,
        version_max: int | None = None,
    ) -> R:
        """Send to one broker (None: any) and wait for its reply; other answers stay for the next `poll`.

        Raises the failure of the request; BrokerGone if the broker is not in the cluster; ConnectionFailed
        with the last error of a connection, or RequestTimeout, if no broker is ready by `deadline`.
        """
        token = object()
        others = self.poll(now_us())  # brokers may have closed idle connections
        is_sent = False
        try:
            while True:
                self.raise_refusal()
                if not is_sent:
                    target = self.anyone() if node is None else node
                    if target != NO_NODE and self.is_ready(target):
                        wait = min(deadline - now_us(), self.settings.request_timeout_ms * _MS)
                        self.send(target, message, token, timeout_us=max(0, wait), version_max=version_max)
                        is_sent = True
                    elif now_us() >= deadline:
                        raise self.not_in_time("broker that answers")
                    elif self.cluster.has_left(target):
                        raise BrokerGone(f"broker {target} is not in the cluster any more")
                for answer in self.poll(deadline):
                    if answer.token is not token:
                        others.append(answer)
                    elif answer.error is not None:
                        raise answer.error
                    else:
                        assert isinstance(answer.message, reply)
                        return answer.message
        finally:
            self.put_back(others)

    # -- waiting ---------------------------------------------------------------------------------------------

    def poll(self, deadline: Micros) -> list[Answer]:
        """Wait for answers until `deadline`, which may be past; may return early without any."""
        self.check_open()
        now = now_us()
        self._ask_metadata(now)
        wait_us = 0 if deadline <= now else max(0, self.next_event(deadline, self._polled) - now)
        for key, events in self._select(wait_us / 1e6):
            if key.data is None:
                continue  # the wake-up ends the wait of this thread
            link: Link = key.data
            if link.stream is None:
                continue  # closed by an earlier event: its broker has left
            if link.connection.state is _CONNECTING:
                self._opening(link)
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(link)
            if events & selectors.EVENT_READ and link.stream is not None:
                self._readable(link)
        self._polled = now = now_us()
        self._expire(now)
        self.reports.looked(self._last_error, self.settings.bootstrap_servers, now)
        answers, self._answers = self._answers, []
        return answers

    def next_event(self, until: Micros, now: Micros) -> Micros:
        """The time at which the network has work without an event, `until` at the latest; `now` is the time
        at which the caller began to check which brokers are ready.
        """
        times: list[Micros] = [now if self._answers else until]
        metadata = self.cluster.deadline()
        connecting = False
        for link in self._links.values():
            if link.is_opening:
                times.append(link.deadline)
                if now < (patient := Micros(link.last_used + _OPENING_US)):
                    times.append(patient)
                    connecting = True
            in_flight = link.connection.deadline()
            if in_flight is not None:
                times.append(in_flight)
        if metadata is not None and not connecting:
            if any(link.connection.has_room for link in self._links.values()):
                times.append(metadata)
            else:  # another broker may be tried; if there is none, a reply makes room
                others = (node for node in self.cluster.brokers if node not in self._links)
                times += [max(metadata, self.cluster.reachable_from(node)) for node in others]
        times += [due for due in (self.cluster.next_reach(now), self.reports.deadline()) if due is not None]
        return min(times)

    def wait(self, until: Micros) -> None:
        """Wait until a socket is ready, or for a `wake`. Another thread may use the network meanwhile."""
        for key, _ in self._selector.select(max(0, until - now_us()) / 1e6):
            if key.data is None and self._waker is not None:
                self._waker.drain()

    def put_back(self, answers: list[Answer]) -> None:
        """Leave answers for the next `poll`."""
        self._answers = answers + self._answers

    def rest(self, wait_us: int) -> None:
        """Poll for that long; replies stay for the next `poll`."""
        until = Micros(now_us() + wait_us)
        others: list[Answer] = []
        while now_us() < until:
            others += self.poll(until)
        self.put_back(others)

    def wake(self) -> None:
        """End a `wait` in another thread, or the next one if none is under way."""
        assert self._waker is not None
        self._waker.wake()

    def interrupt(self) -> None:
        """Let `poll` raise ClientClosed, in the thread that waits there too."""
        self._is_closed = True
        self.wake()

    def close(self) -> None:
        """Close every connection; answers that were not collected are lost."""
        self._is_closed = True
        for link in self._links.values():
            if link.stream is not None:
                link.stream.close()
        self._links.clear()
        self._selector.close()  # unregisters them; an interrupt may have left one that is not registered
        if self._waker is not None:
            self._waker.close()

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that opened the connections."""
        return os.getpid() != self._pid

    def check_open(self) -> None:
        """Raise ClientClosed after `close`, and in a child process."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        self.check_process()

    def check_process(self) -> None:
        """Raise ClientClosed in a child process: it would take bytes away from its parent."""
        if self.is_forked:
            raise ClientClosed(FORKED)

    def __reduce__(self) -> NoReturn:
        raise not_pickled("client")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------------------

    def _select(self, timeout_s: float) -> list[tuple[selectors.SelectorKey, int]]:
        if not timeout_s or self._waker is None:
            return self._selector.select(timeout_s)
        with self._waker.deaf():  # wake-ups are left for `wait`: here they would end each sleep
            return self._selector.select(timeout_s)

    def not_in_time(self, what: str) -> SparklogError:
        """The error of a wait that has lasted too long."""
        if self._last_error is not None:
            return ConnectionFailed(f"no {what} in time; last trouble: {self._last_error}")
        return RequestTimeout(f"no {what} in time")

    def _ask_metadata(self, now: Micros) -> None:
        deadline = self.cluster.deadline()
        if deadline is None or now < deadline:
            return
        node = self.anyone()
        if node == NO_NODE:
            return
        request = self.cluster.request(now, allow_auto_create=self.allow_auto_create)
        if request is None:
            return
        try:
            self.send(node, request, _METADATA)
        except BrokerError as error:
            self._last_error = error
            self.cluster.failed(now)

    def _connect(self, node: NodeId, now: Micros) -> None:
        broker = self.cluster.brokers[node]
        self.reports.connecting(now, has_others=any(map(self.is_connected, self._links)))
        connection = Connection(
            client_id=self.settings.client_id,
            in_flight_max=self._in_flight_max,
            buffers=self._buffers,
            login=self._login,
        )
        link = Link(node, broker, connection, Micros(now + self.cluster.setup_timeout_us(node)), now)
        self._links[node] = link
        self.resolve(broker.host, broker.port, lambda found: self._resolved(link, found))

    def _resolved(self, link: Link, found: Resolved) -> None:
        if self._links.get(link.node) is not link:
            return  # given up, or closed, meanwhile
        if isinstance(found, OSError):
            self._fail(link, broken(f"cannot find {link.broker.host}: {found}"))
            return
        link.addresses = [(family, address) for family, _, _, _, address in found]
        self._try_next_address(link, broken(f"{link.broker.host} has no address"))

    def _try_next_address(self, link: Link, error: SparklogError) -> None:
        self._detach(link)
        while link.addresses:
            family, address = link.addresses.pop(0)
            try:
                stream = self._streams.open((family, address), link.broker.host)
            except OSError as problem:
                error = broken(f"{address[0]}:{address[1]}: {problem.strerror or problem}")
                continue
            link.stream = stream
            # A socket becomes writable when it is connected, and when the connection fails.
            self._selector.register(stream.fileno(), selectors.EVENT_WRITE, link)
            link.is_registered_for_write = True
            return
        self._fail(link, error)

    def _opening(self, link: Link) -> None:
        stream = link.stream
        assert stream is not None
        try:
            is_open = stream.handshake()
        except OSError as error:
            self._try_next_address(link, broken(f"{link.address}: {error.strerror or error}"))
            return
        if is_open:
            link.connection.opened(link.deadline)
        self._flush(link)

    def _flush(self, link: Link) -> None:
        """Send as much as the socket accepts, and watch for writability only if bytes are left."""
        for chunk in link.connection.take_output():
            link.output.add(chunk)
        stream = link.stream
        assert stream is not None
        try:
            link.output.send(stream)
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(link, broken(f"the connection broke: {error.strerror or error}"))
            return
        wants_write = bool(link.output) or stream.wants_write
        if wants_write != link.is_registered_for_write:
            link.is_registered_for_write = wants_write
            self._selector.modify(
                stream.fileno(), selectors.EVENT_READ | (selectors.EVENT_WRITE if wants_write else 0), link
            )

    def _readable(self, link: Link) -> None:
        stream, connection = link.stream, link.connection
        assert stream is not None
        try:
            while True:
                buffer = connection.buffer()
                size = stream.recv_into(buffer)
                if size == 0 and connection.state is State.READY and connection.in_flight == 0:
                    self.reports.closed(link.address, now_us())  # brokers close idle connections
                    self._drop(link)
                    return
                if size == 0:
                    self._fail(link, broken("the broker closed the connection"))
                    return
                was_ready = connection.state is State.READY
                for answer in connection.received(size):
                    self._answered(answer)
                if not was_ready:
                    self._flush(link)  # the handshake may continue
                    if connection.state is State.READY:
                        connection.begin_lifetime(now_us(), entropy(1)[0])
                        self.reports.connected(link.address, now_us())
                        self.cluster.connected(link.node)
                        self.cluster.features_received(connection.features, connection.features_epoch)
                if size < len(buffer):
                    return
        except BlockingIOError:
            return
        except AuthenticationFailed as error:
            self.refusal = error
            self._fail(link, error)
        except WrongProtocol as error:
            named = WrongProtocol(f"{link.address} is not a plain Kafka listener: {error}")
            if not any(map(self.is_connected, self._links)):
                self.refusal = named
            self._fail(link, named)
        except DecodeError as error:
            where = " (is this a plain-text Kafka listener?)" if connection.state is State.HANDSHAKE else ""
            self._fail(link, broken(f"the broker sent an invalid reply: {error}{where}"))
        except OSError as error:
            self._fail(link, broken(f"the connection broke: {error.strerror or error}"))

    def _answered(self, answer: Answer) -> None:
        if answer.token is not _METADATA:
            self._answers.append(answer)
        elif isinstance(answer.message, MetadataResponse):
            self.cluster.replied(answer.message, now_us())
            for link in list(self._links.values()):
                if link.is_opening and link.broker != self.cluster.brokers.get(link.node):
                    self._drop(link)  # the broker has another address now, or is gone
        else:
            self.cluster.failed(now_us())

    def _expire(self, now: Micros) -> None:
        for link in list(self._links.values()):
            connection = link.connection
            if link.is_opening:
                if now >= link.deadline:
                    self._fail(link, broken(f"no connection to {link.address} in time"))
                continue
            overdue = connection.deadline()
            if overdue is not None and now >= overdue:
                self._fail(link, broken("another request on the connection was not answered in time"))
            elif (
                connection.in_flight == 0
                and now - link.last_used > self.settings.connections_max_idle_ms * _MS
            ):
                self._drop(link)

    def _fail(self, link: Link, error: SparklogError) -> None:
        """Close a connection: its requests fail, and the next one is started after a back-off."""
        now = now_us()
        self._last_error = error
        self.reports.failed(link.address, error, now, was_ready=link.connection.state is State.READY)
        self._drop(link)
        self.cluster.connect_failed(link.node, now)
        for answer in link.connection.closed(error, now):
            self._answered(answer)

    def _drop(self, link: Link) -> None:
        self._detach(link)
        self._links.pop(link.node, None)

    def _detach(self, link: Link) -> None:
        if link.stream is not None:
            self._selector.unregister(link.stream.fileno())
            link.stream.close()
            link.stream, link.is_registered_for_write = None, False


_METADATA: Final = object()


def wait_for_topic(network: Network, topic: str, deadline: Micros, *, is_patient: bool = True) -> None:
    """Return when the partitions of a topic are known; raises UnknownTopic, BrokerError, or
    ConnectionFailed or RequestTimeout at `deadline`.

    A patient caller, whose topic may be created soon, repeats the request for an unknown topic.
    """
    network.cluster.want([topic])
    others: list[Answer] = []
    try:
        while topic not in network.cluster.topics:
            network.raise_refusal()
            is_late = now_us() >= deadline
            code = network.cluster.errors.get(topic)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and (is_late or not is_patient):
                raise UnknownTopic(f"there is no topic {topic!r}")
            if code is not None and (is_late or not code.is_retriable):
                raise BrokerError(code, f"topic {topic!r}")
            if is_late:
                raise network.not_in_time(f"metadata of topic {topic!r}")
            others += network.poll(deadline)
    finally:
        network.put_back(others)
