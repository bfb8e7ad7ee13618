"""How fast connections may come: over all, and from each address (KIP-612).

    a connection knocks ─► too many from its address ─► held unread for as long as it is over, then closed; it does not count
                       └─► too many over all ─────────► nobody is admitted for as long as it is over, then this one is the first

Rates are taken as those of other quotas are; no wait is longer than one of their windows.
"""  # noqa: E501

from contextlib import suppress
from ipaddress import ip_address
from typing import Final, NamedTuple

from sparklog.model import Millis
from sparklog_server.broker.rates import Rate
from sparklog_server.controller.client_quotas import CONNECTION_CREATION_RATE
from sparklog_server.metadata.client_quotas import IP, Quotas

RATE_MAX: Final = (1 << 31) - 1
"""This many a second, or more, is without limit."""
_MAPPED: Final = "::ffff:"
"""How an IPv4 address begins where a listener of IPv6 hears it."""
_ADDRESSES_MAX: Final = 10_000
"""How many addresses are remembered; those that were silent longest are forgotten first, and begin anew."""


class Throttled(NamedTuple):
    """What a new connection has to bear, in ms: zero is nothing."""

    admitted_after_ms: int = 0
    closed_after_ms: int = 0


_FREE: Final = Throttled()


class ConnectionRates:
    """The limits of the published image, and how fast connections have come lately."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window = (window_count, window_ms)
        self._limits: dict[str | None, float] = {}
        self._over_all = Rate(window_count, window_ms)
        self._rates: dict[str, Rate] = {}

    def published(self, quotas: Quotas) -> None:
        """These numbers hold from now on; what came before is remembered.

        A host's name, which Kafka's controller takes where it can resolve it, limits nobody: nothing is
        resolved here.
        """
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
        """A connection has come from `address`, where `per_second` are admitted over all; `now_ms` never
        goes back.
        """
        window_ms = self._window[1]
        address = address.removeprefix(_MAPPED)
        waits_ms = 0
        if per_second < RATE_MAX:
            # A rate of zero would never admit anybody again: Kafka waits a window each time.
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
        rate = self._rates.pop(address, None)  # and put back behind all others
        if rate is None:
            if len(self._rates) >= _ADDRESSES_MAX:
                del self._rates[next(iter(self._rates))]
            rate = Rate(*self._window)
        self._rates[address] = rate
        return rate
