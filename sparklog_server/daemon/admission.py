"""Admission of connections: each is accepted, delayed, or closed.

    connects ─► no slot left ─────────────────► replaces one that has not authenticated, else the
            │                                   connection that has been idle longest
            │                                     └─► all have requests in flight: stays in the
            │                                         kernel's backlog
            └─► connection rate exceeded ───────► accepting pauses, then this connection is admitted first
            └─► rate of its address exceeded ───► held unread for the delay, then closed
            └─► limit of its address exceeded ──► closed

The number of slots is `max.connections`, or the number of descriptors available to connections. With several
listeners, client listeners leave `sparklog.inter.broker.connections.reserve` slots to the inter-broker
listener and to those of controllers, whose connections are never evicted.
"""

import errno
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from sparklog.model import Micros, Millis
from sparklog_server.config.listeners import Listener, joined
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.daemon.connection import Connection
from sparklog_server.daemon.linux import disable_pacing
from sparklog_server.daemon.pump import Pump, Serving, read_clock
from sparklog_server.daemon.reactor import Reactor

if TYPE_CHECKING:
    from sparklog_server.daemon.handshakes import Handshakes

ACCEPTED_PER_TURN: Final = 16
"""About a millisecond of work, during which requests of other connections wait."""
ACCEPT_AGAIN_S: Final = 0.1
LOGGED_EVERY_US: Final = 10_000_000
"""Connections that are displaced are logged at most this often."""
_RESERVE_SHARE: Final = 4
"""The inter-broker listener reserves at most one slot in so many."""
OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Admission:
    """The listening sockets of a process. Connections are accepted only between `begin` and `end`.

    One class, because an accept has one outcome, decided from all of these: accepted, delayed, refused, or
    handed to a handshake.
    """

    def __init__(
        self,
        sockets: Sequence[tuple[Listener, socket.socket]],
        settings: BrokerSettings,
        broker: Serving,
        pump: Pump,
        reactor: Reactor,
        *,
        connections_max: int,
        handshakes: "Mapping[str, Handshakes] | None" = None,
        after: Callable[[float, Callable[[], None]], None],
        trace: Callable[..., None],
    ) -> None:
        self._sockets = sockets
        self._listening: list[tuple[Listener, socket.socket]] = []
        self._protected = protected_listeners(settings)
        self._settings = settings
        self._broker = broker
        self._pump = pump
        self._reactor = reactor
        self._handshakes_of = {} if handshakes is None else handshakes  # by listener
        of_clients_first = sorted(self._handshakes_of, key=self._protected.__contains__)
        self._handshakes = list(dict.fromkeys(self._handshakes_of[name] for name in of_clients_first))
        self._after = after
        self._trace = trace
        self._is_refusing = False
        self._connections_max = connections_max
        self._idle = IdleConnections(
            self._displaceable, lambda one: broker.has_request_in_flight(one.session)
        )
        self._is_retrying = False
        self._is_full = False  # the event is logged, and connections have waited since
        self._displaced_logged_us = -LOGGED_EVERY_US
        self._is_ended = False
        self._throttled_count = 0  # accepted connections that are closed after the delay of their address
        self._full: list[tuple[Listener, socket.socket]] = []  # not watched, until there is a slot
        self._known = broker.settings

    def begin(self, sockets: Sequence[tuple[Listener, socket.socket]]) -> None:
        """Accept connections on these sockets too; they listen already."""
        self._listening += sockets
        for listener, bound in sockets:
            self._watch(listener, bound)

    def end(self) -> None:
        """Stop accepting connections and close the listening sockets."""
        self._is_ended = True
        self._accept_none()
        for handshakes in self._handshakes:
            handshakes.end()
        for _, bound in self._sockets:
            bound.close()

    def turned(self) -> None:
        """At the end of a turn, accept waiting connections if there are slots, and close connections in
        excess of a lowered `max.connections`.
        """
        settings = self._broker.settings
        if settings is not self._known:
            self._known = settings
            self._close_excess()
        if self._full and any(self._has_slot(listener) for listener, _ in self._full):
            self._watch_full()

    def _watch_full(self) -> None:
        full, self._full = self._full, []
        for listener, bound in full:
            self._watch(listener, bound)

    def _watch(self, listener: Listener, bound: socket.socket) -> None:
        self._reactor.watch(bound.fileno(), partial(self._accept, listener, bound))

    def _accept(self, listener: Listener, bound: socket.socket, _events: int) -> None:
        for accepted in range(ACCEPTED_PER_TURN):
            if not self._has_slot(listener):
                if accepted:
                    # The reactor reports whether another connection waits; only then is one closed for it.
                    return
                if not self._displace():
                    self._hold_back(listener, bound)
                    return
            try:
                connected, address = bound.accept()
            except BlockingIOError:
                self._is_full = False
                return
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    if self._displace():
                        return  # the reactor calls again
                    # The connection stays in the kernel's backlog; an immediate retry would only use CPU.
                    self._trace(
                        "cannot-accept", connections=len(self._pump.connections), reason=error.strerror
                    )
                    self._accept_none()
                    self._after(ACCEPT_AGAIN_S, self._accept_again)
                    return
                continue  # the peer closed before the connection was accepted
            if not self._knocked(connected, (address[0], address[1]), listener):
                return

    def _hold_back(self, listener: Listener, bound: socket.socket) -> None:
        self._reactor.forget(bound.fileno())
        if not self._is_full:
            reason = "no connection is idle: the next one waits"
            self._trace(
                "connections-full",
                listener=listener.name,
                connections=len(self._pump.connections),
                reason=reason,
            )
        self._is_full = True
        self._full.append((listener, bound))
        if not self._is_retrying:
            self._is_retrying = True
            self._after(ACCEPT_AGAIN_S, self._retry)

    def _retry(self) -> None:
        self._is_retrying = False
        self._watch_full()

    def _has_slot(self, listener: Listener) -> bool:
        occupied = self._count
        slots = self._slots
        if self._protected and listener.name not in self._protected:
            own = sum(map(self._pump.count_of, self._protected))
            reserve = self._settings.connections.sparklog_inter_broker_connections_reserve
            slots -= max(0, min(reserve, slots // _RESERVE_SHARE) - own)
        return occupied < slots

    @property
    def _count(self) -> int:
        """Accepted connections."""
        return len(self._pump.connections) + self._throttled_count + sum(map(len, self._handshakes))

    @property
    def _slots(self) -> int:
        return min(self._broker.settings.connections.max_connections, self._connections_max)

    def _displaceable(self) -> list[Connection]:
        return [one for one in self._pump.connections.values() if one.listener not in self._protected]

    def _displace(self) -> bool:
        """Close the connection that has been idle longest, before it one whose TLS handshake or
        authentication is not done; returns False if there is none.
        """
        if self._drop_newcomer():
            return True
        if any(map(len, self._handshakes)):
            return False  # each has a job, and is done or dropped soon: no known client goes first
        now_us = read_clock().mono_us
        connection = self._idle.longest(now_us)
        if connection is None:
            return False
        if now_us - self._displaced_logged_us >= LOGGED_EVERY_US:
            self._displaced_logged_us = now_us
            reason = f"idle longest of {len(self._pump.connections)} connections"
            self._trace(
                "connection-displaced", peer=connection.peer_host, listener=connection.listener, reason=reason
            )
        connection.close()
        return True

    def _drop_newcomer(self) -> bool:
        unauthenticated = self._pump.unauthenticated
        return any(handshakes.drop_oldest() for handshakes in self._handshakes) or (
            unauthenticated is not None and unauthenticated.drop_oldest()
        )

    def _close_excess(self) -> None:
        """Close the connections in excess of a lowered `max.connections`: those that have not authenticated,
        then the longest idle.
        """
        unauthenticated = self._pump.unauthenticated
        while (
            unauthenticated is not None
            and len(self._pump.connections) > self._slots
            and unauthenticated.drop_oldest()
        ):
            pass
        excess = len(self._pump.connections) - self._slots
        if excess > 0:
            closable = self._displaceable()
            closable.sort(key=lambda one: one.active_us)
            for connection in closable[:excess]:
                self._trace(
                    "connection-displaced",
                    peer=connection.peer_host,
                    listener=connection.listener,
                    reason="max.connections",
                )
                connection.close()

    def _accept_none(self) -> None:
        self._full.clear()
        for _, bound in self._listening:
            self._reactor.forget(bound.fileno())

    def _accept_again(self) -> None:
        if not self._is_ended:
            for listener, bound in self._listening:
                self._watch(listener, bound)

    def _knocked(self, connected: socket.socket, peer: tuple[str, int], listener: Listener) -> bool:
        """Admit or delay a connection; returns False if accepting must stop until the delay is over."""
        settings = self._broker.settings
        now_ms = Millis(time.monotonic_ns() // 1_000_000)
        throttled = self._broker.quotas.connections.connecting(
            peer[0], settings.connections.max_connection_creation_rate, now_ms
        )
        if throttled.closed_after_ms:
            if self._count >= self._slots:
                connected.close()
            else:
                # Held unread for the delay, as in Kafka: a client that is closed at once reconnects at once.
                self._throttled_count += 1
                self._after(throttled.closed_after_ms / 1000, lambda: self._drop_throttled(connected))
        elif throttled.admitted_after_ms:
            self._accept_none()
            self._after(
                throttled.admitted_after_ms / 1000, lambda: self._admit_throttled(connected, peer, listener)
            )
            return False
        else:
            self._admit(connected, peer, listener)
        return True

    def _drop_throttled(self, connected: socket.socket) -> None:
        self._throttled_count -= 1
        connected.close()

    def _admit_throttled(self, connected: socket.socket, peer: tuple[str, int], listener: Listener) -> None:
        """The pause is over: the connection that waited is admitted first."""
        if self._is_ended:
            connected.close()
        else:
            self._admit(connected, peer, listener)
            self._accept_again()

    def _admit(self, connected: socket.socket, peer: tuple[str, int], listener: Listener) -> None:
        host, limit = peer[0], self._broker.settings.connections.max_connections_per_ip
        if limit <= self._count and self._count_of(host) >= limit:
            connected.close()
            if not self._is_refusing:  # only the first in a row is logged
                self._trace(
                    "connection-refused", peer=joined(*peer), reason=f"max.connections.per.ip={limit}"
                )
            self._is_refusing = True
            return
        self._is_refusing = False
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connected.getsockname()[0] == host:
            disable_pacing(connected)
        # Unless asked for, the system sizes the buffers: it does so better than any fixed number.
        buffers = self._settings.connections
        for key, option, size in (
            ("socket.send.buffer.bytes", socket.SO_SNDBUF, buffers.socket_send_buffer_bytes),
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF, buffers.socket_receive_buffer_bytes),
        ):
            if key in self._settings.given and size > 0:
                connected.setsockopt(socket.SOL_SOCKET, option, size)
        if listener.is_encrypted:
            self._handshakes_of[listener.name].begin(connected, listener, peer)
        else:
            self._pump.accepted(connected, listener.name, peer)

    def _count_of(self, host: str) -> int:
        shaking = sum(handshakes.count_of(host) for handshakes in self._handshakes)
        return shaking + sum(one.peer_host == host for one in self._pump.connections.values())


def protected_listeners(settings: BrokerSettings) -> tuple[str, ...]:
    """The listeners of the cluster's nodes: those of controllers, and the inter-broker listener unless it is
    the only one for clients.
    """
    controllers = settings.controller_listener_names
    others = [one.name for one in settings.listeners if one.name not in controllers]
    return (*controllers, settings.inter_broker_listener_name) if len(others) > 1 else tuple(controllers)


SETTLING_US: Final = 100_000
"""A connection is not idle before this: its next request may be in transit."""
STALLED_US: Final = 10_000_000
"""A connection that has not read its reply for this long counts as idle."""


class IdleConnections:
    """Finds the connection that has been idle longest. `_candidates` ends with it; an entry is (last
    active, connection) as sorted.
    """

    def __init__(
        self, connections: Callable[[], Iterable[Connection]], is_in_flight: Callable[[Connection], bool]
    ) -> None:
        self._connections = connections
        self._is_in_flight = is_in_flight
        self._candidates: list[tuple[int, Connection]] = []
        self._sorted_again_us = 0  # not before, once none was found: a sort looks at every connection

    def longest(self, now_us: Micros) -> Connection | None:
        """The connection to close; None if all have requests in flight or are being answered."""
        found = self._next(now_us)
        if found is None and now_us >= self._sorted_again_us:
            self._candidates = [(one.active_us, one) for one in self._connections()]
            self._candidates.sort(key=lambda one: one[0], reverse=True)
            found = self._next(now_us)
            if found is None:
                self._sorted_again_us = now_us + SETTLING_US
        return found

    def _next(self, now_us: Micros) -> Connection | None:
        while self._candidates:
            active_us, connection = self._candidates.pop()
            if (
                not connection.is_open
                or connection.active_us != active_us
                or self._is_busy(connection, now_us)
            ):
                continue
            if now_us - active_us >= SETTLING_US:
                return connection
            self._candidates = []  # all others are younger
        return None

    def _is_busy(self, connection: Connection, now_us: Micros) -> bool:
        if connection.is_sending:
            return now_us - connection.active_us < STALLED_US
        return not connection.is_half_closed and self._is_in_flight(connection)
