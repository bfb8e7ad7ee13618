"""The byte stream of a connection with TLS, between a non-blocking socket and its session.

    receiving    socket ── recv ─► shared buffer ── pieces ─► incoming BIO ── records ─► the session's buffer
    sending      chunks, or a slice by pread ── pieces ─► outgoing BIO ── send ─► socket

OpenSSL works on memory: one system call receives many records, and one sends several. With a socket of its
own OpenSSL makes two for each record it reads, and clients send records of a kilobyte and less. The pieces
bound the memory of a connection. This is also where kernel TLS would stand, which sends a slice without
reading it; Python's ssl cannot turn it on.

A piece that the socket takes only a part of stays here, encrypted. It is not counted as taken until it has
left: the connection offers its bytes again, at the front.
"""

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, cast

from sparklog_server.daemon.reactor import READ, WRITE
from sparklog_server.daemon.transport import MORE

SENT_PIECE_BYTES: Final = 64 << 10
"""Four records a system call."""
RECEIVED_PIECE_BYTES: Final = 32 << 10
RECEIVED_BYTES_MAX: Final = 128 << 10
"""Of one system call. Small records take a few microseconds each, and other sessions wait."""
ENVELOPE_BYTES: Final = 16 << 10
"""Received beyond the room of the session, for headers and tags. What does not fit stays in the BIO."""
HANDSHAKE_BYTES: Final = 16 << 10
UNSENT_BYTES_MAX: Final = 2 * SENT_PIECE_BYTES
"""A piece, and the alerts and key updates that a peer asks for without reading them."""

_NOTHING: Final = memoryview(b"")


def shared_buffer() -> memoryview:
    """The memory that the transports of one reactor receive into, one at a time."""
    return memoryview(bytearray(RECEIVED_BYTES_MAX))


class TlsTransport:
    """See `transport.Transport`. `handshake` comes first.

    `_unsent` are encrypted bytes that the socket has not taken. They end a piece of `_offered` bytes, which
    the connection offers again.
    """

    __slots__ = (
        "_connected",
        "_incoming",
        "_offered",
        "_outgoing",
        "_read",
        "_shared",
        "_tls",
        "_unsent",
        "fileno",
        "has_received",
    )

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, shared: memoryview) -> None:
        """`shared` is the memory of `shared_buffer` that all transports of one reactor receive into."""
        self._shared = shared
        self._connected = connected
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._read = cast("Callable[[int, memoryview], int]", self._tls.read)
        self._unsent = _NOTHING
        self._offered = 0
        self.has_received = False
        self.fileno = connected.fileno

    # -- the handshake

    def handshake(self) -> int:
        """Take the step for which bytes have come, or room for them; returns the events that the handshake
        waits for, 0 at its end. Raises ssl.SSLError if it fails, OSError if the connection breaks.
        """
        if self._unsent:
            if not self._flush():
                return WRITE
        elif not self._receive_step():
            return READ
        is_done = self._shake()
        if not self._flush():
            return WRITE
        if is_done:
            # The first request may have come with the last step.
            self.has_received = self._incoming.pending > 0
            return 0
        return READ

    @property
    def awaits_finished(self) -> bool:
        """Whether only the client's Finished of TLS 1.3 is missing: no signature, key exchange or certificate
        is left to compute or verify.
        """
        # OpenSSL tells the suite from the server's flight on, which comes after a HelloRetryRequest.
        suite = self._tls.cipher()
        is_agreed = suite is not None and suite[1] == "TLSv1.3"
        return is_agreed and self._tls.context.verify_mode == ssl.CERT_NONE

    def _shake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            self._send_alert()
            raise
        return True

    def _receive_step(self) -> bool:
        try:
            content = self._connected.recv(HANDSHAKE_BYTES)
        except BlockingIOError:
            return False
        if content:
            self._incoming.write(content)
        else:
            self._incoming.write_eof()
        return True

    @property
    def certificate(self) -> bytes | None:
        """The certificate of the peer, if it has shown one."""
        return self._tls.getpeercert(binary_form=True)

    # -- receiving

    def receive_into(self, buffer: memoryview) -> int:
        """See `transport.Transport`."""
        try:
            if self.has_received:
                received = self._decrypt(buffer)
            else:
                content = self._shared[: len(buffer) + ENVELOPE_BYTES]
                size = self._connected.recv_into(content)
                if not size:
                    return 0
                received = self._decrypt_pieces(content[:size], buffer)
        except ssl.SSLError:
            self._send_alert()
            raise
        if self._outgoing.pending:
            self._flush()
        if not received and not self.has_received:
            raise BlockingIOError
        return received

    def _decrypt_pieces(self, content: memoryview, buffer: memoryview) -> int:
        received = 0
        for position in range(0, len(content), RECEIVED_PIECE_BYTES):
            self._incoming.write(content[position : position + RECEIVED_PIECE_BYTES])
            received += self._decrypt(buffer[received:])
        return received

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypt until the buffer is full or no whole record is left. `has_received` is True afterwards if
        there may be more, or the end of the stream.
        """
        read, incoming = self._read, self._incoming
        received, limit, size = 0, len(buffer), 1
        try:
            while received < limit:
                size = read(limit, buffer[received:])
                received += size
                if not size or not incoming.pending:
                    break
        except ssl.SSLWantReadError:
            self.has_received = False
        else:
            self.has_received = not size or incoming.pending > 0 or self._tls.pending() > 0
        return received

    # -- sending

    def send(self, content: bytes | bytearray | memoryview) -> int:
        """See `transport.Transport`."""
        return self._write(content, 0)

    def send_gathered(
        self, contents: Sequence[bytes | bytearray | memoryview], *, is_more_to_come: bool
    ) -> int:
        """See `transport.Transport`. Small pieces share a record."""
        content = contents[0] if len(contents) == 1 else b"".join(contents)
        return self._write(content, MORE if is_more_to_come else 0)

    def send_slice(self, descriptor: int, position: int, length: int) -> int:
        """See `transport.Transport`."""
        taken = self._finish()
        while taken < length:
            piece = os.pread(descriptor, min(length - taken, SENT_PIECE_BYTES), position + taken)
            if not piece:
                break
            if not self._write_piece(piece, 0):
                if not taken:
                    raise BlockingIOError
                break
            taken += len(piece)
        return taken

    def _write(self, content: bytes | bytearray | memoryview, flags: int) -> int:
        taken = self._finish()
        whole = memoryview(content)
        while taken < len(whole):
            piece = whole[taken : taken + SENT_PIECE_BYTES]
            if not self._write_piece(piece, flags):
                if not taken:
                    raise BlockingIOError
                break
            taken += len(piece)
        return taken

    def _write_piece(self, piece: bytes | memoryview, flags: int) -> bool:
        """Encrypt and send; returns whether all of it has left."""
        written = self._tls.write(piece)
        assert written == len(piece), "OpenSSL takes a piece whole"
        has_left = self._flush(flags)
        if not has_left:
            self._offered = written
        return has_left

    def _finish(self) -> int:
        """Send the rest of an unfinished piece; returns the number of its bytes, which are offered first."""
        if self._unsent and not self._flush():
            raise BlockingIOError
        offered, self._offered = self._offered, 0
        return offered

    def _flush(self, flags: int = 0) -> bool:
        """Send what is encrypted; returns whether all of it has left."""
        unsent = self._unsent
        if self._outgoing.pending:
            encrypted = self._outgoing.read()
            unsent = memoryview(b"".join((unsent, encrypted)) if unsent else encrypted)
        if unsent:
            try:
                sent = self._connected.send(unsent, flags)
            except BlockingIOError:
                sent = 0
            self._unsent = unsent = unsent[sent:]
            if len(unsent) > UNSENT_BYTES_MAX:
                raise ConnectionAbortedError(errno.ECONNABORTED, "the peer does not read what it asks for")
        return not unsent

    # -- the end

    def close(self) -> None:
        """See `transport.Transport`. The peer is told that the stream ends here, if the socket takes it."""
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        self._send_alert()
        self._connected.close()

    def _send_alert(self) -> None:
        """Send what OpenSSL says last, if the socket takes it."""
        with contextlib.suppress(OSError):
            self._flush()
