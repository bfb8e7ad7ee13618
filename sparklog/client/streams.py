"""The streams of one client: plain, or with TLS by `security.protocol`."""

import socket
from collections.abc import Callable
from typing import Any

from sparklog.client.settings import ClientSettings
from sparklog.client.stream import Address, PlainStream, Stream


class Streams:
    """Opens streams. The context of TLS is built once; `ssl` is imported only for it."""

    def __init__(self, settings: ClientSettings) -> None:
        """Raises SettingsError if the key store or trust store cannot be read."""
        self._send_buffer = settings.send_buffer_bytes
        self._receive_buffer = settings.receive_buffer_bytes
        self._context = None
        if settings.security_protocol.endswith("SSL"):
            from sparklog.tls.contexts import client_context

            self._context = client_context(settings.tls)

    def open(self, address: Address, host: str) -> Stream:
        """Begin to connect to a server, whose certificate must be for `host`; raises OSError."""
        if self._context is None:
            return PlainStream(address, send_buffer=self._send_buffer, receive_buffer=self._receive_buffer)
        from sparklog.client.tls_stream import TlsStream

        return TlsStream(
            address,
            self._context,
            host,
            send_buffer=self._send_buffer,
            receive_buffer=self._receive_buffer,
        )


Resolved = list[Any] | OSError
"""The result of `socket.getaddrinfo`, or why a name has none."""
Resolve = Callable[[str, int, Callable[[Resolved], None]], None]
"""(host, port, told) looks up a name and calls `told`."""


def resolve(host: str, port: int, told: Callable[[Resolved], None]) -> None:
    """Look up a name, and wait for the result."""
    try:
        told(socket.getaddrinfo(host.encode() if host.isascii() else host, port, type=socket.SOCK_STREAM))
    except OSError as error:
        told(error)
    except UnicodeError as error:  # a label of the name is empty or too long
        told(OSError(str(error)))
