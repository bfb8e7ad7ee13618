"""Who is admitted when all slots are taken, and who gives way."""

import contextlib
import select
import signal
import socket
from pathlib import Path

from sparklog import Admin
from tests.daemon.broker_process import API_VERSIONS, BrokerProcess, broker, fetch_frame, is_answered, is_served, receive_until_closed


def test_a_connection_beyond_the_limit_displaces_the_one_that_has_been_idle_longest(tmp_path: Path) -> None:
    with broker(tmp_path / "data", "--set", "max.connections=2") as process, contextlib.ExitStack() as connected:
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


def test_a_connection_with_a_request_in_flight_is_not_displaced_and_newcomers_wait_which_is_logged_once(tmp_path: Path) -> None:
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


def test_who_comes_by_the_listener_of_the_brokers_takes_the_place_of_whoever_was_silent_longest(tmp_path: Path) -> None:
    listeners = "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0"
    named = ["--set", "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT", "--set", "inter.broker.listener.name=BROKERS"]
    sockets = ["--set", f"listeners={listeners}", "--set", "max.connections=2"]
    with BrokerProcess("--data-dir", str(tmp_path / "data"), *named, *sockets) as process, contextlib.ExitStack() as connected:
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
    named = ["--set", "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT", "--set", "inter.broker.listener.name=BROKERS"]
    sockets = ["--set", f"listeners={listeners}", "--set", "max.connections=8"]
    with BrokerProcess("--data-dir", str(tmp_path / "data"), *named, *sockets) as process, contextlib.ExitStack() as connected:
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
