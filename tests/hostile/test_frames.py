"""Frames that are none, never end, or are too long cost their sender the connection."""

import contextlib
import ssl
import struct

import pytest

from sparklog.wire.frame import SPARES_MAX
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.hostile.conftest import BEFORE, EVERY_DOOR, MIB, UNAUTHENTICATED, Door, Target, frame

VERSIONS = ApiVersionsRequest(client_software_name="hostile", client_software_version="1")
HTTP = b"GET / HTTP/1.1\r\nHost: broker\r\nUser-Agent: hostile\r\n\r\n"
FRAME_MAX = {door: 100 * MIB if door.is_authenticated else 524_288 for door in Door}
SILENT_CLIENTS = 64
PIECES = 100


def tls_hello() -> bytes:
    """The first bytes that a TLS client sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="broker").do_handshake()
    return outgoing.read()


@EVERY_DOOR
@pytest.mark.parametrize("length", [-1, -(2**31), 0, 1, 2**31 - 1])
def test_a_length_that_no_request_has_closes_the_connection(target: Target, door: Door, length: int) -> None:
    with target.client(door) as client:
        client.send(struct.pack(">i", length) + bytes(max(0, min(length, 1))))
        assert client.is_closed()


@EVERY_DOOR
def test_a_frame_of_one_byte_more_than_the_limit_closes_the_connection(target: Target, door: Door) -> None:
    with target.client(door) as client:
        client.send(struct.pack(">i", FRAME_MAX[door] + 1))
        assert client.is_closed()


@EVERY_DOOR
def test_a_length_and_then_silence_holds_no_memory(target: Target, door: Door) -> None:
    """As in Kafka, such a connection stays open until connections.max.idle.ms. The first frames in pieces
    give their size to the spare buffers of the process.
    """
    with contextlib.ExitStack() as connected:
        silent = [connected.enter_context(target.client(door)) for _ in range(SILENT_CLIENTS)]
        other = connected.enter_context(target.client(Door.PLAIN))
        for client in silent[:SPARES_MAX]:
            client.send(struct.pack(">i", FRAME_MAX[door]))
        assert isinstance(other.ask(VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)
        before = target.memory()
        for client in silent[SPARES_MAX:]:
            client.send(struct.pack(">i", FRAME_MAX[door]))
        assert isinstance(other.ask(VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)
        assert all(client.is_open() for client in silent)
        assert target.memory() - before < 8 * MIB


@EVERY_DOOR
def test_a_request_that_comes_byte_by_byte_is_answered(target: Target, door: Door) -> None:
    content = frame(18, 0)
    with target.client(door) as client, target.client(Door.PLAIN) as other:
        for position in range(len(content)):
            assert client.is_open()
            client.send(content[position : position + 1])
            other.ask(VERSIONS, 3, ApiVersionsResponse)
        assert isinstance(client.reply(ApiVersionsResponse, 0), ApiVersionsResponse)


@BEFORE
@pytest.mark.parametrize("claimed", [100 * MIB, 524_289, 524_288])
def test_100_mib_before_authentication_are_not_kept(target: Target, door: Door, claimed: int) -> None:
    piece = struct.pack(">i", claimed) + bytes(MIB - 4)
    with target.client(door) as client:
        for _ in range(100):
            client.send(piece)
        assert client.is_closed()


@BEFORE
def test_100_mib_of_requests_before_authentication_get_one_answer(target: Target, door: Door) -> None:
    requests = frame(18, 0) * (MIB // len(frame(18, 0)))
    with target.client(door) as client:
        client.send(requests)
        assert isinstance(client.reply(ApiVersionsResponse, 0), ApiVersionsResponse)
        for _ in range(99):
            client.send(requests)
        assert client.is_closed()


@BEFORE
def test_many_incomplete_frames_before_authentication_hold_bounded_memory(target: Target, door: Door) -> None:
    with contextlib.ExitStack() as connected:
        for _ in range(PIECES):
            client = connected.enter_context(target.client(door))
            client.send_at_once(struct.pack(">i", 524_288) + bytes(524_000))
        with target.client(Door.PLAIN) as other:
            other.ask(VERSIONS, 3, ApiVersionsResponse)


@UNAUTHENTICATED
@pytest.mark.parametrize("sent", [pytest.param(HTTP, id="http"), pytest.param(tls_hello(), id="tls")])
def test_another_protocol_closes_the_connection(target: Target, door: Door, sent: bytes) -> None:
    with target.client(door) as client:
        client.send(sent)
        assert client.is_closed()
