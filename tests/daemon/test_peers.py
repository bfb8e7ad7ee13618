"""The sockets of links against real sockets on loopback."""

import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

from sparklog.effects import LinkId, Loss
from sparklog_server.daemon import peers as module
from sparklog_server.daemon.jobs import Done, Job
from sparklog_server.daemon.peers import Peers
from sparklog_server.daemon.reactor import Reactor


class Links:
    """The owner: what each link received and how it was lost."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.peers = Peers(self, self.reactor)
        self.got = bytearray()
        self.losses: list[tuple[LinkId, Loss]] = []
        self.jobs: list[tuple[Job, Done]] = []
        self.room = bytearray(64)
        self.context: ssl.SSLContext | None = None
        self.events: list[str] = []
        self.addresses: list[tuple[str, int]] = []

    def link_buffer(self, link: LinkId) -> memoryview | None:
        return memoryview(self.room)

    def link_received(self, link: LinkId, size: int) -> None:
        self.got += self.room[:size]

    def link_lost(self, link: LinkId, loss: Loss) -> None:
        self.losses.append((link, loss))

    def run(self, job: Job, done: Done) -> None:
        self.jobs.append((job, done))

    def shake_hands(self, job: Job, done: Done) -> None:
        done(job())

    def secure(self, link: LinkId) -> ssl.SSLContext | None:
        return self.context

    def trace(self, event: str, **fields: object) -> None:
        self.events.append(event)

    def turn(self, timeout_s: float = 5.0) -> None:
        self.reactor.turn(timeout_s)


@pytest.fixture
def links() -> Iterator[Links]:
    made = Links()
    yield made
    for address in made.addresses:
        made.peers.close(link_to(address))
    made.reactor.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(5)
        yield made


def link_to(address: tuple[str, int]) -> LinkId:
    return LinkId(address, "test", 1)


def accepted(links: Links, listener: socket.socket) -> tuple[LinkId, socket.socket]:
    link = link_to(listener.getsockname())
    links.addresses.append(link.address)
    links.peers.send(link, [b"one"])
    connected, _ = listener.accept()
    connected.settimeout(5)
    links.turn()
    return link, connected


def test_bytes_pass_both_ways_in_order(links: Links, listener: socket.socket) -> None:
    link, connected = accepted(links, listener)
    with connected:
        links.peers.send(link, [b"two", memoryview(b"three")])
        received = b""
        while len(received) < 11:
            received += connected.recv(64)
        assert received == b"onetwothree"
        connected.sendall(b"x" * 200)
        while len(links.got) < 200:
            links.turn()
        assert links.losses == []
        links.peers.close(link)
        assert connected.recv(1) == b""
        assert links.losses == []


def test_no_process_at_the_address(links: Links, listener: socket.socket) -> None:
    address = listener.getsockname()
    listener.close()
    link = link_to(address)
    links.peers.send(link, [b"one"])
    assert links.losses == []  # never within the call
    while not links.losses:
        links.turn()
    assert links.losses == [(link, Loss.REFUSED)]


def test_the_other_side_closes(links: Links, listener: socket.socket) -> None:
    link, connected = accepted(links, listener)
    assert connected.recv(3) == b"one"
    connected.close()
    while not links.losses:
        links.turn()
    assert links.losses == [(link, Loss.ENDED)]


def test_the_other_side_resets(links: Links, listener: socket.socket) -> None:
    link, connected = accepted(links, listener)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()
    while not links.losses:
        links.turn()
    assert links.losses == [(link, Loss.RESET)]


def test_no_route_to_the_address(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError(113, "no route to host")

    monkeypatch.setattr(module, "PlainStream", unreachable)
    link = link_to(("127.0.0.1", 1))
    links.peers.send(link, [b"one"])
    assert links.losses == []
    links.turn()
    assert links.losses == [(link, Loss.UNREACHABLE)]


def test_a_name_is_looked_up_by_a_job(links: Links, listener: socket.socket) -> None:
    link = link_to(("broker.invalid", listener.getsockname()[1]))
    links.peers.send(link, [b"one"])
    links.addresses.append(link.address)
    ((_, done),) = links.jobs
    family, address = socket.AF_INET, listener.getsockname()
    done([(family, socket.SOCK_STREAM, 0, "", address)])
    connected, _ = listener.accept()
    with connected:
        connected.settimeout(5)
        links.turn()
        assert connected.recv(3) == b"one"


@pytest.mark.parametrize("error", [UnicodeError("label too long"), OSError(-2, "unknown")])
def test_a_name_without_address(links: Links, error: Exception) -> None:
    link = link_to(("broker.invalid", 1))
    links.peers.send(link, [b"one"])
    ((_, done),) = links.jobs
    done(error)
    assert links.losses == [(link, Loss.UNKNOWN_NAME)]


def test_a_link_closed_while_its_name_is_looked_up_opens_nothing(
    links: Links, listener: socket.socket
) -> None:
    link = link_to(("broker.invalid", listener.getsockname()[1]))
    links.peers.send(link, [b"one"])
    links.peers.close(link)
    ((_, done),) = links.jobs
    done([(socket.AF_INET, socket.SOCK_STREAM, 0, "", listener.getsockname())])
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert links.losses == []


def test_a_peer_that_does_not_read_is_given_up(
    links: Links, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNSENT_BYTES_MAX", 1 << 20)
    link, connected = accepted(links, listener)
    with connected:
        chunk = bytes(1 << 20)
        for _ in range(64):
            links.peers.send(link, [chunk])
            if links.losses:
                break
            links.turn(0)
        assert links.losses == [(link, Loss.TIMED_OUT)]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_a_failed_tls_handshake_is_not_told_as_the_end_of_the_peer(
    links: Links, listener: socket.socket, answer: bytes
) -> None:
    links.context = ssl.create_default_context()
    link = link_to(listener.getsockname())
    links.peers.send(link, [b"one"])
    connected, _ = listener.accept()
    links.turn()
    with connected:
        connected.recv(1)
        connected.sendall(answer)
    while not links.losses:
        links.turn()
    assert links.losses == [(link, Loss.UNUSABLE)]
    assert links.events == ["link-refused"]
