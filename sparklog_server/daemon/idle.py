"""Choice of the connection that a new one replaces: the longest idle, never one with a request in flight
while its peer is connected.

    connections ─► sorted by last activity ─► examined in this order, each once ─► sorted again

A connection that was active after the sorting is younger than all others, so the order stays exact, and on
average one connection is examined.
"""

from collections.abc import Callable, Iterable
from typing import Final

from sparklog.model import Micros
from sparklog_server.daemon.connection import Connection

SETTLING_US: Final = 100_000
"""A connection is not idle before this: its next request may be in transit."""
STALLED_US: Final = 10_000_000
"""A connection that has not read its reply for this long counts as idle."""


class IdleConnections:
    """Finds the connection that has been idle longest. `_candidates` ends with it; an entry is (last
    active, connection) as sorted.
    """

    def __init__(
        self, connections: Callable[[], Iterable[Connection]], is_in_flight: Callable[[Connection], bool]
    ) -> None:
        self._connections = connections
        self._is_in_flight = is_in_flight
        self._candidates: list[tuple[int, Connection]] = []
        self._sorted_again_us = 0  # not before, once none was found: a sort looks at every connection

    def longest(self, now_us: Micros) -> Connection | None:
        """The connection to close; None if all have requests in flight or are being answered."""
        found = self._next(now_us)
        if found is None and now_us >= self._sorted_again_us:
            self._candidates = [(one.active_us, one) for one in self._connections()]
            self._candidates.sort(key=lambda one: one[0], reverse=True)
            found = self._next(now_us)
            if found is None:
                self._sorted_again_us = now_us + SETTLING_US
        return found

    def _next(self, now_us: Micros) -> Connection | None:
        while self._candidates:
            active_us, connection = self._candidates.pop()
            if (
                not connection.is_open
                or connection.active_us != active_us
                or self._is_busy(connection, now_us)
            ):
                continue
            if now_us - active_us >= SETTLING_US:
                return connection
            self._candidates = []  # all others are younger
        return None

    def _is_busy(self, connection: Connection, now_us: Micros) -> bool:
        if connection.is_sending:
            return now_us - connection.active_us < STALLED_US
        return not connection.is_half_closed and self._is_in_flight(connection)
