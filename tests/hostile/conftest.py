"""A live broker with a plain listener, one with SASL and one with SASL and TLS, and the claims that hold
after every bad input.
"""

import contextlib
import os
import re
import select
import signal
import socket
import ssl
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
from sparklog_server.config.access_settings import STANDARD_AUTHORIZER
from tests.certificates import authority, issued, server_settings
from tests.daemon.broker_process import BrokerProcess, is_served, receive_until_closed
from tests.security.test_oauth import JWKS

MIB = 1 << 20
GROWTH_MAX = 64 * MIB
PATIENCE_S = 20
USERS = {"alice": "a-secret", "mallory": "m-secret", "empty": ""}
"""The users of PLAIN; alice is a super user, mallory has no rights."""
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = (
    f"{_MODULE} required " + " ".join(f'user_{name}="{password}"' for name, password in USERS.items()) + ";"
)
_HANDSHAKE_MS = 2_000


class Door(Enum):
    """Where a hostile client stands."""

    PLAIN = "a listener without authentication"
    BEFORE = "a SASL listener, before authentication"
    AFTER = "a SASL listener, after authentication"
    TLS_BEFORE = "a SASL_SSL listener, before authentication"
    TLS_AFTER = "a SASL_SSL listener, after authentication"

    @property
    def is_encrypted(self) -> bool:
        return self in (Door.TLS_BEFORE, Door.TLS_AFTER)

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has an identity, or needs none."""
        return self in (Door.PLAIN, Door.AFTER, Door.TLS_AFTER)


def doors(*chosen: Door) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("door", chosen, ids=lambda door: door.name.lower())


EVERY_DOOR = doors(*Door)
UNAUTHENTICATED = doors(Door.PLAIN, Door.BEFORE, Door.TLS_BEFORE)
BEFORE = doors(Door.BEFORE, Door.TLS_BEFORE)
SERVED = doors(Door.PLAIN, Door.AFTER, Door.TLS_AFTER)


class Client:
    """A connection whose owner writes bytes by hand."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def send(self, content: bytes) -> None:
        """Send what the broker takes: it may have closed the connection before the end."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self.socket.sendall(content)

    def send_at_once(self, content: bytes) -> None:
        """Send what the socket takes without waiting."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError, ssl.SSLError):
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

    def authenticate(self, user: str = "alice") -> None:
        self.begin()
        assert self.respond(f"\0{user}\0{USERS[user]}".encode()).error_code == 0

    def is_closed(self) -> bool:
        """Whether the broker closes the connection without sending anything; waits for it."""
        return receive_until_closed(self.socket) == b""

    def is_open(self) -> bool:
        """Whether neither bytes nor the end of the connection have come so far."""
        if not isinstance(self.socket, ssl.SSLSocket):
            return not select.select([self.socket], [], [], 0)[0]
        self.socket.setblocking(False)  # the tickets of TLS are no bytes of the protocol
        try:
            return self.socket.recv(1) is None
        except ssl.SSLWantReadError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)

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
            Door.TLS_BEFORE: found["SECURE"],
            Door.TLS_AFTER: found["SECURE"],
        }
        self.mutual = found["MUTUAL"]
        """The address of a listener that requires a certificate."""
        os.set_blocking(process.stderr.fileno(), False)

    def address(self, door: Door) -> tuple[str, int]:
        return self._addresses[door]

    def client(self, door: Door, user: str = "alice") -> Client:
        """A client at this door, authenticated as the user where the door demands it."""
        client = Client(self._addresses[door], trusting() if door.is_encrypted else None)
        if door in (Door.AFTER, Door.TLS_AFTER):
            client.authenticate(user)
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


def trusting() -> ssl.SSLContext:
    """A context of a client that trusts the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority().pem)
    return context


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("hostile")
    keys = directory / "keys.json"
    keys.write_bytes(JWKS)
    settings = server_settings(directory, issued("CN=broker")) | {
        "listeners": ",".join(
            f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SASL", "SECURE", "MUTUAL", "NODES")
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL,NODES:PLAINTEXT"
        ),
        "inter.broker.listener.name": "NODES",  # whose connections are never displaced
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": JAAS,
        "listener.name.secure.plain.sasl.jaas.config": JAAS,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sparklog.sasl.oauthbearer.allowed.urls": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "https://idp",
        "sasl.oauthbearer.expected.audience": "kafka",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:alice",
        "connection.failed.authentication.delay.ms": "10",
        "connections.max.reauth.ms": "3600000",
        "sparklog.ssl.handshake.timeout.ms": str(_HANDSHAKE_MS),
        "group.initial.rebalance.delay.ms": "0",
        # Together half of what the claim allows.
        "queued.max.request.bytes": str(16 * MIB),
        "sparklog.reply.memory.max": str(16 * MIB),
    }
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with BrokerProcess("--data-dir", str(directory / "data"), *options) as process:
        yield Target(process)
        code, _, _ = process.end(signal.SIGTERM)
        assert code == 0


@pytest.fixture
def target(started: Target) -> Iterator[Target]:
    """The broker; after the test, other clients still get their answers, and its memory did not peak."""
    with started.client(Door.PLAIN) as bystander, started.client(Door.TLS_AFTER) as user:
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
