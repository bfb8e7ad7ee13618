"""TLS handshakes of accepted connections, with jobs that run by hand."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from itertools import count
from threading import Event
from types import SimpleNamespace

import pytest

from sparklog.model import Instant, Micros, Millis
from sparklog.tls.contexts import client_context, server_context
from sparklog.tls.keys import TlsKeys
from sparklog_server.config.listeners import Listener
from sparklog_server.daemon import handshakes as module
from sparklog_server.daemon.handshakes import Handshakes
from sparklog_server.daemon.jobs import Done, Job
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.daemon.tls_transport import TlsTransport
from sparklog_server.security.principals import PrincipalRules
from tests.certificates import authority, issued
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


class Certified:
    """Certificates with one context."""

    def __init__(self, *, client_auth: str = "none") -> None:
        served = issued("CN=broker")
        keys = TlsKeys(
            keystore_key=served.key_pem(),
            keystore_certificate_chain=served.chain_pem,
            truststore_certificates=authority().pem,
            client_auth=client_auth,
        )
        self.server = server_context(keys)

    def of_listener(self, name: str) -> object:
        return SimpleNamespace(server=self.server, rules=PrincipalRules("DEFAULT"))


class Under:
    """The handshakes of a test, their jobs, chores and clients."""

    def __init__(self, timeout_ms: int) -> None:
        self.reactor = Reactor()
        self.jobs = ByHand()
        self.chores: list[Callable[[], None]] = []
        self.reasons: list[str] = []
        self.clients: list[socket.socket] = []
        self.certificates = Certified()
        self.established: list[TlsTransport] = []
        self.handshakes = Handshakes(
            self.certificates,  # type: ignore[arg-type]
            self.reactor,
            self.jobs,  # type: ignore[arg-type]
            lambda transport, *_: self.established.append(transport),
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

    def shake(self, client: ssl.SSLSocket) -> int:
        """Let the client take its next steps, then ours; returns the number of jobs for that."""
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        self.reactor.turn(0.0)
        waiting = len(self.jobs.waiting)
        while self.jobs.waiting:
            self.jobs.run_first()
        return waiting


@pytest.fixture
def under(request: pytest.FixtureRequest) -> Iterator[Under]:
    one = Under(getattr(request, "param", 10_000))
    yield one
    one.handshakes.end()
    while one.jobs.waiting:
        one.jobs.run_first()
    for client in one.clients:
        client.close()
    for transport in one.established:
        transport.close()
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


@pytest.mark.parametrize("under", [-1], indirect=True)
def test_many_handshakes_whose_time_is_over_end_over_several_turns(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEPT_PER_TURN", 2)
    clients = [under.connect(f"10.0.0.{number}") for number in range(5)]
    left = []
    while under.chores:
        under.chores.pop()()
        left.append(len(under.handshakes))
    assert left == [3, 1, 0]
    assert all(map(is_closed, clients))


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


def clients_of(under: Under, number: int = 1) -> list[ssl.SSLSocket]:
    context = client_context(TlsKeys(truststore_certificates=authority().pem))
    clients = [
        context.wrap_socket(under.connect(), server_hostname="localhost", do_handshake_on_connect=False)
        for _ in range(number)
    ]
    under.clients += clients
    return clients


def test_the_loop_takes_the_step_that_only_checks_the_end_of_tls_1_3(under: Under) -> None:
    (client,) = clients_of(under)
    assert [under.shake(client) for _ in range(2)] == [1, 0]
    assert (len(under.established), len(under.handshakes)) == (1, 0)


def test_the_hello_after_a_retry_is_a_job_and_so_is_each_step_of_tls_1_2(under: Under) -> None:
    under.certificates.server.set_ecdh_curve("secp384r1")  # not the one that the client tries first
    (client,) = clients_of(under)
    assert [under.shake(client) for _ in range(3)] == [1, 1, 0]
    under.certificates.server.maximum_version = ssl.TLSVersion.TLSv1_2
    (client,) = clients_of(under)
    assert [under.shake(client) for _ in range(2)] == [1, 1]
    assert len(under.established) == 2


def test_the_certificate_of_a_client_is_verified_in_a_job(under: Under) -> None:
    under.certificates.server = Certified(client_auth="requested").server
    (client,) = clients_of(under)
    assert [under.shake(client) for _ in range(2)] == [1, 1]
    assert len(under.established) == 1


def test_the_last_steps_of_many_clients_at_once_are_jobs_but_for_the_first(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    times_us = count(step=100)
    monkeypatch.setattr(module, "read_clock", lambda: Instant(Micros(next(times_us)), Millis(0)))
    clients = clients_of(under, 3)
    for client in clients:
        under.shake(client)
    for client in clients:
        client.do_handshake()
    under.reactor.turn(0.0)
    assert (len(under.established), len(under.jobs.waiting)) == (1, 2)


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
