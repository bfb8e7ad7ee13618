"""The byte stream under a connection: a port, and its implementation over a plain socket.

connection ──► Transport ──► PlainTransport ──► socket
                   └► TlsTransport (`tls_transport`) ──► ssl.SSLObject ──► socket
"""

import os
import socket
from collections.abc import Sequence
from typing import Final, Protocol

# Announces to the kernel that a slice follows at once, so that a reply's first bytes are not sent in a
# segment of their own. macOS has no such flag.
MORE: Final[int] = getattr(socket, "MSG_MORE", 0)


class Transport(Protocol):
    """A non-blocking byte stream.

    A call that would wait raises BlockingIOError; any other OSError means that the stream is broken, or, from
    `send_slice` with EIO, that the file cannot be read.
    """

    @property
    def has_received(self) -> bool:
        """Whether bytes can be received that have left the socket already, so that it is not readable."""

    def fileno(self) -> int:
        """The descriptor that the reactor watches."""

    def receive_into(self, buffer: memoryview, /) -> int:
        """Receive once; returns the number of bytes, 0 at the end of the stream."""

    def send(self, content: bytes | bytearray | memoryview, /) -> int:
        """Send once; returns the number of bytes taken. Bytes that were not taken come first in the next call
        of this or another `send` method.
        """

    def send_gathered(
        self, contents: Sequence[bytes | bytearray | memoryview], *, is_more_to_come: bool
    ) -> int:
        """Send several pieces in one call; returns the number of bytes taken."""

    def send_slice(self, descriptor: int, position: int, length: int) -> int:
        """Send the range `[position, position + length)` of a file; returns the number of bytes taken, 0 at
        the end of the file.
        """

    def close(self) -> None:
        """Close the stream and its descriptor."""


class PlainTransport:
    """A TCP socket. The two methods that every request uses are attributes that hold the socket's own
    methods, so that they cost no extra call.
    """

    __slots__ = ("_connected", "receive_into", "send")

    has_received: Final = False

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self.receive_into = connected.recv_into
        self.send = connected.send

    def fileno(self) -> int:
        """See `Transport`."""
        return self._connected.fileno()

    def close(self) -> None:
        """See `Transport`."""
        self._connected.close()

    def send_gathered(
        self, contents: Sequence[bytes | bytearray | memoryview], *, is_more_to_come: bool
    ) -> int:
        """See `Transport`."""
        return self._connected.sendmsg(contents, (), MORE if is_more_to_come else 0)

    def send_slice(self, descriptor: int, position: int, length: int) -> int:
        """See `Transport`."""
        return os.sendfile(self._connected.fileno(), descriptor, position, length)
