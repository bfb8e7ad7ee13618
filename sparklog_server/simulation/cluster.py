"""Nodes without a machine: a real `Broker` on a disk in memory, in virtual time, killed and started at will.

Events replace the daemon's sockets and threads: a sync or a job returns after a delay drawn from the seed, so
a
crash may fall between any two effects. The client's connection collects replies, whole frames in order.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from sparklog.effects import (
    Chunk,
    Disconnect,
    Effect,
    FileSlice,
    Halt,
    LinkId,
    Loss,
    Reply,
    Run,
    SendTo,
    Sliceable,
    Sync,
    release,
)
from sparklog.errors import without_frames
from sparklog.model import SessionId, Ticket
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.schema import Message
from sparklog_server.broker.access.authorization import Allow
from sparklog_server.broker.broker import Broker
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.disk.door import StorageError
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.disk import SimulatedDisk

_SYNC_DELAY_US = (100, 5_000)
_JOB_DELAY_US = (50, 20_000)
_LINK_DELAY_US = 200
"""The same for all bytes between two nodes, so that they arrive in order."""


class SimulatedConnection:
    """A client's connection: requests in, decoded replies out, in order. `is_closed` once either side has
    closed it.

    With `expects_anything` set, replies are not decoded: the requests were invalid.
    """

    def __init__(self, node: "SimulatedNode", session_id: SessionId, client_id: str) -> None:
        self._node = node
        self._client_id = client_id
        self.session_id = session_id
        self._correlation_id = 0
        self._expected: list[tuple[int, type[Message], int]] = []
        self.replies: list[Message] = []
        self.heard: Callable[[], None] = lambda: None
        """Called for each reply."""
        self.expects_anything = False
        self.is_closed = False

    @property
    def owed(self) -> list[str]:
        """The response classes of the outstanding requests."""
        return [reply.__name__ for _, reply, _ in self._expected]

    def send(self, request: Message, version: int, reply: type[Message] | None) -> None:
        """Send a request; `reply` is the class of its response, None if it has none."""
        self.send_together([request], version, reply)

    def send_together(self, requests: Sequence[Message], version: int, reply: type[Message] | None) -> None:
        """Send requests of one kind in one piece."""
        frames: list[Chunk] = []
        for request in requests:
            self._correlation_id += 1
            if reply is not None:
                self._expected.append((self._correlation_id, reply, version))
            frames += encode_request(request, version, self._correlation_id, self._client_id)
        self.send_bytes(b"".join(map(_bytes_of, frames)))

    def send_bytes(self, data: bytes) -> None:
        """Send arbitrary bytes."""
        assert not self.is_closed
        self._node.received(self.session_id, data)

    def answered(self, frame: bytes) -> None:
        """A whole reply frame arrived, length prefix included."""
        if self.expects_anything:
            return
        correlation_id, reply, version = self._expected.pop(0)
        found, message = decode_reply(reply, version, frame[4:])
        assert found == correlation_id, (found, correlation_id)
        self.replies.append(message)
        self.heard()


class SimulatedLink:
    """A connection that one node has opened to another; at the other node it is the connection of a session.

    Bytes arrive in order. `World` has a network with faults; this one has none but the end of a process.
    """

    def __init__(self, source: "SimulatedNode", link: LinkId) -> None:
        self._source = source
        self.link = link
        self.session_id: SessionId | None = None  # once it is accepted
        self.target: SimulatedNode | None = None
        self.unsent = b""
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether either side has closed it, or its process has ended."""
        return self._is_closed

    @is_closed.setter
    def is_closed(self, is_closed: bool) -> None:
        if is_closed and not self._is_closed:
            self._is_closed = True
            self._source.link_ended(self, Loss.ENDED)

    def answered(self, frame: bytes) -> None:
        """A whole response frame leaves the other node."""
        self._source.link_answered(self, frame)

    def close(self) -> None:
        """The source closes it, and is told nothing more."""
        self._is_closed = True


class SimulatedNode:
    """One broker process: `start`, `kill` (with a crash of the disk, as at a power cut), `stop`, and `pause`
    until `resume`.

    It runs `broker_class`: a class with a planted fault tests whether the checkers find that fault.
    """

    def __init__(
        self,
        clock: VirtualClock,
        random: Random,
        disk: SimulatedDisk,
        settings: BrokerSettings,
        *,
        allow: Allow | None = None,
        broker_class: type[Broker] = Broker,
        network: "list[SimulatedNode] | None" = None,
    ) -> None:
        """`network` has the nodes that reach each other by the addresses of their listeners; the node adds
        itself.
        """
        self._network = [] if network is None else network
        self._network.append(self)
        self._links: dict[LinkId, SimulatedLink] = {}
        self._allow = allow
        self._broker_class = broker_class
        self.work_clock: Callable[[], int] = lambda: 0  # nanoseconds; a test sets the duration of requests
        self.job_delay_us = _JOB_DELAY_US  # the shortest and the longest
        self._clock = clock
        self._random = random
        self.disk = disk
        self._settings = settings
        self._life = 0
        self._last_session = 0
        self._connections: dict[SessionId, SimulatedConnection | SimulatedLink] = {}
        self._unread: dict[SessionId, bytes] = {}  # sent by clients whose sessions are muted
        self._muted: set[SessionId] = set()
        self._paused: list[Callable[[], None]] | None = None  # events since the process was paused
        self.broker: Broker | None = None
        self.trace: list[str] = []
        self.syncs = 0  # started, in all processes
        self.halted: str | None = None

    # -- the process

    def start(self) -> None:
        """Start the process and let it run until it is ready."""
        assert self.broker is None
        self._life += 1
        self.broker = self._broker_class.open(
            self._settings,
            self.disk,
            entropy=self._random.randbytes,
            trace=self._note,
            now=self._clock.now,
            allow=self._allow,
            work_clock=lambda: self.work_clock(),
        )
        self._carry_out(self.broker.start(self._clock.now))

    def kill(self, *, is_power_cut: bool = True) -> None:
        """Cut the power: the process ends, and the disk keeps synced bytes and some of the rest; or kill only
        the process.
        """
        self._end()
        if is_power_cut:
            self.disk.crash(self._random)
        else:
            self.disk.restart()

    def stop(self) -> None:
        """Stop cleanly, and wait for the end."""
        broker = self.running
        self.begin_stop()
        while not broker.is_stopped:
            self._clock.run(until_us=self._clock.now.mono_us + 10_000)
        self._end()

    def begin_stop(self) -> None:
        """Request a clean stop, which takes virtual time."""
        self._carry_out(self.running.stop(self._clock.now))

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: it receives no event until `resume`."""
        if self._paused is None:
            self._paused = []

    def resume(self) -> None:
        """Deliver the events since the pause at once."""
        missed, self._paused = self._paused, None
        for event in missed or ():
            event()

    def _seen(self, event: Callable[[], None]) -> None:
        """Deliver an event to the process, now or when it is resumed."""
        if self._paused is None:
            event()
        else:
            life = self._life
            self._paused.append(lambda: event() if life == self._life else None)

    def _end(self) -> None:
        self._life += 1
        self._paused = None
        self.broker = None
        for connection in self._connections.values():
            connection.is_closed = True
        self._connections.clear()
        for link in list(self._links.values()):
            self._close_link(link)
        self._links.clear()
        self._unread.clear()
        self._muted.clear()

    @property
    def running(self) -> Broker:
        """The broker, which must be running."""
        assert self.broker is not None
        return self.broker

    # -- connections

    def connect(
        self, client_id: str = "simulation", listener: str | None = None, host: str = "client"
    ) -> SimulatedConnection:
        """A new connection from `host` to that listener, or to the first one."""
        self._last_session += 1
        session_id = SessionId(self._last_session)
        connection = SimulatedConnection(self, session_id, client_id)
        self._connections[session_id] = connection
        name = self._settings.listeners[0].name if listener is None else listener
        self._carry_out(self.running.connected(session_id, name, f"{host}:{session_id}", self._clock.now))
        return connection

    def disconnect(self, connection: SimulatedConnection) -> None:
        """The client closes the connection."""
        if not connection.is_closed:
            connection.is_closed = True
            del self._connections[connection.session_id]
            self._seen(partial(self._disconnected, connection.session_id))

    def received(self, session_id: SessionId, data: bytes) -> None:
        """Bytes from a client: the broker gets them in pieces as its buffer takes them, and not while the
        session is muted.
        """
        self._unread[session_id] = self._unread.get(session_id, b"") + data
        self._seen(partial(self._read_on, session_id))

    def _read_on(self, session_id: SessionId) -> None:
        while (
            session_id in self._connections
            and session_id not in self._muted
            and (data := self._unread.pop(session_id, b""))
        ):
            room = self.running.buffer(session_id)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            if size < len(data):
                self._unread[session_id] = data[size:]
            self._carry_out(self.running.receive(session_id, size, self._clock.now))

    # -- effects

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(session, chunks):
                    connection = self._connections.get(session)
                    if connection is not None:
                        self._reply(connection, chunks)
                    release(chunks)
                case Sync(ticket, files, _):
                    self.syncs += 1
                    self._later(_SYNC_DELAY_US, partial(self._finish, ticket, partial(self.disk.sync, files)))
                case Run(_, ticket):
                    self._later(self.job_delay_us, partial(self._finish, ticket, effect.work))
                case Disconnect(session, _, _) if isinstance(session, LinkId):
                    link = self._links.pop(session, None)
                    if link is not None:
                        self._close_link(link)
                case Disconnect(session, _, _):
                    assert not isinstance(session, LinkId)
                    connection = self._connections.pop(session, None)
                    if connection is not None:
                        connection.is_closed = True
                        self._later((0, 0), partial(self._disconnected, session))
                case Halt(reason):
                    self.halted = reason
                    self._end()
                    return
                case SendTo(link_id, chunks):
                    self._send_to(link_id, b"".join(map(_bytes_of, chunks)))
        for session, is_muted in self.running.mute_changes.items():
            if is_muted:
                self._muted.add(session)
            else:
                self._muted.discard(session)
                if session in self._unread:
                    life = self._life
                    self._clock.after(0, partial(self._read_on_in, life, session))
        self.running.mute_changes.clear()
        forgotten = self.running.forgotten(self._clock.now)
        assert not forgotten, f"the agenda has no note of {forgotten}"
        self._set_timer()

    def _read_on_in(self, life: int, session: SessionId) -> None:
        if life == self._life:
            self._seen(partial(self._read_on, session))

    def _reply(self, connection: SimulatedConnection | SimulatedLink, chunks: Sequence[Chunk]) -> None:
        """Send a reply; if the disk fails to return all of it, the connection is closed, since the length was
        sent already.
        """
        frame = bytearray()
        for chunk in chunks:
            try:
                frame += _bytes_of(chunk)
            except StorageError as error:
                session_id = connection.session_id
                assert isinstance(chunk, FileSlice)
                assert session_id is not None
                connection.is_closed = True
                del self._connections[session_id]
                self._later((0, 0), partial(self._unreadable, session_id, chunk.file, error))
                return
        connection.answered(bytes(frame))

    # -- links

    def _send_to(self, link_id: LinkId, data: bytes) -> None:
        link = self._links.get(link_id)
        if link is None:
            link = self._links[link_id] = SimulatedLink(self, link_id)
            self._later((_LINK_DELAY_US, _LINK_DELAY_US), partial(self._connect, link))
        link.unsent += data
        self._later((_LINK_DELAY_US, _LINK_DELAY_US), partial(self._flush, link))

    def _connect(self, link: SimulatedLink) -> None:
        """The first packet has arrived at the address."""
        if link.is_closed:
            return
        for node in self._network:
            for listener in node._settings.listeners:
                if (listener.host, listener.port) == link.link.address and node.broker is not None:
                    link.target = node
                    node._accept(link, listener.name)
                    return
        self.link_ended(link, Loss.REFUSED)

    def _accept(self, link: SimulatedLink, listener: str) -> None:
        self._last_session += 1
        session_id = link.session_id = SessionId(self._last_session)
        self._connections[session_id] = link
        self._seen(partial(self._accepted, session_id, listener))

    def _accepted(self, session_id: SessionId, listener: str) -> None:
        self._carry_out(self.running.connected(session_id, listener, f"link:{session_id}", self._clock.now))

    def _flush(self, link: SimulatedLink) -> None:
        """Bytes have arrived at the other node."""
        if link.is_closed or link.target is None or link.session_id is None or not link.unsent:
            return
        data, link.unsent = link.unsent, b""
        link.target.received(link.session_id, data)

    def _close_link(self, link: SimulatedLink) -> None:
        link.close()
        target, session_id = link.target, link.session_id
        if target is not None and session_id is not None and session_id in target._connections:
            del target._connections[session_id]
            target._later(
                (_LINK_DELAY_US, _LINK_DELAY_US),
                partial(target._seen, partial(target._disconnected, session_id)),
            )

    def link_answered(self, link: SimulatedLink, frame: bytes) -> None:
        """A response frame is on its way to this node."""
        self._later((_LINK_DELAY_US, _LINK_DELAY_US), partial(self._link_received, link, frame))

    def _link_received(self, link: SimulatedLink, data: bytes) -> None:
        while data and self._links.get(link.link) is link:
            room = self.running.link_buffer(link.link)
            assert room is not None, f"{link.link} is open here and closed in the broker"
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self._carry_out(self.running.link_received(link.link, size, self._clock.now))

    def link_ended(self, link: SimulatedLink, loss: Loss) -> None:
        """The other side refuses a link, or has closed it."""
        link.close()
        self._later((_LINK_DELAY_US, _LINK_DELAY_US), partial(self._link_lost, link, loss))

    def _link_lost(self, link: SimulatedLink, loss: Loss) -> None:
        if self._links.get(link.link) is link:
            del self._links[link.link]
            self._carry_out(self.running.link_lost(link.link, loss, self._clock.now))

    def _unreadable(self, session: SessionId, file: Sliceable, error: StorageError) -> None:
        now = self._clock.now
        self._carry_out(self.running.disconnected(session, now) + self.running.unreadable(file, error, now))

    def _disconnected(self, session: SessionId) -> None:
        self._carry_out(self.running.disconnected(session, self._clock.now))

    def _finish(self, ticket: Ticket, work: Callable[[], object]) -> None:
        try:
            result = work()
        except (StorageError, MemoryError) as error:
            result = without_frames(error)
        self._carry_out(self.running.finished(ticket, result, self._clock.now))

    def _later(self, delay_us: tuple[int, int], event: Callable[[], None]) -> None:
        """Schedule `event` for this process; it is dropped if the process has ended by then."""
        life = self._life
        self._clock.after(
            self._random.randint(*delay_us), lambda: self._seen(event) if life == self._life else None
        )

    def _set_timer(self) -> None:
        deadline = self.running.deadline()
        if deadline is None:
            return
        life = self._life

        def ring() -> None:
            wanted = self.running.deadline()
            if wanted is not None and wanted <= self._clock.now.mono_us:
                self._carry_out(self.running.tick(self._clock.now))

        self._clock.after(
            max(0, deadline - self._clock.now.mono_us),
            lambda: self._seen(ring) if life == self._life else None,
        )

    def _note(self, event: str, **fields: object) -> None:
        self.trace.append(" ".join((event, *(f"{name}={value}" for name, value in fields.items()))))


def _bytes_of(chunk: Chunk) -> bytes:
    return chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk)
