"""One HTTP connection over a socket pair, its reactor turned by hand."""

import socket
from collections.abc import Iterator
from contextlib import suppress

import h11
import pytest

from sparklog_server.daemon.http_connection import HEAD_BYTES_MAX, HttpConnection
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.daemon.transport import PlainTransport

GET = b"GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n"


class Site:
    """Answers a request when the test says so."""

    def __init__(self) -> None:
        self.requests: list[h11.Request] = []
        self.refusals: list[str] = []
        self.closed_count = 0
        self.reactor = Reactor()
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.connection = HttpConnection(
            PlainTransport(ours), "peer", "User:ANONYMOUS", self.reactor, self, 0
        )

    def asked(self, connection: HttpConnection, request: h11.Request) -> None:
        self.requests.append(request)

    def refused(self, reason: str) -> None:
        self.refusals.append(reason)

    def closed(self, connection: HttpConnection) -> None:
        self.closed_count += 1

    def turn(self, sent: bytes = b"") -> bytes:
        """Send, let the connection work, and receive."""
        with suppress(BrokenPipeError):
            self.client.sendall(sent)
        received = b""
        for _ in range(50):
            self.reactor.turn(0)
            with suppress(BlockingIOError, ConnectionResetError):
                received += self.client.recv(1 << 20)
        return received

    def answer(self, *body: bytes) -> None:
        self.connection.respond(200, body, now_us=5)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.connection.close()
    site.client.close()
    site.reactor.close()


def test_a_head_that_comes_byte_by_byte_is_one_request(site: Site) -> None:
    for byte in GET:
        assert site.turn(bytes([byte])) == b""
    assert [request.target for request in site.requests] == [b"/metrics"]
    site.answer(b"one", b"two")
    assert site.turn().endswith(b"\r\n\r\nonetwo")
    assert site.connection.is_kept


def test_requests_that_come_together_are_answered_in_turn(site: Site) -> None:
    site.turn(GET + GET)
    assert len(site.requests) == 1
    site.answer(b"first")
    assert site.turn().endswith(b"first")
    assert len(site.requests) == 2
    site.answer(b"second")
    assert site.turn().endswith(b"second")
    assert site.connection.is_open


def test_a_reader_that_does_not_read_holds_its_response_and_no_more_is_read_from_it(site: Site) -> None:
    site.client.sendall(GET)
    site.reactor.turn(0)
    body = b"x" * 1_000_000
    site.answer(body)
    for _ in range(20):
        site.reactor.turn(0)
    assert site.connection.is_answering
    assert (site.connection.since_us, site.closed_count) == (5, 0)
    received = b""
    while len(received) < len(body):
        received += site.turn()
    assert received.endswith(body)
    assert site.connection.is_kept


def test_the_body_of_a_head_request_stays_away(site: Site) -> None:
    site.turn(GET.replace(b"GET", b"HEAD"))
    site.answer(b"body")
    response = site.turn()
    assert b"Content-Length: 4\r\n" in response
    assert response.endswith(b"\r\n\r\n")


def test_a_connection_that_is_not_to_be_kept_is_closed_after_its_response(site: Site) -> None:
    site.turn(b"GET / HTTP/1.0\r\n\r\n")
    site.answer(b"bye")
    assert site.turn().endswith(b"bye")
    assert (site.connection.is_open, site.closed_count) == (False, 1)


@pytest.mark.parametrize("at", range(1, len(GET)))
def test_a_line_break_that_is_split_between_two_reads_is_whole(site: Site, at: int) -> None:
    site.turn(GET[:at])
    site.turn(GET[at:])
    assert (len(site.requests), site.refusals) == (1, [])


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        pytest.param((b"GET / HTTP/1.1\nHost: n\r\n\r\n",), b"400", id="a bare newline"),
        pytest.param(
            (b"GET / HTTP/1.1\r\nHost: n\r\n", b" folded\r\n\r\n"), b"400", id="folded, in two reads"
        ),
        pytest.param(
            (b"GET / HTTP/1.1\r\nHost: n\r", b"\n", b"\tfolded\r\n\r\n"), b"400", id="folded, in three"
        ),
        pytest.param((GET[:-2] + b"Content-Length: 1\r\n\r\nx",), b"400", id="a body"),
        pytest.param((GET[:-2] + b"Content-Length: 00\r\n\r\n",), b"400", id="another zero"),
        pytest.param((GET[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",), b"400", id="chunks"),
        pytest.param((GET[:-2] + b"Upgrade: h2c\r\n\r\n",), b"400", id="an upgrade"),
        pytest.param((b"PUT / HTTP/1.1\r\nHost: n\r\n\r\n",), b"405", id="another method"),
        pytest.param((b"GET / HTTP/1.1\r\nX: " + b"y" * HEAD_BYTES_MAX,), b"431", id="a long head"),
        pytest.param((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), b"", id="HTTP/2"),
    ],
)
def test_a_head_that_is_not_plain_is_refused(site: Site, pieces: tuple[bytes, ...], status: bytes) -> None:
    response = b"".join(site.turn(piece) for piece in pieces)
    if status:
        assert response.split(b" ")[1] == status
    assert site.requests == []
    assert len(site.refusals) == 1
    assert (site.connection.is_open, site.closed_count) == (False, 1)


def test_a_client_that_leaves_closes_the_connection_once(site: Site) -> None:
    site.turn(GET)
    site.client.close()
    site.answer(b"x" * 1_000_000)
    for _ in range(5):
        site.reactor.turn(0)
    assert (site.connection.is_open, site.closed_count) == (False, 1)
    site.answer(b"late")


def test_hundreds_of_requests_that_come_together_are_answered_one_by_one(site: Site) -> None:
    site.asked = lambda _connection, _request: site.answer(b"x")  # type: ignore[method-assign]
    received = site.turn(b"GET / HTTP/1.1\r\nHost:\r\n\r\n" * 400)
    for _ in range(20):
        received += site.turn()
    assert received.count(b"HTTP/1.1 200") == 400
    assert site.connection.is_open


def test_a_connection_whose_next_request_came_with_the_one_before_is_not_between_two(site: Site) -> None:
    site.turn(GET * 2)
    site.answer(b"x")
    site.turn()
    assert site.connection.is_answering
    assert not site.connection.is_kept


def test_a_bad_line_is_told_without_its_content(site: Site) -> None:
    assert site.turn(b"GET / HTTP/1.1\r\nHost: n\r\nsecret\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert len(site.refusals) == 1
    assert "secret" not in site.refusals[0]


def test_a_kept_connection_counts_its_time_from_the_next_request(site: Site) -> None:
    site.turn(GET)
    site.answer(b"x")
    site.turn()
    assert site.connection.since_us == 5
    site.turn(GET)
    assert site.connection.is_answering
    assert site.connection.since_us > 5
