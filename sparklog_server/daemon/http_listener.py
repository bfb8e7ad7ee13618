"""The HTTP listener: accepts connections, answers /healthz and /readyz, and asks for logins to /metrics.

    accepted ─┬─► (TLS handshake) ─► HttpConnection ─► /healthz   the loop turns: 200
              └─► too many: closed                     /readyz    200, or 503 and the reason
                                                       /metrics   (login) ─► `http_metrics`
                                                       /stacks    (login) ─► `http_stacks`, not in the clear

On loopback, a request that names another host is refused: it comes from a browser that shows a page of
another site, whose name was made to point here.

Its connections are apart from those of Kafka's clients: they count towards no limit of them. A start without
this listener imports neither this nor h11.
"""

import socket
import sys
import threading
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Final

import h11

from sparklog_server.broker.metrics.report import BrokerReport
from sparklog_server.config.listeners import Listener, is_loopback, joined
from sparklog_server.daemon.admission import ACCEPT_AGAIN_S, OUT_OF_RESOURCES
from sparklog_server.daemon.http_connection import HttpConnection
from sparklog_server.daemon.http_metrics import MetricsPage, Refusals
from sparklog_server.daemon.jobs import Jobs
from sparklog_server.daemon.pump import Pump, Serving, read_clock
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.daemon.transport import PlainTransport, Transport
from sparklog_server.security import ANONYMOUS
from sparklog_server.security.principals import Identity

if TYPE_CHECKING:
    from sparklog_server.broker.access.basic_login import BasicLogin
    from sparklog_server.daemon.handshakes import Handshakes

CONNECTIONS_MAX: Final = 64
"""Beyond it, the connection that has waited for its next request longest is closed, or else the one that has
waited for its first, or else the new one.
"""
BACKLOG: Final = 1_024
ACCEPTED_PER_TURN: Final = 16
HEAD_TIME_US: Final = 10_000_000
RESPONSE_TIME_US: Final = 30_000_000
KEPT_TIME_US: Final = 150_000_000
"""Longer than the usual interval of scrapes, so that a scraper keeps its connection."""
SWEPT_EVERY_S: Final = 1.0
LOGINS_MAX: Final = 8
"""Checks of passwords under way; beyond it a request is answered 503."""
FAILED_LOGIN_S: Final = 1.0
_CREDENTIAL_CHARS_MAX: Final = 1_024
_OTHER_HOST: Final = "the Host header must name a loopback address: localhost, 127.0.0.1 or [::1]\n"
_FOR_OPERATORS: Final = (b"/stacks", b"/events")


class HttpListener:
    """Implements `http_connection.Site`.

    One class, because it is where the loop, the broker and the pages meet: each parameter is a port that it
    hands to one of them.
    """

    def __init__(
        self,
        listener: Listener,
        bound: socket.socket,
        broker: Serving,
        pump: Pump,
        reactor: Reactor,
        *,
        entropy: Callable[[int], bytes],
        after: Callable[[float, Callable[[], None]], None],
        trace: Callable[..., None],
        events: Callable[[], list[str]],
    ) -> None:
        self.listener = listener
        self._events = events
        self._bound = bound
        self._broker = broker
        self._reactor = reactor
        self._after = after
        self._connections: dict[HttpConnection, None] = {}
        self._handshakes: Handshakes | None = None
        self._is_swept = self._is_ended = False
        self._checking = 0
        self._jobs = Jobs(reactor.post)  # of its own: no scrape waits for compaction, nor the other way round
        self._refusals = Refusals()
        context, sessions, standing = broker.observed
        self._report = BrokerReport(context, sessions, standing)
        self._page = MetricsPage(
            self._report, pump, reactor, self._jobs, self._refusals, context.partitions.directories
        )
        self._login: BasicLogin | None = None
        if listener.is_encrypted and not listener.is_loopback:
            from sparklog_server.broker.access import basic_login

            self._login = basic_login.BasicLogin(context, entropy(32), trace)
        pump.measure()
        self._page.measure(after)

    def begin(self, handshakes: "Handshakes | None") -> None:
        """Accept connections from now on; `handshakes` is for TLS."""
        self._handshakes = handshakes
        self._bound.listen(BACKLOG)
        self._watch()

    def end(self) -> None:
        """Accept no more connections, and close all."""
        self._is_ended = True
        self._reactor.forget(self._bound.fileno())
        self._bound.close()
        if self._handshakes is not None:
            self._handshakes.end()
        for connection in list(self._connections):
            connection.close()

    # -- connections

    def _watch(self) -> None:
        if not self._is_ended:
            self._reactor.watch(self._bound.fileno(), self._accept)

    def _accept(self, _events: int) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                connected, address = self._bound.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    # The clients of Kafka come first. An immediate retry would only use CPU.
                    self._reactor.forget(self._bound.fileno())
                    self._after(ACCEPT_AGAIN_S, self._watch)
                    return
                continue  # the peer closed before the connection was accepted
            shaking = 0 if self._handshakes is None else len(self._handshakes)
            if len(self._connections) + shaking >= CONNECTIONS_MAX and not self._displace():
                self.refused("connections")
                connected.close()
                continue
            connected.setblocking(False)
            peer = (address[0], address[1])
            if self._handshakes is not None:
                self._handshakes.begin(connected, self.listener, peer)
            else:
                self._begin(PlainTransport(connected), peer[0], ANONYMOUS)

    def _displace(self) -> bool:
        """Close the handshake that has waited longest, or else the connection between two requests, or else
        the one before its first; returns False if there is none.
        """
        if self._handshakes is not None and self._handshakes.drop_oldest():
            self.refused("connections")
            return True
        waiting = [one for one in self._connections if not one.is_answering]
        if not waiting:
            return False
        self.refused("connections")
        min(waiting, key=lambda one: (not one.is_kept, one.since_us)).close()
        return True

    def established(
        self, transport: Transport, listener: str, peer: tuple[str, int], identity: Identity
    ) -> None:
        """A TLS handshake is done."""
        self._begin(transport, peer[0], identity.principal)

    def _begin(self, transport: Transport, host: str, principal: str) -> None:
        now_us = read_clock().mono_us
        self._connections[HttpConnection(transport, host, principal, self._reactor, self, now_us)] = None
        if not self._is_swept:
            self._is_swept = True
            self._after(SWEPT_EVERY_S, self._sweep)

    def _sweep(self) -> None:
        """Close the connections whose peer is slow, or sends nothing more."""
        now_us = read_clock().mono_us
        for connection in list(self._connections):
            most_us = HEAD_TIME_US
            if connection.is_answering:
                most_us = RESPONSE_TIME_US
            elif connection.is_kept:
                most_us = KEPT_TIME_US
            if now_us - connection.since_us > most_us:
                self.refused("slow")
                connection.close()
        self._is_swept = bool(self._connections)
        if self._is_swept:
            self._after(SWEPT_EVERY_S, self._sweep)

    def closed(self, connection: HttpConnection) -> None:
        """See `http_connection.Site`."""
        del self._connections[connection]

    def refused(self, reason: str) -> None:
        """See `http_connection.Site`."""
        self._refusals.count(reason)

    # -- pages

    def asked(self, connection: HttpConnection, request: h11.Request) -> None:
        """See `http_connection.Site`."""
        headers = dict(request.headers)
        path = request.target.partition(b"?")[0]
        if self.listener.is_loopback and not _names_loopback(headers.get(b"host")):
            self.refused("host")
            self._answer(connection, 400, _OTHER_HOST)
        elif path == b"/metrics":
            is_openmetrics = b"application/openmetrics-text" in headers.get(b"accept", b"")
            show = partial(self._page.asked, connection, is_openmetrics=is_openmetrics)
            self._allowed(connection, headers, show)
        elif path in _FOR_OPERATORS and (self.listener.is_loopback or self._login is not None):
            page = self._stacks if path == b"/stacks" else self._show_events
            self._allowed(connection, headers, partial(page, connection))
        elif path == b"/healthz":
            self._answer(connection, 200, "the loop turns\n")
        elif path == b"/readyz":
            self._readiness(connection, self._report.unready())
        else:
            self._answer(connection, 404, "there are /metrics, /healthz, /readyz, /stacks and /events\n")

    def _answer(self, connection: HttpConnection, status: int, text: str, *more: tuple[str, str]) -> None:
        connection.respond(status, (text.encode(),), more=more, now_us=read_clock().mono_us)

    def _readiness(self, connection: HttpConnection, pieces: Iterator[str]) -> None:
        """Take one piece in each turn, until one tells why the node is not ready, or the last is taken."""
        if not connection.is_open:
            return
        reason = next(pieces, None)
        if reason is None:
            self._answer(connection, 200, "ready\n")
        elif reason:
            self._answer(connection, 503, reason)
        else:
            self._reactor.post(partial(self._readiness, connection, pieces))

    def _show_events(self, connection: HttpConnection) -> None:
        self._answer(connection, 200, "".join(f"{line}\n" for line in self._events()))

    def _stacks(self, connection: HttpConnection) -> None:

        self._answer(connection, 200, stacks())

    def _allowed(
        self, connection: HttpConnection, headers: dict[bytes, bytes], then: Callable[[], None]
    ) -> None:
        """Go on if this listener asks for no login, or once a user has logged in that may see the page."""
        if self._login is None:
            then()
            return
        if connection.principal != ANONYMOUS:
            self._seen(connection, connection.principal, then)
            return
        credentials = _credentials(headers.get(b"authorization", b""))
        if credentials is None:
            self._unauthorized(connection)
        elif self._login.known(*credentials):
            self._seen(connection, f"User:{credentials[0]}", then)
        elif self._checking >= LOGINS_MAX:
            self.refused("logins")
            self._answer(connection, 503, "too many logins at once\n")
        else:
            self._checking += 1
            self._jobs.run(
                self._login.job(*credentials), partial(self._checked, connection, *credentials, then)
            )

    def _checked(
        self, connection: HttpConnection, user: str, password: bytes, then: Callable[[], None], key: object
    ) -> None:
        assert self._login is not None
        if isinstance(key, bytes):
            self._checking -= 1
            self._login.keep(user, password, key)
            self._seen(connection, f"User:{user}", then)
            return
        # Later, so that guessing takes time; the check counts as under way until then.
        self._after(FAILED_LOGIN_S, partial(self._failed, connection))

    def _failed(self, connection: HttpConnection) -> None:
        self._checking -= 1
        self._unauthorized(connection)

    def _unauthorized(self, connection: HttpConnection) -> None:
        self.refused("login")
        challenge = ("WWW-Authenticate", 'Basic realm="sparklog", charset="UTF-8"')
        self._answer(connection, 401, "a user of the cluster and a password are needed\n", challenge)

    def _seen(self, connection: HttpConnection, principal: str, then: Callable[[], None]) -> None:
        assert self._login is not None
        if self._login.may_see(principal, connection.peer_host):
            then()
        else:
            self.refused("access")
            self._answer(connection, 403, "the user may not describe the cluster\n")

    def __str__(self) -> str:
        scheme = "https" if self.listener.is_encrypted else "http"
        return f"{scheme}://{joined(self.listener.host, self._bound.getsockname()[1])}"


def _names_loopback(host: bytes | None) -> bool:
    """Whether a Host header names this machine; None is a request of HTTP 1.0, which no browser sends."""
    if host is None:
        return True
    text = host.decode("ascii", "replace").lower()
    return is_loopback(text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0])


def _credentials(header: bytes) -> tuple[str, bytes] | None:
    """User and password of a header of HTTP Basic (RFC 7617); None for any other header."""
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic" or len(encoded) > _CREDENTIAL_CHARS_MAX:
        return None
    try:
        user, colon, password = b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (NotBase64, UnicodeDecodeError):
        return None


FRAMES_MAX: Final = 100
THREADS_MAX: Final = 200


def stacks() -> str:
    """The stacks of all threads, innermost frame first. The one that asks is the loop, in this page."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = list(sys._current_frames().items())[:THREADS_MAX]
    return "\n".join(_stack_of(names.get(ident, "?"), frame) for ident, frame in frames)


def _stack_of(name: str, innermost: FrameType) -> str:
    lines = [f"thread {name!a}"]
    frame: FrameType | None = innermost
    while frame is not None and len(lines) <= FRAMES_MAX:
        lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
        frame = frame.f_back
    return "\n".join(lines) + "\n"
