"""The byte stream of a connection with TLS: records against a client of Python's ssl over a socket pair."""

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.tls.contexts import client_context, server_context
from sparklog.tls.keys import TlsKeys
from sparklog_server.daemon.tls_transport import SENT_PIECE_BYTES, TlsTransport, shared_buffer
from sparklog_server.daemon.transport import Transport
from sparklog_server.security.principals import Identity
from tests.certificates import authority, issued
from tests.daemon.conftest import Rig
from tests.daemon.echo import HEADER

MIB = 1 << 20


def pair(*, first_request: bytes = b"") -> tuple[TlsTransport, ssl.SSLSocket]:
    """A transport and its client, after the handshake. The client sends its first request at once."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    served = issued("CN=broker")
    keys = TlsKeys(keystore_key=served.key_pem(), keystore_certificate_chain=served.chain_pem)
    server = TlsTransport(ours, server_context(keys), shared_buffer())
    client = client_context(TlsKeys(truststore_certificates=authority().pem)).wrap_socket(
        theirs, server_hostname="localhost", do_handshake_on_connect=False
    )
    is_done = False
    while not is_done:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
            is_done = True
            if first_request:
                client.send(first_request)
        server.handshake()
    return server, client


@pytest.fixture
def ends() -> Iterator[tuple[TlsTransport, ssl.SSLSocket]]:
    transport, client = pair()
    yield transport, client
    client.close()
    transport.close()


def all_received(client: ssl.SSLSocket, size: int) -> bytes:
    """What is there to be read, at most so many bytes."""
    received = b""
    with contextlib.suppress(ssl.SSLWantReadError):
        while len(received) < size and (part := client.recv(size - len(received))):
            received += part
    return received


def test_pieces_and_a_slice_leave_in_order_and_a_call_that_would_wait_is_refused(
    ends: tuple[TlsTransport, ssl.SSLSocket], tmp_path: Path
) -> None:
    transport: Transport = ends[0]
    client = ends[1]
    (tmp_path / "file").write_bytes(b"0123456789")
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    assert transport.send(b"a") == 1
    assert transport.send_gathered([b"bc", bytearray(b"d")], is_more_to_come=True) == 3
    assert transport.send_slice(descriptor, 2, 3) == 3
    assert transport.send_slice(descriptor, 10, 1) == 0
    os.close(descriptor)
    assert all_received(client, 7) == b"abcd234"
    buffer = memoryview(bytearray(10))
    with pytest.raises(BlockingIOError):
        transport.receive_into(buffer)
    client.send(b"xy")
    assert (transport.receive_into(buffer), bytes(buffer[:2])) == (2, b"xy")


def test_the_end_of_the_stream_is_told_with_and_without_a_closing_alert() -> None:
    for says_so in (True, False):
        transport, client = pair()
        assert all_received(client, 1) == b""  # the tickets: unread ones would break the stream
        if says_so:
            with contextlib.suppress(ssl.SSLWantReadError):
                client.unwrap()
        client.close()
        assert transport.receive_into(memoryview(bytearray(10))) == 0
        transport.close()


def test_the_end_of_the_stream_is_told_after_the_bytes_that_came_with_it(
    ends: tuple[TlsTransport, ssl.SSLSocket],
) -> None:
    transport, client = ends
    client.send(b"xy")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.unwrap()
    buffer = memoryview(bytearray(10))
    # The client's socket stays open: the reactor has nothing to report.
    assert (transport.receive_into(buffer), transport.has_received) == (2, True)
    assert transport.receive_into(buffer) == 0


def test_a_peer_that_closes_is_told_by_an_alert() -> None:
    transport, client = pair()
    transport.close()
    assert client.recv(10) == b""
    client.close()


def test_bytes_of_a_record_that_is_larger_than_the_buffer_are_told_to_be_there(
    ends: tuple[TlsTransport, ssl.SSLSocket],
) -> None:
    transport, client = ends
    client.send(b"0123456789")
    buffer = memoryview(bytearray(4))
    assert (transport.receive_into(buffer), bytes(buffer), transport.has_received) == (4, b"0123", True)
    assert (transport.receive_into(buffer), bytes(buffer), transport.has_received) == (4, b"4567", True)
    assert (transport.receive_into(buffer), bytes(buffer[:2]), transport.has_received) == (2, b"89", False)


def test_several_records_fill_one_buffer(ends: tuple[TlsTransport, ssl.SSLSocket]) -> None:
    transport, client = ends
    content = os.urandom(60_000)
    client.send(content[:40_000])
    client.send(content[40_000:])
    buffer = memoryview(bytearray(100_000))
    assert (transport.receive_into(buffer), bytes(buffer[:60_000])) == (60_000, content)


def test_what_a_full_socket_does_not_take_is_sent_again_whole(
    ends: tuple[TlsTransport, ssl.SSLSocket],
) -> None:
    transport, client = ends
    content = os.urandom(4 * MIB)
    taken, received = 0, b""
    while len(received) < len(content):
        with contextlib.suppress(BlockingIOError):
            # Other pieces than before, from the first byte that was not taken.
            rest = memoryview(content)[taken:]
            taken += transport.send_gathered([rest[:100], rest[100:]], is_more_to_come=False) if rest else 0
        received += all_received(client, 100_000)
    assert (taken, received) == (len(content), content)


class TlsRig:
    """`rig` with clients over TLS."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def client(self) -> ssl.SSLSocket:
        transport, client = pair()
        self.rig.clients.append(client)
        self.rig.pump.established(transport, "SSL", ("peer", 2), Identity("User:app", ("Group:ops",)))
        return client

    def exchange(self, client: ssl.SSLSocket, request: bytes, size: int, turns_max: int = 10_000) -> bytes:
        sent, received = 0, b""
        for _ in range(turns_max):
            if sent < len(request):
                with contextlib.suppress(ssl.SSLWantWriteError):
                    sent += client.send(request[sent : sent + SENT_PIECE_BYTES])
            self.rig.turn(wait_s=0.0 if sent < len(request) else 0.02)
            received += all_received(client, size - len(received))
            if len(received) >= size:
                return received
        raise AssertionError(f"{len(received)} of {size} bytes in {turns_max} turns")


@pytest.fixture
def tls(rig: Rig) -> TlsRig:
    return TlsRig(rig)


def test_the_broker_is_told_who_a_client_is(tls: TlsRig) -> None:
    tls.client()
    assert tls.rig.broker.principals == [("User:app", ("Group:ops",))]


def test_a_request_that_comes_with_the_last_step_of_the_handshake_is_served(tls: TlsRig) -> None:
    transport, client = pair(first_request=b"echo a\n")
    tls.rig.clients.append(client)
    tls.rig.pump.established(transport, "SSL", ("peer", 2), Identity("User:app", ()))
    assert tls.exchange(client, b"", 1, turns_max=10) == b"a"


@pytest.mark.parametrize("length", [1, 4096, 40_000, MIB, 5 * MIB + 7])
def test_a_slice_arrives_byte_for_byte_between_its_neighbours(tls: TlsRig, length: int) -> None:
    content = os.urandom(length + 10)
    tls.rig.file.append(content)
    client = tls.client()
    expected = b"before" + HEADER + content[5 : 5 + length] + b"after"
    assert tls.exchange(client, b"echo before\nslice 5 %d\necho after\n" % length, len(expected)) == expected


def test_requests_that_one_record_holds_are_all_served_although_the_buffer_is_small(tls: TlsRig) -> None:
    tls.rig.broker.room = bytearray(700)
    client = tls.client()
    count = 2_000
    assert tls.exchange(client, b"echo x\n" * count, count) == b"x" * count


def test_requests_held_while_a_session_is_muted_are_served_when_it_is_not(tls: TlsRig) -> None:
    client = tls.client()
    (connection,) = tls.rig.pump.connections.values()
    tls.exchange(client, b"echo a\n", 1)
    connection.mute(is_muted=True)
    client.send(b"echo b\necho c\n")
    tls.rig.turn()
    connection.mute(is_muted=False)
    assert tls.exchange(client, b"", 2) == b"bc"
