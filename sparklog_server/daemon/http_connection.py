"""One HTTP connection: `h11` parses its requests, and its responses are bytes that may be shared.

    reading ── a whole head ──► asked ──► answering ── all sent ──┬─► reading, if the connection is kept
       │                                      ▲                   └─► closed
       └── not HTTP, too long, with a body ───┘ (refused, then closed)

It takes GET and HEAD without a body, one at a time: what a request carries beyond its head has no meaning
here, and where a head can be read in two ways the connection is closed. Reading stops while a request is
answered.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import h11

from sparklog_server.daemon.reactor import READ, WRITE, Reactor
from sparklog_server.daemon.transport import Transport

HEAD_BYTES_MAX: Final = 8_192
_RECEIVED_BYTES: Final = 16_384
_SENT_PER_TURN: Final = 64 << 10
"""About 50 us of copying; a slow machine takes five times as long."""
_REASONS: Final = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
_PLAIN: Final = "text/plain; charset=utf-8"
_BODY_HEADERS: Final = frozenset((b"transfer-encoding", b"content-length", b"upgrade", b"expect"))


class Site(Protocol):
    """What answers requests."""

    def asked(self, connection: "HttpConnection", request: h11.Request) -> None:
        """Answer by `HttpConnection.respond`, now or later."""

    def refused(self, reason: str) -> None:
        """A request was refused."""

    def closed(self, connection: "HttpConnection") -> None:
        """The connection is closed."""


class HttpConnection:
    """Invariants: at most one request is being answered; a closed connection has called `Site.closed` once.
    `since_us` is when it began to wait for the peer: for a head, or to take a response.
    """

    def __init__(
        self, transport: Transport, peer_host: str, principal: str, reactor: Reactor, site: Site, now_us: int
    ) -> None:
        self.peer_host = peer_host
        self.principal = principal  # by a certificate
        self.since_us = now_us
        self.is_open = True
        self.is_answering = False
        self.is_kept = False  # it waits for another request
        self.requests = 0  # taken
        self._transport = transport
        self._reactor = reactor
        self._site = site
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._is_head_only = False
        self._tail = b""  # the last two bytes received
        self._body: Iterator[bytes] = iter(())
        self._unsent = memoryview(b"")
        self._events = READ
        reactor.watch(transport.fileno(), self._ready, READ)
        if transport.has_received:  # with the last step of a TLS handshake
            reactor.post(self._receive_buffered)

    # -- requests

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._send()
        elif events & READ and not self.is_answering:
            self._receive()
        elif not events & (READ | WRITE):
            self.close()  # broken while it is answered

    def _receive(self) -> None:
        buffer = memoryview(bytearray(_RECEIVED_BYTES))
        try:
            size = self._transport.receive_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if size == 0:
            self.close()
            return
        received = bytes(buffer[:size])
        if not self._is_plain(received):
            self._refuse(400, "a line does not end in CR LF, or goes on in the next one")
            return
        if self.is_kept:
            self.is_kept, self.since_us = False, time.monotonic_ns() // 1000
        self._http.receive_data(received)
        self._go_on()

    def _is_plain(self, received: bytes) -> bool:
        """Whether each line ends in CR LF and none is folded: some servers read such heads in another way."""
        joined = self._tail + received
        is_split = self._tail[-1:] == b"\r" and received[:1] == b"\n"  # between two calls
        self._tail = joined[-2:]
        is_whole = received.count(b"\n") == received.count(b"\r\n") + is_split
        return is_whole and b"\r\n " not in joined and b"\r\n\t" not in joined

    def _go_on(self) -> None:
        """Take the next request, if its head is whole."""
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            # Without the line that h11 quotes: the reason becomes a label of a metric.
            self._refuse(error.error_status_hint or 400, str(error).partition(":")[0])
            return
        if isinstance(event, h11.Request):
            if any(
                name in _BODY_HEADERS and (name, value) != (b"content-length", b"0")
                for name, value in event.headers
            ):
                self._refuse(400, "a request with a body")
                return
            if event.method not in (b"GET", b"HEAD"):
                self._refuse(405, "only GET and HEAD are served")
                return
            end = self._http.next_event()
            assert isinstance(end, h11.EndOfMessage), "a request without a body"
            self._is_head_only = event.method == b"HEAD"
            self.is_answering, self.is_kept = True, False
            self.requests += 1
            self._watch(0)
            self._site.asked(self, event)
        elif isinstance(event, h11.ConnectionClosed):
            self.close()
        elif self.is_open and self._transport.has_received:
            self._reactor.post(self._receive_buffered)

    def _receive_buffered(self) -> None:
        if self.is_open and not self.is_answering:
            self._receive()

    # -- responses

    def respond(
        self,
        status: int,
        body: Sequence[bytes],
        *,
        content_type: str = _PLAIN,
        more: Sequence[tuple[str, str]] = (),
        now_us: int,
    ) -> None:
        """Answer the request. The pieces of `body` may be those of other responses too."""
        if not self.is_open:
            return
        self.since_us = now_us
        headers = [
            ("Content-Type", content_type),
            ("Content-Length", str(sum(map(len, body)))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *more,
        ]
        head = self._http.send(
            h11.Response(status_code=status, reason=_REASONS.get(status, b""), headers=headers)
        )
        assert head is not None
        self._unsent = memoryview(head)
        self._body = iter(() if self._is_head_only else body)
        self._send()

    def _refuse(self, status: int, reason: str) -> None:
        """Answer with an error if HTTP allows, and close."""
        self._site.refused(reason)
        self.is_answering = True
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.close()
            return
        self.respond(status, (f"{reason}\n".encode(),), more=(("Connection", "close"),), now_us=self.since_us)

    def _send(self) -> None:
        left = _SENT_PER_TURN
        try:
            while left > 0:
                if not self._unsent:
                    piece = next(self._body, None)
                    if piece is None:
                        self._sent()
                        return
                    passed = self._http.send(h11.Data(data=piece))
                    assert passed is not None
                    self._unsent = memoryview(passed)
                    continue
                sent = self._transport.send(self._unsent)
                self._unsent = self._unsent[sent:]
                left -= sent
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._watch(WRITE)

    def _sent(self) -> None:
        """The response is sent: wait for the next request, or close."""
        self._http.send(h11.EndOfMessage())
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            self.close()
            return
        self._http.start_next_cycle()
        self.is_answering, self.is_kept = False, True
        self._watch(READ)
        if self._http.trailing_data[0] or self._transport.has_received:
            self._reactor.post(self._next)  # in a turn of its own: hundreds may have come together

    def _next(self) -> None:
        """Take the next request, if its head came with the one before."""
        if self.is_open and not self.is_answering:
            self._go_on()

    def _watch(self, events: int) -> None:
        if self.is_open and events != self._events:
            self._events = events
            self._reactor.change(self._transport.fileno(), events)

    def close(self) -> None:
        """Close at once."""
        if not self.is_open:
            return
        self.is_open = False
        self._body, self._unsent = iter(()), memoryview(b"")
        self._reactor.forget(self._transport.fileno())
        self._transport.close()
        self._site.closed(self)
