"""Limits on the rate of new connections: in total, and from each IP address (KIP-612).

    new connection ─┬─► above the rate of its address ─► held unread until the rate is met, then closed;
                    │                                    it does not count
                    └─► above the total rate ──────────► no connection is accepted until the rate is met,
                                                         then this one is the first

Rates are measured like those of other quotas; no wait is longer than one of their windows.
"""

from contextlib import suppress
from typing import Final, NamedTuple

from sparklog.model import Millis
from sparklog_server.broker.rates import Rate
from sparklog_server.metadata.client_quotas import CONNECTION_CREATION_RATE, IP, Quotas

RATE_MAX: Final = (1 << 31) - 1
"""A rate of this many per second, or more, is unlimited."""
_MAPPED: Final = "::ffff:"
"""The prefix of an IPv4 address on an IPv6 listener."""
_ADDRESSES_MAX: Final = 10_000
"""The maximum number of addresses in the table; the longest idle ones are dropped and begin anew."""


class Throttled(NamedTuple):
    """The delays of a new connection, in ms: zero is none."""

    admitted_after_ms: int = 0
    closed_after_ms: int = 0


_FREE: Final = Throttled()


class ConnectionRates:
    """The limits of the published image, and the recent rates of connections."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window = (window_count, window_ms)
        self._limits: dict[str | None, float] = {}
        self._over_all = Rate(window_count, window_ms)
        self._rates: dict[str, Rate] = {}

    def published(self, quotas: Quotas) -> None:
        """Apply the limits of a new image; measured rates are kept.

        A host name, which Kafka's controller accepts if it can resolve it, limits no connection: this broker
        resolves no names.
        """
        from ipaddress import ip_address  # at its only use: a start does not need it

        limits: dict[str | None, float] = {}
        for entity, numbers in quotas.items():
            for kind, name in entity:
                if kind == IP and CONNECTION_CREATION_RATE in numbers:
                    with suppress(ValueError):
                        limits[name if name is None else str(ip_address(name))] = numbers[
                            CONNECTION_CREATION_RATE
                        ]
        self._limits = limits
        if not limits:
            self._rates.clear()

    def connecting(self, address: str, per_second: int, now_ms: Millis) -> Throttled:
        """Record a connection from `address`, where `per_second` are accepted in total; `now_ms` never
        decreases.
        """
        window_ms = self._window[1]
        address = address.removeprefix(_MAPPED)
        waits_ms = 0
        if per_second < RATE_MAX:
            # A rate of zero would never accept a connection again: Kafka waits a window each time.
            waits_ms = min(
                self._over_all.charge(1, per_second, now_ms) if per_second > 0 else window_ms, window_ms
            )
        limit = self._limits.get(address, self._limits.get(None)) if self._limits else None
        if limit is not None and limit < RATE_MAX:
            rate = self._rate_of(address)
            over_ms = min(rate.charge(1, limit, now_ms) if limit > 0 else window_ms, window_ms)
            if over_ms:
                if limit > 0:
                    rate.charge(-1, limit, now_ms)
                if 0 < per_second < RATE_MAX:
                    self._over_all.charge(-1, per_second, now_ms)
                return Throttled(closed_after_ms=over_ms)
        return Throttled(admitted_after_ms=waits_ms) if waits_ms else _FREE

    def _rate_of(self, address: str) -> Rate:
        rate = self._rates.pop(address, None)  # and moved behind all others
        if rate is None:
            if len(self._rates) >= _ADDRESSES_MAX:
                del self._rates[next(iter(self._rates))]
            rate = Rate(*self._window)
        self._rates[address] = rate
        return rate
