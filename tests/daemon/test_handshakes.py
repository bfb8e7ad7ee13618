"""TLS handshakes of accepted connections, with jobs that run by hand."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from threading import Event

import pytest

from sparklog_server.config.listeners import Listener
from sparklog_server.daemon import handshakes as module
from sparklog_server.daemon.handshakes import Handshakes
from sparklog_server.daemon.jobs import Done, Job
from sparklog_server.daemon.reactor import Reactor
from tests.daemon.conftest import Rig

LISTENER = Listener("SSL", "127.0.0.1", 9093, "SSL")


class ByHand:
    """The jobs that wait."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Job, Done]] = []

    def run(self, job: Job, done: Done) -> None:
        self.waiting.append((job, done))

    def run_first(self) -> None:
        job, done = self.waiting.pop(0)
        done(job())


class Contextless:
    """Certificates whose context no handshake may come to use."""

    def of_listener(self, name: str) -> object:
        return object()


class Under:
    """The handshakes of a test, their jobs, chores and clients."""

    def __init__(self, timeout_ms: int) -> None:
        self.reactor = Reactor()
        self.jobs = ByHand()
        self.chores: list[Callable[[], None]] = []
        self.reasons: list[str] = []
        self.clients: list[socket.socket] = []
        self.handshakes = Handshakes(
            Contextless(),  # type: ignore[arg-type]
            self.reactor,
            self.jobs,  # type: ignore[arg-type]
            lambda *_: None,
            timeout_ms=timeout_ms,
            after=lambda _delay_s, chore: self.chores.append(chore),
            trace=lambda _event, **fields: self.reasons.append(fields["reason"]),
        )

    def connect(self, host: str = "10.0.0.1", *, sends: bool = False) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.clients.append(theirs)
        self.handshakes.begin(ours, LISTENER, (host, 1))
        if sends:
            with contextlib.suppress(BrokenPipeError):
                theirs.sendall(b"\x16")
            self.reactor.turn(0.0)
        return theirs


@pytest.fixture
def under(request: pytest.FixtureRequest) -> Iterator[Under]:
    one = Under(getattr(request, "param", 10_000))
    yield one
    one.handshakes.end()
    while one.jobs.waiting:
        one.jobs.run_first()
    for client in one.clients:
        client.close()
    one.reactor.close()


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False


@pytest.mark.parametrize("under", [-1], indirect=True)
def test_a_handshake_whose_time_is_over_counts_until_its_job_has_ended_and_costs_that_nothing(
    under: Under,
) -> None:
    client = under.connect(sends=True)
    assert len(under.jobs.waiting) == 1
    under.chores.pop()()
    assert (len(under.handshakes), under.handshakes.count_of("10.0.0.1")) == (1, 1)
    assert not is_closed(client)
    under.jobs.run_first()
    assert (len(under.handshakes), under.handshakes.count_of("10.0.0.1")) == (0, 0)
    assert is_closed(client)
    assert under.reasons == ["not finished within sparklog.ssl.handshake.timeout.ms"]


def test_a_storm_of_handshakes_whose_jobs_wait_does_not_exceed_the_bound(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDSHAKES_MAX", 3)
    clients = [under.connect(sends=True) for _ in range(5)]
    assert (len(under.handshakes), len(under.jobs.waiting)) == (3, 3)
    assert [is_closed(client) for client in clients] == [False, False, False, True, True]
    assert under.reasons == ["too many handshakes are under way"]


def test_an_address_with_many_handshakes_loses_its_own(under: Under, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HANDSHAKES_MAX", 3)
    other = under.connect("10.0.0.2")
    clients = [under.connect() for _ in range(6)]
    assert not is_closed(other)
    assert [is_closed(client) for client in clients] == [True] * 4 + [False] * 2


def test_an_error_that_a_library_has_for_bytes_of_the_peer_closes_its_connection(under: Under) -> None:
    client = under.connect(sends=True)
    (_, done) = under.jobs.waiting.pop()
    done(ValueError("not a certificate"))
    assert is_closed(client)
    assert (len(under.handshakes), under.reasons) == (0, ["ValueError: not a certificate"])


def test_the_handshakes_of_links_do_not_wait_for_those_of_clients(rig: Rig) -> None:
    goes_on = Event()
    ended: list[str] = []
    for jobs, name in ((rig.pump.client_handshakes, "client"), (rig.pump.node_handshakes, "node")):
        for _ in range(20):
            jobs.run(goes_on.wait, lambda _, name=name: ended.append(name))
    rig.pump.shake_hands(lambda: None, lambda _: ended.append("link"))
    while not ended:
        rig.turn(wait_s=5.0)
    assert ended == ["link"]
    goes_on.set()
    while len(ended) < 41:
        rig.turn(wait_s=5.0)
