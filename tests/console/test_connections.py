"""The deadlines of the console's connections, by a clock that the test advances."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from sparklog_server.console.connections import BODY_S, CONNECTIONS_MAX, HEAD_S, UNREAD_S, Connection

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
OK = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}


class Loop(asyncio.SelectorEventLoop):
    """Runs what is due at `now_s`, and never waits."""

    now_s = 1.0

    def time(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for _ in range(5):
            self.call_soon(self.stop)
            self.run_forever()


class Client(asyncio.Transport):
    """The transport of one connection, which notes whether it was closed."""

    def __init__(self, site: "Site") -> None:
        super().__init__()
        self.is_closed = False
        self.written = b""
        self.connection = Connection(site.config, site.state, {}, site.loop)
        self.connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.connection.connection_lost(None)

    close = abort

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Site:
    """Accepts clients, and answers their requests by `OK` when their body is whole."""

    def __init__(self) -> None:
        self.loop = Loop()
        asyncio.set_event_loop(self.loop)
        self.state = ServerState()
        self.config = uvicorn.Config(_app, ws="none", lifespan="off", timeout_keep_alive=HEAD_S)
        self.config.load()

    def client(self) -> Client:
        return Client(self)


# Any: the messages of ASGI.
async def _app(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    while (await receive()).get("more_body"):
        pass
    await send(OK)
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def site() -> Any:
    site = Site()
    yield site
    asyncio.set_event_loop(None)
    site.loop.close()


@pytest.mark.parametrize(
    ("sent", "limit_s"), [(b"", HEAD_S), (b"GET / HTTP/1.1\r\n", HEAD_S), (HEAD + b"1234", BODY_S)]
)
def test_a_connection_that_does_not_end_its_request_is_closed(site: Site, sent: bytes, limit_s: int) -> None:
    client = site.client()
    for part in range(len(sent)):
        client.connection.data_received(sent[part : part + 1])
    site.loop.advance(limit_s - 1)
    assert not client.is_closed
    site.loop.advance(1)
    assert client.is_closed


def test_a_request_is_answered_and_its_connection_kept_for_a_while(site: Site) -> None:
    client = site.client()
    for _ in range(3):
        client.connection.data_received(HEAD)
        site.loop.advance(BODY_S - 1)
        client.connection.data_received(b"12345")
        site.loop.advance(HEAD_S - 1)
        assert not client.is_closed
    assert client.written.count(b"200 OK") == 3
    client.connection.data_received(b"POST")
    site.loop.advance(HEAD_S - 1)
    assert not client.is_closed
    site.loop.advance(1)
    assert client.is_closed


def test_a_client_that_reads_nothing_is_closed(site: Site) -> None:
    client = site.client()
    client.connection.data_received(HEAD)
    client.connection.pause_writing()
    site.loop.advance(UNREAD_S - 1)
    client.connection.resume_writing()
    client.connection.data_received(b"1")
    client.connection.pause_writing()
    site.loop.advance(1)
    client.connection.data_received(b"2345")
    site.loop.advance(UNREAD_S - 1)
    assert client.is_closed


def test_the_connection_that_is_silent_longest_gives_way(site: Site) -> None:
    busy = site.client()
    busy.connection.data_received(HEAD + b"12345")
    silent = []
    for _ in range(2 * CONNECTIONS_MAX):
        site.loop.now_s += 0.001
        silent.append(site.client())
    assert not busy.is_closed
    assert len(site.state.connections) == CONNECTIONS_MAX - 1
    assert [one.is_closed for one in silent] == [True] * (CONNECTIONS_MAX + 2) + [False] * (
        CONNECTIONS_MAX - 2
    )
    site.loop.advance(0.001)
    assert b"200 OK" in busy.written
