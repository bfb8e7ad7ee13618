"""The bytes of one connection: the port between a socket and the machine of Kafka's protocol.

A client's connections and those that a broker opens to other brokers use it. `PlainStream` is TCP;
`tls_stream.TlsStream` has the same methods and encrypts.
"""

import errno
import os
import socket
from collections import deque
from typing import Final, Protocol

from sparklog.effects import Chunk, FileSlice

_GATHER_MAX: Final = 64
"""Pieces per gathered write; the system allows 1024."""

SYSTEM_DEFAULT: Final = -1

Address = tuple[int, tuple[object, ...]]
"""An address family, and an address of that family."""


class Stream(Protocol):
    """A non-blocking connection: `recv_into`, `send` and `sendmsg` raise BlockingIOError instead of blocking,
    and OSError when the connection is broken.
    """

    @property
    def wants_write(self) -> bool:
        """Whether the stream waits for the socket to become writable, though no bytes wait to be sent."""

    @property
    def has_received(self) -> bool:
        """Whether bytes can be received that have left the socket already, so that it is not readable."""

    def fileno(self) -> int:
        """The file descriptor to watch."""

    def handshake(self) -> bool:
        """Called when the socket is readable or writable, until it returns True: then bytes may be sent and
        received. Raises OSError if the connection failed.
        """

    def recv_into(self, buffer: memoryview, /) -> int:
        """The number of bytes received; 0 at the end of the stream. If the buffer is not filled, there are no
        more for now.
        """

    def send(self, piece: memoryview, /) -> int:
        """The number of bytes sent, from the front of the piece. Bytes that were not sent come first in the
        next call of `send` or `sendmsg`.
        """

    def sendmsg(self, pieces: list[memoryview], /) -> int:
        """The number of bytes sent, from the front of the pieces together."""

    def close(self) -> None:
        """Close the descriptor."""


class PlainStream:
    """A TCP connection; its methods are those of the socket, so that the port costs no call."""

    __slots__ = ("_socket", "close", "fileno", "recv_into", "send", "sendmsg", "wants_write")

    has_received: Final = False

    def __init__(
        self,
        address: Address,
        *,
        send_buffer: int = SYSTEM_DEFAULT,
        receive_buffer: int = SYSTEM_DEFAULT,
        dead_after_ms: int = SYSTEM_DEFAULT,
    ) -> None:
        """Begin to connect; the buffer sizes are in bytes. With `dead_after_ms` the connection breaks
        (ETIMEDOUT) when the peer acknowledges nothing for so long, also while it is idle. Raises OSError.
        """
        self._socket = sock = begin_to_connect(
            address, send_buffer=send_buffer, receive_buffer=receive_buffer, dead_after_ms=dead_after_ms
        )
        self.close = sock.close
        self.fileno = sock.fileno
        self.recv_into = sock.recv_into
        self.send = sock.send
        self.sendmsg = sock.sendmsg
        self.wants_write = False

    def handshake(self) -> bool:
        """A plain connection has no handshake: it is established, or has failed."""
        check_connected(self._socket)
        return True


def begin_to_connect(
    address: Address, *, send_buffer: int, receive_buffer: int, dead_after_ms: int
) -> socket.socket:
    """A non-blocking socket that connects; the arguments are those of `PlainStream`. Raises OSError."""
    family, target = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
            if size >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        if dead_after_ms >= 0:
            _watch_over(sock, dead_after_ms)
        if (code := sock.connect_ex(target)) not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
    except OSError:
        sock.close()
        raise
    return sock


def check_connected(sock: socket.socket) -> None:
    """Raises OSError if the connection has failed."""
    if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(code, os.strerror(code))


def _watch_over(sock: socket.socket, dead_after_ms: int) -> None:
    """Have the system probe an idle peer, and give up one that acknowledges nothing."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(1, dead_after_ms // 2000)
    # macOS has other names for these, and its defaults do there.
    for name, value in (
        ("TCP_KEEPIDLE", seconds),
        ("TCP_KEEPINTVL", seconds),
        ("TCP_USER_TIMEOUT", dead_after_ms),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Output:
    """Bytes that a stream has not accepted yet, in their order."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.size = 0  # in bytes

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, chunk: Chunk) -> None:
        """Add bytes to send after those before."""
        assert not isinstance(chunk, FileSlice), "a client sends no files"
        self._pieces.append(memoryview(chunk))
        self.size += len(chunk)

    def send(self, stream: Stream) -> None:
        """Send everything; raises BlockingIOError when the stream accepts no more."""
        pieces = self._pieces
        while pieces:
            if len(pieces) == 1:
                sent = stream.send(pieces[0])
            else:
                sent = stream.sendmsg([pieces[index] for index in range(min(len(pieces), _GATHER_MAX))])
            self.size -= sent
            while sent:
                first = pieces[0]
                if sent < len(first):
                    pieces[0] = first[sent:]
                    break
                sent -= len(first)
                pieces.popleft()
