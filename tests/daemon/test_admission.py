"""The connections admitted and evicted when all slots are taken."""

import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog import Admin
from sparklog.model import Micros
from sparklog_server.config.listeners import Listener
from sparklog_server.daemon.admission import (
    ACCEPT_AGAIN_S,
    ACCEPTED_PER_TURN,
    SETTLING_US,
    Admission,
    IdleConnections,
)
from tests.daemon.broker_process import (
    API_VERSIONS,
    BrokerProcess,
    broker,
    fetch_frame,
    is_answered,
    is_served,
    receive_until_closed,
)
from tests.daemon.conftest import Rig


def test_a_connection_beyond_the_limit_displaces_the_one_that_has_been_idle_longest(tmp_path: Path) -> None:
    with (
        broker(tmp_path / "data", "--set", "max.connections=2") as process,
        contextlib.ExitStack() as connected,
    ):
        address = process.address()
        first, second = (connected.enter_context(socket.create_connection(address)) for _ in range(2))
        assert is_served(first)
        assert is_served(second)
        assert is_served(first)
        third = connected.enter_context(socket.create_connection(address))
        assert is_served(third)
        assert receive_until_closed(second) == b""
        assert is_served(first)
        _, _, err = process.end(signal.SIGTERM)
    assert err.count("connection-displaced") == 1


def test_a_connection_with_a_request_in_flight_is_not_displaced_and_newcomers_wait_which_is_logged_once(
    tmp_path: Path,
) -> None:
    with broker(tmp_path / "data", "--set", "max.connections=1") as process:
        address = process.address()
        with Admin(bootstrap_servers="{}:{}".format(*address)) as admin:
            admin.create_topics({"t": 1})
        with socket.create_connection(address) as busy:
            busy.sendall(API_VERSIONS + fetch_frame("t", max_wait_ms=60_000))
            assert is_answered(busy)
            with socket.create_connection(address) as second, socket.create_connection(address) as third:
                second.sendall(API_VERSIONS)
                assert not select.select([second, third, busy], [], [], 0.3)[0]
                busy.close()
                assert is_answered(second)
                assert is_served(third)
        _, _, err = process.end(signal.SIGTERM)
    assert err.count("connections-full") == 1


def test_who_comes_by_the_listener_of_the_brokers_takes_the_place_of_whoever_was_silent_longest(
    tmp_path: Path,
) -> None:
    listeners = "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0"
    named = [
        "--set",
        "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "--set",
        "inter.broker.listener.name=BROKERS",
    ]
    sockets = ["--set", f"listeners={listeners}", "--set", "max.connections=2"]
    with (
        BrokerProcess("--data-dir", str(tmp_path / "data"), *named, *sockets) as process,
        contextlib.ExitStack() as connected,
    ):
        address = process.address()
        first, second = (connected.enter_context(socket.create_connection(address)) for _ in range(2))
        assert is_served(first)
        assert is_served(second)
        assert is_served(first)
        with socket.create_connection(process.address_of("BROKERS")) as other_broker:
            assert is_served(other_broker)
            assert receive_until_closed(second) == b""
            assert is_served(first)
        process.end(signal.SIGTERM)


def test_other_listeners_leave_slots_to_that_of_the_brokers(tmp_path: Path) -> None:
    listeners = "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0"
    named = [
        "--set",
        "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "--set",
        "inter.broker.listener.name=BROKERS",
    ]
    sockets = ["--set", f"listeners={listeners}", "--set", "max.connections=8"]
    with (
        BrokerProcess("--data-dir", str(tmp_path / "data"), *named, *sockets) as process,
        contextlib.ExitStack() as connected,
    ):
        address, brokers = process.address(), process.address_of("BROKERS")
        with Admin(bootstrap_servers="{}:{}".format(*address)) as admin:
            admin.create_topics({"t": 1})
        busy = [connected.enter_context(socket.create_connection(address)) for _ in range(6)]
        for one in busy:
            one.sendall(API_VERSIONS + fetch_frame("t", max_wait_ms=60_000))
            assert is_answered(one)
        connected.enter_context(socket.create_connection(address))
        others = [connected.enter_context(socket.create_connection(brokers)) for _ in range(2)]
        assert all(is_served(one) for one in others)
        assert not select.select(busy, [], [], 0)[0]
        process.end(signal.SIGTERM)


class Door:
    """An `Admission` over the pump of a rig, whose chores are run by hand."""

    def __init__(self, rig: Rig, bound: socket.socket, connections_max: int) -> None:
        bound.setblocking(False)
        self._rig = rig
        self._address = bound.getsockname()
        self.chores: list[tuple[float, Callable[[], None]]] = []
        sockets = [(Listener("PLAINTEXT", *self._address, "PLAINTEXT"), bound)]
        self._admission = Admission(
            sockets,
            rig.broker.settings,
            rig.broker,
            rig.pump,
            rig.reactor,
            connections_max=connections_max,
            after=lambda delay_s, chore: self.chores.append((delay_s, chore)),
            trace=lambda *_event, **_fields: None,
        )
        self._admission.begin(sockets)

    def knock(self) -> socket.socket:
        client = socket.create_connection(self._address)
        client.setblocking(False)
        self._rig.clients.append(client)
        return client

    def turn(self) -> None:
        self._rig.turn()
        self._admission.turned()

    def run_chores(self) -> None:
        chores, self.chores[:] = self.chores[:], []
        for _, chore in chores:
            chore()


@contextmanager
def door(rig: Rig, *, connections_max: int) -> Iterator[Door]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        yield Door(rig, bound, connections_max)


def test_one_retry_at_a_time_is_due_however_many_slots_become_free_while_newcomers_wait(rig: Rig) -> None:
    rig.broker.is_busy = True
    with door(rig, connections_max=2) as one:
        clients = [one.knock() for _ in range(8)]
        for client in clients[:4]:
            for _ in range(3):
                one.turn()
            client.close()
        assert len(rig.broker.sessions) == 5
        assert [delay_s for delay_s, _ in one.chores] == [ACCEPT_AGAIN_S]
        one.run_chores()
        one.turn()
        one.turn()
        assert [delay_s for delay_s, _ in one.chores] == [ACCEPT_AGAIN_S]


def test_a_request_is_served_after_a_few_of_many_newcomers_are_accepted(rig: Rig) -> None:
    with door(rig, connections_max=1000) as one:
        client = rig.client()
        newcomers = [one.knock() for _ in range(2 * ACCEPTED_PER_TURN)]
        client.sendall(b"echo x\n")
        one.turn()
        assert client.recv(100) == b"x"
        assert len(rig.pump.connections) == 1 + ACCEPTED_PER_TURN
        one.turn()
        assert len(rig.pump.connections) == 1 + len(newcomers)


@pytest.mark.skipif(sys.platform != "linux", reason="the option TCP_CONGESTION is Linux's")
def test_a_connection_from_the_same_machine_is_not_paced(rig: Rig) -> None:
    with door(rig, connections_max=1) as one:
        one.knock()
        one.turn()
        (connection,) = rig.pump.connections.values()
        with socket.socket(fileno=os.dup(connection.transport.fileno())) as accepted:
            congestion_control = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert congestion_control.rstrip(b"\0") == b"reno"


def test_connections_are_sorted_again_only_a_while_after_none_was_found_to_give_way() -> None:
    sorted_us: list[int] = []
    now_us = 0

    def connections() -> list[object]:
        sorted_us.append(now_us)
        return []

    idle = IdleConnections(connections, lambda _one: True)  # type: ignore[arg-type]
    for now_us in range(1_000_000, 1_000_000 + 2 * SETTLING_US + 1, SETTLING_US // 4):
        assert idle.longest(Micros(now_us)) is None
    assert sorted_us == [1_000_000, 1_000_000 + SETTLING_US, 1_000_000 + 2 * SETTLING_US]
