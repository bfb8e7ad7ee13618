"""A live broker with a plain listener and one with SASL, and the claims that hold after every bad input."""

import contextlib
import os
import re
import select
import signal
import socket
import struct
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Self

import pytest

from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from sparklog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from sparklog.wire.schema import Message
from tests.daemon.broker_process import BrokerProcess, is_served, receive_until_closed

MIB = 1 << 20
GROWTH_MAX = 64 * MIB
PATIENCE_S = 20
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a-secret";'


class Door(Enum):
    """Where a hostile client stands."""

    PLAIN = "a listener without authentication"
    BEFORE = "a SASL listener, before authentication"
    AFTER = "a SASL listener, after authentication"


EVERY_DOOR = pytest.mark.parametrize("door", Door, ids=lambda door: door.name.lower())
UNAUTHENTICATED = pytest.mark.parametrize(
    "door", [Door.PLAIN, Door.BEFORE], ids=lambda door: door.name.lower()
)


class Client:
    """A connection whose owner writes bytes by hand."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, content: bytes) -> None:
        """Send what the broker takes: it may have closed the connection before the end."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(content)

    def request(self, request: Message, version: int) -> None:
        for chunk in encode_request(request, version, 1, "hostile"):
            assert isinstance(chunk, bytes)
            self.send(chunk)

    def reply(self, reply_type: type[Message], version: int) -> Message:
        length = int.from_bytes(self.receive(4), "big")
        return decode_reply(reply_type, version, self.receive(length))[1]

    def receive(self, size: int) -> bytes:
        received = receive_until_closed(self.socket, at_most=size)
        assert len(received) == size, f"closed after {received!r}"
        return received

    def ask(self, request: Message, version: int, reply_type: type[Message]) -> Message:
        self.request(request, version)
        return self.reply(reply_type, version)

    def begin(self, mechanism: str = "PLAIN") -> None:
        """Choose a mechanism."""
        told = self.ask(SaslHandshakeRequest(mechanism), 1, SaslHandshakeResponse)
        assert isinstance(told, SaslHandshakeResponse)
        assert told.error_code == 0

    def respond(self, token: bytes) -> SaslAuthenticateResponse:
        told = self.ask(SaslAuthenticateRequest(token), 2, SaslAuthenticateResponse)
        assert isinstance(told, SaslAuthenticateResponse)
        return told

    def authenticate(self) -> None:
        self.begin()
        assert self.respond(b"\0alice\0a-secret").error_code == 0

    def is_closed(self) -> bool:
        """Whether the broker closes the connection without sending anything; waits for it."""
        return receive_until_closed(self.socket) == b""

    def is_open(self) -> bool:
        """Whether neither bytes nor the end of the connection have come so far."""
        return not select.select([self.socket], [], [], 0)[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


class Target:
    """The broker."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        process.address()
        line = next(line for line in process.stderr if " ready " in line)
        found = {name: (host, int(port)) for name, host, port in re.findall(r"(\w+)://([^:,]+):(\d+)", line)}
        self._addresses = {
            Door.PLAIN: found["PLAINTEXT"],
            Door.BEFORE: found["SASL"],
            Door.AFTER: found["SASL"],
        }
        os.set_blocking(process.stderr.fileno(), False)

    def client(self, door: Door) -> Client:
        client = Client(self._addresses[door])
        if door is Door.AFTER:
            client.authenticate()
        return client

    def memory(self) -> int:
        """The resident memory in bytes; the peak begins again here."""
        process = Path(f"/proc/{self.process.child.pid}")
        (process / "clear_refs").write_text("5")
        return _kib(process / "status", "VmRSS") * 1024

    def peak(self) -> int:
        """The most resident memory since the last call of `memory`."""
        return _kib(Path(f"/proc/{self.process.child.pid}/status"), "VmHWM") * 1024

    def log(self) -> str:
        """The lines of the log since the last call."""
        read = b""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.process.stderr.fileno(), 1 << 16):
                read += part
        return read.decode()


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        f"listener.name.sasl.plain.sasl.jaas.config={JAAS}",
        "connection.failed.authentication.delay.ms=10",
        f"queued.max.request.bytes={32 * MIB}",  # half of what the claim allows
    )
    options = [word for setting in settings for word in ("--set", setting)]
    data_dir = str(tmp_path_factory.mktemp("hostile") / "data")
    with BrokerProcess("--data-dir", data_dir, *options) as process:
        yield Target(process)
        code, _, _ = process.end(signal.SIGTERM)
        assert code == 0


@pytest.fixture
def target(started: Target) -> Iterator[Target]:
    """The broker; after the test, other clients still get their answers, and its memory did not peak."""
    with started.client(Door.PLAIN) as bystander, started.client(Door.AFTER) as user:
        assert is_served(bystander.socket)
        assert is_served(user.socket)
        before = started.memory()
        yield started
        assert is_served(bystander.socket)
        assert is_served(user.socket)
        grown = started.peak() - before
    assert started.process.child.poll() is None
    assert grown <= GROWTH_MAX, f"{grown / MIB:.1f} MiB more"
    assert "Traceback" not in started.log()


def _kib(status: Path, name: str) -> int:
    return int(status.read_text().partition(f"{name}:")[2].split()[0])


def frame(api_key: int, version: int, body: bytes = b"") -> bytes:
    """A request with a null client id, whose header has no tagged fields."""
    content = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(content)) + content
