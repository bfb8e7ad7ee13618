"""The sockets of links: connections that this process opens.

    send ─► name looked up (job) ─► connecting ─► TLS (jobs) ─► open ── bytes ─► the broker
                 │                      │            │           │
                 └──────────────────────┴────────────┴───────────┴──► lost, once, with the kind of loss

An address that is a number is not looked up. The loop never waits: neither for a name, nor for a
connection, nor for a peer that does not read.
"""

import errno
import socket
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from sparklog.client.transport.stream import Address, Output, PlainStream, Stream
from sparklog.effects import Chunk, LinkId, Loss
from sparklog_server.config.listeners import joined
from sparklog_server.daemon.jobs import Done, Job
from sparklog_server.daemon.reactor import READ, WRITE, Reactor

if TYPE_CHECKING:
    import ssl

DEAD_AFTER_MS: Final = 4_000
"""How long a peer may leave sent bytes, or a probe of an idle connection, without acknowledgement."""
UNSENT_BYTES_MAX: Final = 64 << 20
"""A peer that leaves more requests than this unread is given up."""

_LOSSES: Final = {
    errno.ECONNREFUSED: Loss.REFUSED,
    errno.ETIMEDOUT: Loss.TIMED_OUT,
    errno.EHOSTUNREACH: Loss.UNREACHABLE,
    errno.ENETUNREACH: Loss.UNREACHABLE,
    errno.EHOSTDOWN: Loss.UNREACHABLE,
}
"""By the error of a socket; any other says that an open connection has broken."""

_Found = list[tuple[int, int, int, str, tuple[object, ...]]]


class Owner(Protocol):
    """The pump, as the sockets of links call it; never within `send` and `close`."""

    def link_buffer(self, link: LinkId) -> memoryview | None:
        """Where the next bytes of a link go; None if the broker has closed it."""

    def link_received(self, link: LinkId, size: int) -> None:
        """`size` bytes were put into that buffer."""

    def link_lost(self, link: LinkId, loss: Loss) -> None:
        """A link could not be opened, or has ended."""

    def run(self, job: Job, done: Done) -> None:
        """Run a job that may block."""

    def shake_hands(self, job: Job, done: Done) -> None:
        """Run a step of a TLS handshake, which takes about a millisecond."""

    def secure(self, link: LinkId) -> "ssl.SSLContext | None":
        """The context of a link with TLS."""

    def trace(self, event: str, **fields: object) -> None:
        """Log an event."""


class _Peer:
    """The socket of one link, and the bytes that it has not taken. Without a stream while the name is looked
    up.
    """

    __slots__ = (
        "has_received",
        "id",
        "is_dropped",
        "is_open",
        "is_shaking",
        "is_tls",
        "output",
        "stream",
        "wants_write",
    )

    def __init__(self, link: LinkId) -> None:
        self.id = link
        self.stream: Stream | None = None
        self.is_open = False
        self.is_tls = self.has_received = False
        self.is_shaking = False  # only the job touches the stream
        self.is_dropped = False
        self.output = Output()
        self.wants_write = True


class Peers:
    """The sockets of all open links. Invariant: a link that was not closed by `close` is told `lost` once."""

    def __init__(self, owner: Owner, reactor: Reactor) -> None:
        self._owner = owner
        self._reactor = reactor
        self._peers: dict[LinkId, _Peer] = {}
        self._distrusted: set[tuple[str, int]] = set()  # addresses whose refused handshake is logged

    def send(self, link: LinkId, chunks: list[Chunk]) -> None:
        """Send bytes on a link, which the first ones open."""
        peer = self._peers.get(link)
        if peer is None:
            peer = self._peers[link] = _Peer(link)
            self._open(peer)
        for chunk in chunks:
            peer.output.add(chunk)
        if peer.output.size > UNSENT_BYTES_MAX:
            self._lose_later(peer, Loss.TIMED_OUT)
        elif peer.is_open and not peer.wants_write:
            try:
                self._flush(peer)
            except OSError as error:
                self._lose_later(peer, _loss_of(error, peer))

    def close(self, link: LinkId) -> None:
        """Close a link and drop its unsent bytes."""
        peer = self._peers.pop(link, None)
        if peer is not None:
            self._drop(peer)

    # -- opening

    def _open(self, peer: _Peer) -> None:
        host, port = peer.id.address
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.inet_pton(family, host)
            except OSError:
                continue
            self._connect(peer, family, (host, port))
            return
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        self._owner.run(look_up, partial(self._looked_up, peer))

    def _looked_up(self, peer: _Peer, found: object) -> None:
        """`found` is the addresses of the name, or the error."""
        if self._peers.get(peer.id) is not peer:
            return
        if isinstance(found, Exception):
            self._lose(peer, Loss.UNKNOWN_NAME)
            return
        family, _, _, _, target = cast(_Found, found)[0]
        self._connect(peer, family, target)

    def _connect(self, peer: _Peer, family: int, target: tuple[object, ...]) -> None:
        try:
            peer.stream = self._stream(peer, (family, target))
        except OSError as error:
            self._lose_later(peer, _loss_of(error, peer))
            return
        # A connection becomes writable when it is established, and when it fails.
        self._reactor.watch(peer.stream.fileno(), partial(self._ready, peer), READ | WRITE)

    def _stream(self, peer: _Peer, address: Address) -> Stream:
        context = self._owner.secure(peer.id)
        if context is None:
            return PlainStream(address, dead_after_ms=DEAD_AFTER_MS)
        from sparklog.client.transport.tls_stream import TlsStream  # at its only use: most links are plain

        peer.is_tls = True
        return TlsStream(address, context, peer.id.address[0], dead_after_ms=DEAD_AFTER_MS)

    def _shake_hands(self, peer: _Peer, stream: Stream) -> None:
        """Run the next step of a TLS handshake in a job."""
        self._reactor.forget(stream.fileno())
        peer.is_shaking = True
        self._owner.shake_hands(partial(_step, stream), partial(self._stepped, peer))

    def _stepped(self, peer: _Peer, result: object) -> None:
        peer.is_shaking = False
        stream = peer.stream
        assert stream is not None
        if peer.is_dropped:
            stream.close()
        elif isinstance(result, OSError):
            if peer.id.address not in self._distrusted:
                self._distrusted.add(peer.id.address)
                reason = result.strerror or str(result)
                self._owner.trace("link-refused", address=joined(*peer.id.address), reason=reason)
            self._lose(peer, _loss_of(result, peer))
        else:
            self._distrusted.discard(peer.id.address)
            peer.is_open = result is True
            peer.wants_write = bool(peer.output) or stream.wants_write
            self._reactor.watch(
                stream.fileno(), partial(self._ready, peer), READ | WRITE if peer.wants_write else READ
            )

    # -- events

    def _ready(self, peer: _Peer, events: int) -> None:
        stream = peer.stream
        assert stream is not None
        if peer.is_tls and not peer.is_open:
            self._shake_hands(peer, stream)
            return
        try:
            if not peer.is_open:
                peer.is_open = stream.handshake()
            if peer.is_open and events & ~WRITE:
                self._receive(peer, stream)
            if peer.is_open and (peer.wants_write or stream.wants_write) and self._peers.get(peer.id) is peer:
                self._flush(peer)
        except OSError as error:
            self._lose(peer, _loss_of(error, peer))

    def _receive(self, peer: _Peer, stream: Stream) -> None:
        """Receive once: what is left is reported again, after the other sockets."""
        buffer = self._owner.link_buffer(peer.id)
        if buffer is None:
            return
        try:
            size = stream.recv_into(buffer)
        except BlockingIOError:
            return
        if size == 0:
            self._lose(peer, Loss.UNUSABLE if _may_be_refused(peer) else Loss.ENDED)
        else:
            peer.has_received = True
            self._owner.link_received(peer.id, size)
            if stream.has_received and not peer.is_dropped:
                self._reactor.post(partial(self._receive_buffered, peer))

    def _receive_buffered(self, peer: _Peer) -> None:
        """Receive what the stream holds: the reactor cannot tell."""
        if not peer.is_dropped:
            self._ready(peer, READ)

    def _flush(self, peer: _Peer) -> None:
        stream = peer.stream
        assert stream is not None
        try:  # noqa: SIM105 - `suppress` costs three calls
            peer.output.send(stream)
        except BlockingIOError:
            pass  # the reactor reports when the socket takes more
        wants_write = peer.output.size > 0 or stream.wants_write
        if wants_write is not peer.wants_write:
            peer.wants_write = wants_write
            self._reactor.change(stream.fileno(), READ | WRITE if wants_write else READ)

    # -- the end

    def _lose_later(self, peer: _Peer, loss: Loss) -> None:
        """Lose a link from within a turn of the broker, which is told in another."""
        self._reactor.post(partial(self._lose, peer, loss))

    def _lose(self, peer: _Peer, loss: Loss) -> None:
        if self._peers.get(peer.id) is peer:
            del self._peers[peer.id]
            self._drop(peer)
            self._owner.link_lost(peer.id, loss)

    def _drop(self, peer: _Peer) -> None:
        peer.is_dropped = True
        if peer.stream is not None and not peer.is_shaking:
            self._reactor.forget(peer.stream.fileno())
            peer.stream.close()


def _step(stream: Stream) -> bool | OSError:
    """A job: whether the handshake is done, or how it has failed."""
    try:
        return stream.handshake()
    except OSError as error:
        return error


def _loss_of(error: OSError, peer: _Peer) -> Loss:
    return _LOSSES.get(error.errno or 0, Loss.UNUSABLE if _may_be_refused(peer) else Loss.RESET)


def _may_be_refused(peer: _Peer) -> bool:
    """Whether the TLS handshake of a link has not proved successful: in TLS 1.3 the other side checks the
    certificate of this one when the handshake is done here already.
    """
    return peer.is_tls and not peer.has_received
