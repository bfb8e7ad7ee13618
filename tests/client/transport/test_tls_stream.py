"""The client's stream with TLS against a server of Python's ssl."""

import contextlib
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

from sparklog.client.transport.stream import Output
from sparklog.client.transport.tls_stream import TlsStream
from sparklog.tls.contexts import client_context, server_context
from sparklog.tls.keys import TlsKeys
from tests.certificates import authority, issued

MIB = 1 << 20


class Server:
    """Accepts one connection on a thread, and lets `serve` have it."""

    def __init__(self, serve: Callable[[ssl.SSLSocket], None]) -> None:
        served = issued("CN=broker")
        self._context = server_context(
            TlsKeys(keystore_key=served.key_pem(), keystore_certificate_chain=served.chain_pem)
        )
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(20)
        self.address = (socket.AF_INET, self._listening.getsockname())
        self._serve = serve
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        connected, _ = self._listening.accept()
        connected.settimeout(20)
        with (
            connected,
            contextlib.suppress(OSError),
            self._context.wrap_socket(connected, server_side=True) as tls,
        ):
            self._serve(tls)

    def end(self) -> None:
        self._thread.join(20)
        self._listening.close()


@contextlib.contextmanager
def opened(serve: Callable[[ssl.SSLSocket], None], name: str = "localhost") -> Iterator[TlsStream]:
    server = Server(serve)
    context = client_context(TlsKeys(truststore_certificates=authority().pem))
    stream = TlsStream(server.address, context, name)
    try:
        yield stream
    finally:
        stream.close()
        server.end()


def shake_hands(stream: TlsStream) -> None:
    while not stream.handshake():
        wait(stream)


def wait(stream: TlsStream) -> None:
    writable = [stream] if stream.wants_write else []
    select.select([stream], writable, [], 20)


def test_what_a_slow_server_does_not_take_is_sent_again_whole() -> None:
    content = os.urandom(16 * MIB)
    received = bytearray()

    def serve(tls: ssl.SSLSocket) -> None:
        while len(received) < len(content):
            received.extend(tls.recv(1000 if len(received) < MIB else MIB))

    with opened(serve) as stream:
        shake_hands(stream)
        output = Output()
        was_full = False
        for start in range(0, len(content), 100_000):
            output.add(content[start : start + 100_000])
            with contextlib.suppress(BlockingIOError):
                output.send(stream)
            was_full = was_full or bool(output)
        while output:
            select.select([], [stream], [], 20)
            with contextlib.suppress(BlockingIOError):
                output.send(stream)
    assert was_full
    assert received == content


def test_records_fill_the_buffer_and_the_end_is_told() -> None:
    content = os.urandom(300_000)
    with opened(lambda tls: tls.sendall(content)) as stream:
        shake_hands(stream)
        received = b""
        buffer = memoryview(bytearray(70_000))
        while True:
            try:
                size = stream.recv_into(buffer)
            except BlockingIOError:
                wait(stream)
                continue
            if not size:
                break
            received += buffer[:size]
    assert received == content


def test_a_certificate_for_another_name_breaks_the_handshake() -> None:
    with (
        opened(ssl.SSLSocket.close, "elsewhere") as stream,
        pytest.raises(OSError, match="not valid for 'elsewhere'"),
    ):
        shake_hands(stream)


def test_a_server_without_tls_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        context = client_context(TlsKeys(truststore_certificates=authority().pem))
        stream = TlsStream((socket.AF_INET, listening.getsockname()), context, "localhost")
        connected, _ = listening.accept()
        connected.sendall(bytes(100))
        with connected, pytest.raises(OSError, match="is this a listener with TLS"):
            shake_hands(stream)
        stream.close()
