"""Between sockets and broker: received bytes and the time go in, effects come out and are executed in order.

One turn is one call of the broker. Its replies are queued first and sent at its end, so that all replies of
one session leave in one system call; the broker learns of a connection that breaks while sending in the same
turn.
"""

import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from sparklog.effects import (
    Disconnect,
    Effect,
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
from sparklog.model import Instant, Micros, SessionId, Ticket
from sparklog_server.broker.access.client_quotas import ClientQuotas
from sparklog_server.broker.cluster.links import TO_CONTROLLERS
from sparklog_server.broker.dynamic_config import decompress_memory
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.daemon.connection import Connection
from sparklog_server.daemon.jobs import Done, Job, Jobs
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.daemon.syncer import Syncer
from sparklog_server.daemon.transport import PlainTransport, Transport
from sparklog_server.disk.door import Disk, StorageError
from sparklog_server.loggers import Loggers
from sparklog_server.security.principals import UNKNOWN, Identity

if TYPE_CHECKING:
    import ssl

    from sparklog_server.broker.cluster.broker_lifecycle import BrokerLifecycle
    from sparklog_server.broker.context import Context
    from sparklog_server.broker.sessions import Sessions
    from sparklog_server.daemon.certificates import Certificates
    from sparklog_server.daemon.newcomers import Unauthenticated
    from sparklog_server.daemon.peers import Peers
    from sparklog_server.histogram import Histogram


class Serving(Protocol):
    """The interface of the broker to its environment."""

    is_stopped: bool
    quotas: ClientQuotas
    mute_changes: dict[SessionId, bool]
    """The sessions that must no longer be read (True) or may be read again (False), since it was cleared."""

    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def is_stopping(self) -> bool: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def loggers(self) -> Loggers: ...
    @property
    def observed(self) -> "tuple[Context, Sessions, BrokerLifecycle]": ...
    def start(self, now: Instant) -> list[Effect]: ...
    def connected(
        self,
        session_id: SessionId,
        listener: str,
        peer_address: str,
        now: Instant,
        principal: str = ...,
        groups: tuple[str, ...] = ...,
    ) -> list[Effect]: ...
    def buffer(self, session_id: SessionId) -> memoryview: ...
    def receive(self, session_id: SessionId, size: int, now: Instant) -> list[Effect]: ...
    def unread(self, session_id: SessionId, size: int, now: Instant, *, has_read: bool) -> list[Effect]: ...
    def disconnected(self, session_id: SessionId, now: Instant) -> list[Effect]: ...
    def has_request_in_flight(self, session_id: SessionId) -> bool: ...
    def is_authenticated(self, session_id: SessionId) -> bool: ...
    def sent(self, session_id: SessionId, duration_us: int) -> None: ...
    def held_up(self, session_id: SessionId) -> None: ...
    def link_buffer(self, link: LinkId) -> memoryview | None: ...
    def link_received(self, link: LinkId, size: int, now: Instant) -> list[Effect]: ...
    def link_lost(self, link: LinkId, loss: Loss, now: Instant) -> list[Effect]: ...
    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Effect]: ...
    def unreadable(self, file: Sliceable, error: StorageError, now: Instant) -> list[Effect]: ...
    def tick(self, now: Instant) -> list[Effect]: ...
    def deadline(self) -> Micros | None: ...
    def stop(self, now: Instant) -> list[Effect]: ...


ALONE_TURN_BYTES: Final = 1 << 20
SHARED_TURN_BYTES: Final = 128 << 10
"""About 50 µs of copying: the time that a small request may wait for a large reply of another session."""
SHARED_FOR_US: Final = 20_000


_instant: Callable[[tuple[int, int]], Instant] = partial(tuple.__new__, Instant)
"""Without a call of a Python function: every turn reads the clock."""


class Halted(Exception):
    """The broker stopped because continuing could damage data."""


def read_clock() -> Instant:
    """The current time of both clocks."""
    return _instant((time.monotonic_ns() // 1000, time.time_ns() // 1_000_000))


class Pump:
    """Drives one broker. Invariants: every connection accepted is `connected` once and `disconnected`
    once; a session's replies leave in the order given; the broker is never entered while it runs.
    """

    def __init__(
        self,
        broker: Serving,
        disk: Disk,
        reactor: Reactor,
        trace: Callable[..., None],
        *,
        unsent_bytes_max: int,
    ) -> None:
        self.unsent_bytes_max = unsent_bytes_max
        self.turn_bytes = ALONE_TURN_BYTES
        self._heard: Connection | None = None  # the connection that sent bytes last
        self._shared_until_us = 0
        self.connections: dict[SessionId, Connection] = {}
        self.counts: Counter[str] = Counter()  # of connections by listener
        self.begun: Counter[str] = Counter()  # since the start
        self._broker = broker
        self._reactor = reactor
        self._trace = trace
        self._jobs = Jobs(reactor.post, memory_max=decompress_memory(broker.settings).jobs_bytes)
        # Threads of their own: no session waits for a background job, and none of these jobs is short.
        self._background = Jobs(reactor.post, is_background=True)
        self._reads = Jobs(reactor.post, is_background=True)
        # Each kind of handshakes has its own threads: many clients do not hold up the links of the cluster.
        self.client_handshakes = Jobs(reactor.post)
        self.node_handshakes = Jobs(reactor.post)
        self._link_handshakes = Jobs(reactor.post)
        self.unauthenticated: Unauthenticated | None = None
        self.certificates: Certificates | None = None
        self._syncer = Syncer(disk, reactor.post, self._synced)
        self._peers: Peers | None = None
        self._last_session = 0
        self._lost: list[SessionId] = []
        self._unread: dict[SessionId, tuple[int, bool]] = {}  # not yet reported to the broker
        self._is_in_turn = False

    # -- the broker's lifecycle and time

    def start(self) -> None:
        """Start the broker; its errors propagate."""
        now = read_clock()
        self._carry_out(self._broker.start(now), now)

    def stop(self) -> None:
        """Begin a clean stop of the broker; its `is_stopped` becomes True at the end."""
        now = read_clock()
        self._carry_out(self._broker.stop(now), now)

    def tick(self) -> float | None:
        """Tick the broker if its deadline has passed; returns the seconds until its next deadline."""
        deadline_us = self._broker.deadline()
        if deadline_us is None:
            return None
        now_us = time.monotonic_ns() // 1000
        if deadline_us <= now_us:
            now = read_clock()
            self._carry_out(self._broker.tick(now), now)
            deadline_us = self._broker.deadline()
            if deadline_us is None:
                return None
        return max(0, deadline_us - now_us) / 1e6

    # -- connections

    def accepted(self, connected: socket.socket, listener: str, peer: tuple[str, int]) -> None:
        """A connection without TLS was accepted; its socket is non-blocking."""
        self.established(PlainTransport(connected), listener, peer, UNKNOWN)

    def established(
        self, transport: Transport, listener: str, peer: tuple[str, int], identity: Identity
    ) -> None:
        """A connection is ready for requests, after its TLS handshake if it has one."""
        peer_host, peer_port = peer
        self._last_session += 1
        session = SessionId(self._last_session)
        now = read_clock()
        connection = self.connections[session] = Connection(
            session, transport, listener, peer_host, self._reactor, self
        )
        connection.active_us = now.mono_us
        self.counts[listener] += 1
        self.begun[listener] += 1
        address = f"{peer_host}:{peer_port}"
        self._carry_out(
            self._broker.connected(session, listener, address, now, identity.principal, identity.groups), now
        )
        self._trace("connection-opened", peer=address, listener=listener)
        if self.unauthenticated is not None and not self._broker.is_authenticated(session):
            self.unauthenticated.begin(connection)

    def readable(self, connection: Connection) -> None:
        """Receive once, into the broker's buffer, and have the broker process it."""
        try:
            size = connection.transport.receive_into(self._broker.buffer(connection.session))
        except BlockingIOError:
            return
        except OSError:
            connection.close()
            return
        except MemoryError:
            self._trace("out-of-memory", peer=connection.peer_host)
            connection.close()
            return
        if size == 0:
            connection.close()
            return
        self._reactor.received_bytes += size
        now = read_clock()
        connection.active_us = now.mono_us
        if connection is not self._heard:
            self._heard = connection
            self._shared_until_us = now.mono_us + SHARED_FOR_US
            self.turn_bytes = SHARED_TURN_BYTES
        elif self.turn_bytes != ALONE_TURN_BYTES and now.mono_us >= self._shared_until_us:
            self.turn_bytes = ALONE_TURN_BYTES
        self._carry_out(self._broker.receive(connection.session, size, now), now)

    def lost(self, connection: Connection, failure: str) -> None:
        """A connection has closed: the broker is called at the end of this turn, or in a turn of its own."""
        if failure:
            self._trace("reply-aborted", peer=connection.peer_host, reason=failure)
        else:
            self._trace("connection-ended", peer=connection.peer_host, listener=connection.listener)
        del self.connections[connection.session]
        self.counts[connection.listener] -= 1
        if connection is self._heard:
            self._heard = None
        self._lost.append(connection.session)
        if not self._is_in_turn:
            self._carry_out([], read_clock())

    def taken(self, connection: Connection) -> None:
        """The peer has read some of the bytes queued for it."""
        connection.active_us = time.monotonic_ns() // 1000

    def sent(self, connection: Connection) -> None:
        """The peer has taken the chunks that the socket did not take at once."""
        duration_us = time.monotonic_ns() // 1000 - connection.sends_from_us
        connection.sends_from_us = 0
        self._broker.sent(connection.session, duration_us)

    def unread(self, connection: Connection, size: int, *, has_read: bool) -> None:
        """`size` bytes of memory wait for the peer to read: the broker is called at the end of this turn, or
        in a turn of its own.
        """
        _, had_read = self._unread.get(connection.session, (0, False))
        self._unread[connection.session] = size, has_read or had_read
        if not self._is_in_turn:
            self._carry_out([], read_clock())

    def count_of(self, listener: str) -> int:
        """The number of connections of this listener."""
        return self.counts[listener]

    @property
    def pools(self) -> dict[str, Jobs]:
        """The threads of jobs by name."""
        return {
            "requests": self._jobs,
            "background": self._background,
            "reads": self._reads,
            "client-handshakes": self.client_handshakes,
            "node-handshakes": self.node_handshakes,
            "link-handshakes": self._link_handshakes,
        }

    @property
    def sync_times(self) -> "dict[str, Histogram]":
        """The durations of syncs by log directory, if they are measured."""
        return self._syncer.times or {}

    def measure(self) -> None:
        """Measure the syncs that begin from now on."""
        self._syncer.times = {}

    def turn(self) -> None:
        """A turn of the broker for work that was given to it from outside."""
        now = read_clock()
        self._carry_out(self._broker.tick(now), now)

    def run(self, job: Job, done: Done) -> None:
        """Run a job of the daemon itself that may block for long, such as a name lookup."""
        self._background.run(job, done)

    def unreadable(self, file: Sliceable, error: StorageError) -> None:
        """A file of a slice cannot be read: the broker is called in a turn of its own."""
        self._reactor.post(partial(self._unreadable, file, error))

    def _unreadable(self, file: Sliceable, error: StorageError) -> None:
        now = read_clock()
        self._carry_out(self._broker.unreadable(file, error, now), now)

    def read_ahead(self, job: Callable[[], None], done: Done) -> None:
        """Run a job that reads the pages of a slice into the page cache, for a connection."""
        self._reads.run(job, done)

    def close_idle(self, idle_us_max: int) -> None:
        """Close connections that have neither sent a byte nor read a queued one for `idle_us_max`."""
        oldest_us = read_clock().mono_us - idle_us_max
        for connection in list(self.connections.values()):
            if connection.active_us < oldest_us:
                connection.close()

    # -- links

    def link_buffer(self, link: LinkId) -> memoryview | None:
        """See `daemon.peers.Owner`."""
        return self._broker.link_buffer(link)

    def link_received(self, link: LinkId, size: int) -> None:
        """See `daemon.peers.Owner`."""
        now = read_clock()
        self._carry_out(self._broker.link_received(link, size, now), now)

    def link_lost(self, link: LinkId, loss: Loss) -> None:
        """See `daemon.peers.Owner`."""
        now = read_clock()
        self._carry_out(self._broker.link_lost(link, loss, now), now)

    def shake_hands(self, job: Job, done: Done) -> None:
        """See `daemon.peers.Owner`."""
        self._link_handshakes.run(job, done)

    def secure(self, link: LinkId) -> "ssl.SSLContext | None":
        """See `daemon.peers.Owner`."""
        if self.certificates is None:
            return None
        settings = self._broker.settings
        if link.purpose in TO_CONTROLLERS:
            return self.certificates.of_links(settings.controller_listener_names[0])
        return self.certificates.of_links(settings.inter_broker_listener_name)

    def trace(self, event: str, **fields: object) -> None:
        """See `daemon.peers.Owner`."""
        self._trace(event, **fields)

    def _links(self) -> "Peers":
        if self._peers is None:
            # At its only use: a broker alone opens no link.
            from sparklog_server.daemon.peers import Peers

            self._peers = Peers(self, self._reactor)
        return self._peers

    # -- effects

    def _finished(self, ticket: Ticket, result: object) -> None:
        now = read_clock()
        self._carry_out(self._broker.finished(ticket, result, now), now)

    def _synced(self, ticket: Ticket, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, StorageError):
            raise error
        self._finished(ticket, error)

    def _carry_out(self, effects: list[Effect], now: Instant) -> None:
        self._is_in_turn = True
        replied: list[Connection] = []
        while True:
            for effect in effects:
                if type(effect) is Reply:
                    connection = self.connections.get(effect.session)
                    if connection is not None:
                        connection.queue(effect.chunks)
                        if not replied or replied[-1] is not connection:
                            replied.append(connection)
                    else:
                        release(effect.chunks)
                else:
                    self._carry_out_rare(effect)
            for connection in replied:
                if connection.flush() and not connection.sends_from_us:
                    connection.sends_from_us = now.mono_us
                    self._broker.held_up(connection.session)
            replied.clear()
            if changes := self._broker.mute_changes:
                for session, is_muted in changes.items():
                    if session in self.connections:
                        self.connections[session].mute(is_muted=is_muted)
                changes.clear()
            if self._unread:
                session, (size, has_read) = self._unread.popitem()
                effects = self._broker.unread(session, size, now, has_read=has_read)
            elif self._lost:
                effects = self._broker.disconnected(self._lost.pop(), now)
            else:
                break
        self._is_in_turn = False

    def _carry_out_rare(self, effect: Effect) -> None:
        match effect:
            case SendTo(link, chunks):
                (self._peers or self._links()).send(link, chunks)
            case Sync():
                self._syncer.sync(effect)
                self._reactor.sleep_next()
            case Run(job, ticket, in_steps, is_background, session, memory_bytes):
                done = partial(self._finished, ticket)
                jobs = self._background if is_background else self._jobs
                jobs.run(job, done, in_steps=in_steps, session=session, memory_bytes=memory_bytes)
            case Disconnect(LinkId() as link):
                self._links().close(link)
            case Disconnect(session, _, is_at_once):
                if session in self.connections:
                    if is_at_once:
                        self.connections[session].close()
                    else:
                        self.connections[session].close_when_sent()
            case Halt(reason):
                raise Halted(reason)
            case _:
                raise AssertionError(f"no way to carry out {effect!r}")
