"""Many connections: crowds, storms, handshakes that stay half open, and certificates that do not pass."""

import contextlib
import resource
import socket
import ssl
import struct
import subprocess
from pathlib import Path

import pytest

from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.certificates import Issued, issued
from tests.daemon.broker_process import is_served, receive_until_closed, wait_until
from tests.daemon.test_tls import hello_of
from tests.hostile.conftest import (
    EVERY_DOOR,
    GROWTH_MAX,
    Door,
    Target,
    doors,
    trusting,
)
from tests.tools import require_command

VERSIONS = ApiVersionsRequest(client_software_name="hostile", client_software_version="1")
CROWD = 10_000
STORM = 500
HALF_OPEN = 1_200
"""More unfinished handshakes than the broker keeps."""
SPARE_DESCRIPTORS = 500
HANDSHAKE_FAILURE, PROTOCOL_VERSION = bytes((2, 40)), bytes((2, 70))
"""Fatal alerts."""


def crowd() -> int:
    """As many connections as the limit of files allows, each of which takes one on both sides."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(CROWD, soft - SPARE_DESCRIPTORS)


@pytest.mark.long
@doors(Door.PLAIN, Door.BEFORE, Door.TLS_BEFORE)
def test_ten_thousand_silent_connections_keep_no_client_out(started: Target, door: Door) -> None:
    """On a TLS listener they are half-open handshakes, of which the broker keeps 1000; where there is no slot
    left, the connection that has been idle longest makes room.
    """
    with contextlib.ExitStack() as connected:
        active = connected.enter_context(started.client(Door.TLS_AFTER))
        before = started.memory()
        for number in range(crowd()):
            connected.enter_context(contextlib.closing(socket.create_connection(started.address(door), 20)))
            if number % 500 == 0:
                assert is_served(active.socket)
        newcomer = connected.enter_context(started.client(door))
        assert isinstance(newcomer.ask(VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)
        assert is_served(active.socket)
        assert started.peak() - before <= GROWTH_MAX
    assert started.process.child.poll() is None


@EVERY_DOOR
def test_a_storm_of_connections_that_end_at_once_is_no_burden(target: Target, door: Door) -> None:
    with target.client(door) as other:
        for number in range(STORM):
            with contextlib.closing(socket.create_connection(target.address(door), 20)) as one:
                if number % 2:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                if number % 3 == 0:
                    one.sendall(b"\0\0")
        assert isinstance(other.ask(VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)


def test_half_open_handshakes_keep_no_client_out_and_end(target: Target) -> None:
    hello, address = hello_of(0x0303), target.address(Door.TLS_BEFORE)
    with contextlib.ExitStack() as connected:
        halves = []
        for number in range(HALF_OPEN):
            one = connected.enter_context(contextlib.closing(socket.create_connection(address, 20)))
            one.sendall(hello[: number % len(hello)])
            halves.append(one)
        with target.client(Door.TLS_AFTER) as other:
            assert isinstance(other.ask(VERSIONS, 3, ApiVersionsResponse), ApiVersionsResponse)
        for one in halves:
            assert len(receive_until_closed(one)) < 16  # at most an alert


# -- TLS


def test_versions_before_tls_1_2_get_an_alert(target: Target) -> None:
    alerts = {0x0300: HANDSHAKE_FAILURE, 0x0301: PROTOCOL_VERSION, 0x0302: PROTOCOL_VERSION}
    for version, alert in alerts.items():
        with socket.create_connection(target.address(Door.TLS_BEFORE), timeout=20) as client:
            client.sendall(hello_of(version))
            assert receive_until_closed(client)[-2:] == alert


def test_renegotiation_is_refused(target: Target) -> None:
    host, port = target.address(Door.TLS_BEFORE)
    run = subprocess.run(
        [require_command("openssl"), "s_client", "-connect", f"{host}:{port}", "-tls1_2", "-noservername"],
        input=b"R\n",  # renegotiate
        capture_output=True,
        timeout=60,
        check=False,
    )
    said = run.stdout + run.stderr
    assert b"RENEGOTIATING" in said
    assert b"no renegotiation" in said, said


def is_refused(target: Target, context: ssl.SSLContext) -> bool:
    """Whether the listener that requires certificates ends the connection without serving a request."""
    with contextlib.closing(socket.create_connection(target.mutual, timeout=20)) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                return not is_served(client)
        except (ssl.SSLError, ConnectionError):
            return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_does_not_pass_ends_the_connection(
    target: Target, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    good, another, expired = (trusting() for _ in range(3))
    present(good, issued("CN=client"), tmp_path)
    present(another, issued("CN=client", by="another"), tmp_path)
    present(expired, issued("CN=client", days_old=3), tmp_path)
    for context in (good, another, expired, without := trusting()):
        context.minimum_version = context.maximum_version = version
    assert not is_refused(target, good)
    assert [is_refused(target, one) for one in (another, expired, without)] == [True, True, True]


def present(context: ssl.SSLContext, client: Issued, directory: Path) -> None:
    context.load_cert_chain(client.write_pem(directory / "client.pem"))


@pytest.mark.parametrize("door", [Door.TLS_BEFORE])
def test_a_client_refuses_a_broker_by_another_name_or_authority(target: Target, door: Door) -> None:
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context, name in ((trusting(), "elsewhere"), (stranger, "localhost")):
        with (
            contextlib.closing(socket.create_connection(target.address(door), timeout=20)) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            context.wrap_socket(plain, server_hostname=name)


def test_the_memory_of_a_crowd_is_given_back(target: Target) -> None:
    before = target.memory()
    for door in (Door.PLAIN, Door.BEFORE, Door.TLS_BEFORE):
        with contextlib.ExitStack() as connected:
            for _ in range(100):
                connected.enter_context(target.client(door))
    wait_until(lambda: target.memory() - before < GROWTH_MAX // 8)
