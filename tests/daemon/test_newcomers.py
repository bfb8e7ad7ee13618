"""Connections that have not authenticated: which are closed, and when."""

import socket
from collections.abc import Callable

import pytest

from sparklog_server.daemon import newcomers as module
from sparklog_server.daemon.newcomers import Unauthenticated
from tests.daemon.conftest import Rig
from tests.daemon.test_admission import door


class Gate:
    """The pump of a rig, none of whose sessions has authenticated until it is told."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.chores: list[Callable[[], None]] = []
        rig.broker.needs_authentication = True
        rig.pump.unauthenticated = Unauthenticated(
            rig.broker.is_authenticated,
            after=lambda _delay_s, chore: self.chores.append(chore),
            trace=lambda event, **_: rig.lines.append(event),
        )

    def connect(self, host: str = "10.0.0.1", *, is_authenticated: bool = False) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.rig.clients.append(theirs)
        self.rig.pump.accepted(ours, "SASL_PLAINTEXT", (host, 1))
        if is_authenticated:
            self.rig.broker.authenticated.add(max(self.rig.pump.connections))
        return theirs


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_connection_has_a_finite_time_to_authenticate(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(rig)
    authenticated, silent = gate.connect(is_authenticated=True), gate.connect()
    gate.chores.pop()()
    assert not is_closed(silent)
    monkeypatch.setattr(module, "AUTHENTICATION_S", -1)
    gate.chores.pop()()
    assert is_closed(silent)
    assert not is_closed(authenticated)
    assert gate.chores == []


def test_those_of_an_address_and_of_all_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNAUTHENTICATED_OF_ADDRESS_MAX", 3)
    monkeypatch.setattr(module, "UNAUTHENTICATED_MAX", 5)
    gate = Gate(rig)
    known = [gate.connect(is_authenticated=True) for _ in range(4)]
    of_one = [gate.connect() for _ in range(5)]
    of_others = [gate.connect(f"10.0.0.{number}") for number in (2, 3, 4)]
    assert not any(map(is_closed, known + of_others))
    assert list(map(is_closed, of_one)) == [True, True, True, False, False]


def test_a_new_connection_takes_the_slot_of_one_that_has_not_authenticated(rig: Rig) -> None:
    gate = Gate(rig)
    rig.broker.is_busy = True
    known, silent = gate.connect(is_authenticated=True), gate.connect()
    with door(rig, connections_max=2) as one:
        newcomer = one.knock()
        one.turn()
        assert is_closed(silent)
        assert not is_closed(known)
        one.turn()
        assert len(rig.pump.connections) == 2
        assert not is_closed(newcomer)
