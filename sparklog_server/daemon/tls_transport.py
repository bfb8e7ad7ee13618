"""The byte stream of a connection with TLS: records over a non-blocking socket.

    connection ──► TlsTransport ──► ssl.SSLSocket ──► socket
                        └── a slice: pread ─► write, in pieces of `PIECE_BYTES`

OpenSSL reads and writes the socket itself: with `ssl.MemoryBIO` between them, receiving took 1.5 times the
processor time, and sending the same. This is also where kernel TLS would stand, which sends a slice without
reading it; Python's ssl cannot turn it on.

A record that the socket takes only a part of must be written again with the same bytes. They are kept, and
not counted as taken until they have left: the connection offers them again, at the front.
"""

import contextlib
import os
import ssl
from collections.abc import Sequence
from typing import Final

PIECE_BYTES: Final = 64 << 10
"""Four records a call."""
FOLLOWED_BYTES: Final = 512
"""A record of this size or more is usually followed by another one: it is worth another call."""


class TlsTransport:
    """See `transport.Transport`. The handshake is done."""

    __slots__ = ("_follows", "_receive", "_send", "_tls", "_unfinished", "fileno")

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls
        self._receive = tls.recv_into
        self._send = tls.send
        self._unfinished: bytes | None = None
        self._follows = False  # the last call filled the buffer
        self.fileno = tls.fileno

    @property
    def has_received(self) -> bool:
        """See `transport.Transport`."""
        return self._tls.pending() > 0

    def receive_into(self, buffer: memoryview) -> int:
        """Receive the records that have arrived, until the buffer is full; see `transport.Transport`."""
        try:
            received = size = self._receive(buffer)
        except ssl.SSLWantReadError:
            self._follows = False
            raise BlockingIOError from None
        limit = len(buffer)
        if size >= FOLLOWED_BYTES or self._follows:
            while size and received < limit:
                size = self._more(buffer[received:])
                received += size
            self._follows = size > 0
        return received

    def _more(self, buffer: memoryview) -> int:
        try:
            return self._receive(buffer)
        except ssl.SSLWantReadError:
            return 0

    def send(self, content: bytes | bytearray | memoryview) -> int:
        """See `transport.Transport`."""
        return self._write(content) if self._unfinished is None else self._finish(len(content))

    def send_gathered(
        self, contents: Sequence[bytes | bytearray | memoryview], *, is_more_to_come: bool
    ) -> int:
        """See `transport.Transport`. Small pieces share a record."""
        if self._unfinished is not None:
            return self._finish(sum(map(len, contents)))
        return self._write(contents[0] if len(contents) == 1 else b"".join(contents))

    def send_slice(self, descriptor: int, position: int, length: int) -> int:
        """See `transport.Transport`."""
        if self._unfinished is not None:
            return self._finish(length)
        taken = 0
        while taken < length:
            piece = os.pread(descriptor, min(length - taken, PIECE_BYTES), position + taken)
            if not piece:
                break
            try:
                taken += self._write(piece)
            except BlockingIOError:
                if not taken:
                    raise
                break
        return taken

    def close(self) -> None:
        """See `transport.Transport`. The peer is told that the stream ends here, if the socket takes it."""
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        self._tls.close()

    def _write(self, content: bytes | bytearray | memoryview) -> int:
        whole = memoryview(content)
        taken = 0
        while taken < len(whole):
            piece = whole[taken : taken + PIECE_BYTES]
            try:
                self._send(piece)
            except ssl.SSLWantWriteError:
                self._unfinished = bytes(piece)
                if not taken:
                    raise BlockingIOError from None
                break
            taken += len(piece)
        return taken

    def _finish(self, offered: int) -> int:
        """Write the unfinished bytes again, with which the offered ones begin."""
        unfinished = self._unfinished
        assert unfinished is not None
        assert len(unfinished) <= offered, "the bytes that were not taken are not offered again"
        try:
            self._send(unfinished)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        self._unfinished = None
        return len(unfinished)
