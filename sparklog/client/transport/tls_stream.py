"""A TLS connection to a server: the `Stream` that encrypts.

    connecting ─► connected ── handshake, in steps ─► open
                                   └── the server's certificate is not accepted: OSError

A record that the socket takes only a part of must be written again with the same bytes. They are kept, and
not counted as sent until they have left: the caller offers them again, at the front.
"""

import contextlib
import socket
import ssl
from typing import Final

from sparklog.client.transport.stream import SYSTEM_DEFAULT, Address, begin_to_connect, check_connected

PIECE_BYTES: Final = 64 << 10


class TlsStream:
    """See `stream.Stream`."""

    __slots__ = ("_context", "_server_name", "_socket", "_tls", "_unfinished", "wants_write")

    def __init__(
        self,
        address: Address,
        context: ssl.SSLContext,
        server_name: str,
        *,
        send_buffer: int = SYSTEM_DEFAULT,
        receive_buffer: int = SYSTEM_DEFAULT,
        dead_after_ms: int = SYSTEM_DEFAULT,
    ) -> None:
        """Begin to connect; see `stream.PlainStream`. The certificate must be for `server_name`."""
        self._context = context
        self._server_name = server_name
        self._tls: ssl.SSLSocket | None = None
        self._unfinished: bytes | None = None
        self.wants_write = True
        self._socket: socket.socket = begin_to_connect(
            address,
            send_buffer=send_buffer,
            receive_buffer=receive_buffer,
            dead_after_ms=dead_after_ms,
        )

    @property
    def has_received(self) -> bool:
        """See `stream.Stream`."""
        return self._tls is not None and self._tls.pending() > 0

    def fileno(self) -> int:
        """See `stream.Stream`."""
        return self._socket.fileno()

    def handshake(self) -> bool:
        """See `stream.Stream`. A step takes about a millisecond of processor time."""
        if self._tls is None:
            check_connected(self._socket)
            try:
                self._tls = self._socket = self._context.wrap_socket(
                    self._socket, server_hostname=self._server_name, do_handshake_on_connect=False
                )
            except ValueError as error:
                raise OSError(f"no certificate can be for {self._server_name!r}: {error}") from None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.wants_write = False
            return False
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return False
        except ssl.SSLCertVerificationError as error:
            raise OSError(f"the certificate is not accepted: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise OSError(f"the TLS handshake failed: {_reason(error)}") from None
        self.wants_write = False
        return True

    def recv_into(self, buffer: memoryview, /) -> int:
        """See `stream.Stream`: records are received until the buffer is full."""
        tls = self._tls
        assert tls is not None
        limit, received = len(buffer), 0
        try:
            while received < limit:
                size = tls.recv_into(buffer[received:])
                if not size:
                    break
                received += size
        except ssl.SSLWantReadError:
            if not received:
                raise BlockingIOError from None
        return received

    def send(self, piece: memoryview, /) -> int:
        """See `stream.Stream`."""
        tls = self._tls
        assert tls is not None
        unfinished, self._unfinished = self._unfinished, None
        content = unfinished or piece[:PIECE_BYTES]
        try:
            tls.send(content)
        except ssl.SSLWantWriteError:
            self._unfinished = bytes(content)
            raise BlockingIOError from None
        return len(content)

    def sendmsg(self, pieces: list[memoryview], /) -> int:
        """See `stream.Stream`. Small pieces share a record."""
        if self._unfinished is not None or len(pieces[0]) >= PIECE_BYTES:
            return self.send(pieces[0])
        return self.send(memoryview(b"".join(pieces)))

    def close(self) -> None:
        """See `stream.Stream`. The server is told that the stream ends here, if the socket takes it."""
        if self._tls is not None:
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
        self._socket.close()


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLEOFError) or error.reason == "WRONG_VERSION_NUMBER":
        return "the server ended the connection or answered without TLS; is this a listener with TLS?"
    return (error.reason or str(error)).lower().replace("_", " ")
