"""Connections idle for so long that the broker closed them."""

import socket

import sparklog
from sparklog.client.admin.admin import Admin, NewTopic


def test_a_call_after_a_long_silence_finds_a_new_connection() -> None:
    with (
        sparklog.embedded(connections_max_idle_ms=1_000) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=10_000) as admin,
    ):
        for name in ("first", "second", "third"):
            admin.create_topics(
                [NewTopic(name, 1)]
            )  # not sent twice: it must not be lost with the old connection
            _wait_until_the_broker_closes_what_is_idle(broker.bootstrap_servers)
        assert sorted(admin.list_topics()) == ["first", "second", "third"]


def _wait_until_the_broker_closes_what_is_idle(bootstrap_servers: str) -> None:
    """A connection that is younger than all others, and as silent, is closed after them."""
    host, _, port = bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as silent:
        assert silent.recv(1) == b""
