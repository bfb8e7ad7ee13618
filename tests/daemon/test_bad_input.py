"""Input outside Kafka's protocol costs its sender the connection and a line in the log, and no other client
anything.
"""

import contextlib
import signal
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.broker_process import BrokerProcess, broker, is_served, receive_until_closed


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker(tmp_path / "data") as process:
        yield process


def tls_hello() -> bytes:
    """The first bytes that a TLS client sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="broker").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(struct.pack(">i", 2_000_000_000) + b"x", id="a frame too long"),
        pytest.param(struct.pack(">i", -1), id="a negative length"),
        pytest.param(struct.pack(">ihhi", 8, 18, 0, 1), id="a header cut short"),
        pytest.param(
            struct.pack(">ihhih4s", 14, 3, 1, 1, 4, b"\xff\xfe\xfd\xfc"), id="a client id that is not UTF-8"
        ),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1_000_000_000), id="a lying count"),
        pytest.param(struct.pack(">ihhih", 10, 9999, 0, 1, -1), id="an unknown API"),
        pytest.param(b"\x89PNG\r\n\x1a\n" * 100, id="garbage"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", id="an HTTP GET"),
        pytest.param(tls_hello(), id="a TLS hello"),
    ],
)
def test_nonsense_closes_its_connection_with_one_line_and_nobody_elses(
    process: BrokerProcess, sent: bytes
) -> None:
    address = process.address()
    with socket.create_connection(address) as bystander, socket.create_connection(address) as offender:
        assert is_served(bystander)
        offender.sendall(sent)
        assert receive_until_closed(offender) == b""
        assert is_served(bystander)
    code, _, err = process.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in err
    assert (
        len([line for line in err.splitlines() if "reason=" in line and "metadata-log-begins" not in line])
        == 1
    )


def test_a_frame_that_never_ends_is_no_burden_to_others(process: BrokerProcess) -> None:
    address = process.address()
    with socket.create_connection(address) as slow, socket.create_connection(address) as other:
        slow.sendall(struct.pack(">ihhih", 50_000_000, 0, 9, 1, -1) + bytes(1000))
        assert is_served(other)
    assert process.end(signal.SIGTERM)[0] == 0
