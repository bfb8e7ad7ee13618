"""Peers that have not proved who they are: unfinished TLS handshakes, and connections of SASL listeners
before authentication.

    accepted ─► newcomer ─┬─► authenticated
                          ├─► the time is over: closed
                          └─► too many, or no slot is left: the one that has waited longest is closed, of the
                              address with the most of them

So an address that opens many connections loses its own, not those of others.
"""

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from sparklog.model import SessionId
from sparklog_server.daemon.connection import Connection

UNAUTHENTICATED_MAX: Final = 1_000
UNAUTHENTICATED_OF_ADDRESS_MAX: Final = 250
AUTHENTICATION_S: Final = 30
"""How long a connection may take to authenticate: three times the longest read of the keys of an identity
provider, for which it may wait.
"""
SWEPT_EVERY_S: Final = 1.0

One = TypeVar("One")


class Newcomers(Generic[One]):
    """Newcomers by address, those of each in the order in which they came."""

    def __init__(self) -> None:
        self._by_host: dict[str, dict[One, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def count_of(self, host: str) -> int:
        """The number of newcomers from this address."""
        return len(self._by_host.get(host, ()))

    def add(self, one: One, host: str) -> None:
        """`one` has come from this address."""
        self._by_host.setdefault(host, {})[one] = None
        self._count += 1

    def remove(self, one: One, host: str) -> None:
        """`one` is no newcomer any more."""
        of_host = self._by_host[host]
        del of_host[one]
        self._count -= 1
        if not of_host:
            del self._by_host[host]

    def of(self, host: str) -> list[One]:
        """Those of an address, the oldest first."""
        return list(self._by_host.get(host, ()))

    def busiest(self) -> list[str]:
        """The addresses, those with the most newcomers first."""
        return sorted(self._by_host, key=lambda host: -len(self._by_host[host]))


class Unauthenticated:
    """The connections that have not authenticated. One that has stays here until it is looked at."""

    def __init__(
        self,
        is_authenticated: Callable[[SessionId], bool],
        *,
        after: Callable[[float, Callable[[], None]], None],
        trace: Callable[..., None],
    ) -> None:
        self._is_authenticated = is_authenticated
        self._after = after
        self._trace = trace
        self._began_us: dict[Connection, int] = {}  # the oldest first
        self._newcomers: Newcomers[Connection] = Newcomers()
        self._is_sweep_due = False

    def begin(self, connection: Connection) -> None:
        """A connection of a listener with SASL is open; if there are too many, another one is closed."""
        host = connection.peer_host
        self._began_us[connection] = _now_us()
        self._newcomers.add(connection, host)
        if self._newcomers.count_of(host) > UNAUTHENTICATED_OF_ADDRESS_MAX:
            self._forget_authenticated(self._newcomers.of(host))
            if self._newcomers.count_of(host) > UNAUTHENTICATED_OF_ADDRESS_MAX:
                self._close(self._newcomers.of(host)[0], "too many from its address have not authenticated")
        if len(self._newcomers) > UNAUTHENTICATED_MAX:
            self._forget_authenticated(list(self._began_us))
            if len(self._newcomers) > UNAUTHENTICATED_MAX:
                self._drop("too many connections have not authenticated")
        if not self._is_sweep_due:
            self._is_sweep_due = True
            self._after(SWEPT_EVERY_S, self._sweep)

    def drop_oldest(self) -> bool:
        """Close the connection that has waited longest, of the address with the most; returns False if there
        is none.
        """
        return self._drop("not authenticated while another connection waits for a slot")

    def _drop(self, reason: str) -> bool:
        for host in self._newcomers.busiest():
            for one in self._newcomers.of(host):
                if not self._is_done(one):
                    self._close(one, reason)
                    return True
                self._forget(one)
        return False

    def _is_done(self, connection: Connection) -> bool:
        return not connection.is_open or self._is_authenticated(connection.session)

    def _forget(self, connection: Connection) -> None:
        del self._began_us[connection]
        self._newcomers.remove(connection, connection.peer_host)

    def _forget_authenticated(self, connections: list[Connection]) -> None:
        for one in connections:
            if self._is_done(one):
                self._forget(one)

    def _close(self, connection: Connection, reason: str) -> None:
        self._forget(connection)
        self._trace(
            "unauthenticated-closed",
            peer=connection.peer_host,
            listener=connection.listener,
            reason=reason,
        )
        connection.close()

    def _sweep(self) -> None:
        self._forget_authenticated(list(self._began_us))
        oldest_us = _now_us() - AUTHENTICATION_S * 1_000_000
        for one, began_us in list(self._began_us.items()):
            if began_us >= oldest_us:
                break
            self._close(one, f"not authenticated within {AUTHENTICATION_S} s")
        self._is_sweep_due = bool(self._began_us)
        if self._is_sweep_due:
            self._after(SWEPT_EVERY_S, self._sweep)


def _now_us() -> int:
    return time.monotonic_ns() // 1000
