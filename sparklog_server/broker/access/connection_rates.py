"""Limits on the rate of new connections: in total, and from each IP address (KIP-612).

    new connection ─┬─► above the rate of its address ─► held unread until the rate is met, then closed;
                    │                                    it does not count
                    └─► above the total rate ──────────► no connection is accepted until the rate is met,
                                                         then this one is the first

Rates are measured like those of other quotas, over the samples of the last windows or as a token bucket; no
wait is longer than one of their windows.
"""

from collections import deque
from contextlib import suppress
from math import floor
from typing import Final

import msgspec

from sparklog.model import Millis
from sparklog.wire.schema import INT32_MAX
from sparklog_server.metadata.client_quotas import CONNECTION_CREATION_RATE, IP, Quotas


class Rate:
    """An amount per second over the last windows (Kafka's Rate over a SampledStat). Amounts are integers;
    times in ms, never decreasing.
    """

    __slots__ = ("_ends_ms", "_full_s", "_newest", "_samples", "_total", "_window_count", "_window_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._full_s = (window_count - 1) * window_ms / 1000  # the shortest period of a rate
        self._samples: deque[list[int]] = deque()  # [start, last event, amount], oldest first
        self._newest: list[int] = [0, 0, 0]
        self._ends_ms = 0  # the start of a complete newest sample
        self._total = 0

    def charge(self, amount: int, per_second: float, now_ms: int) -> int:
        """Add `amount`; returns the time until the rate falls to `per_second`, 0 if it is not above.

        A negative amount removes an amount that was added at the same time.
        """
        if now_ms < self._ends_ms:
            newest = self._newest
            newest[1] = now_ms
            newest[2] += amount
        else:
            self._begin_sample(amount, now_ms)
        total = self._total = self._total + amount
        return 0 if total <= per_second * self._full_s else self.delay_ms(per_second, now_ms)

    def delay_ms(self, per_second: float, now_ms: int) -> int:
        """The time until the rate falls to `per_second`; 0 if it is not above."""
        samples, window_ms = self._samples, self._window_ms
        while samples and now_ms - samples[0][1] >= self._window_count * window_ms:
            self._total -= samples.popleft()[2]
            if not samples:
                self._ends_ms = 0
        # A rate over a short time since the first sample would be far too high: whole windows are assumed
        # before it.
        elapsed_ms = now_ms - samples[0][0] if samples else 0
        missing = self._window_count - 1 - elapsed_ms // window_ms
        if missing > 0:
            elapsed_ms += missing * window_ms
        span_ms = elapsed_ms or 1
        rate = self._total * 1000 / span_ms
        return 0 if rate <= per_second else _whole_ms((rate - per_second) / per_second * span_ms)

    def _begin_sample(self, amount: int, now_ms: int) -> None:
        if (
            len(self._samples) > self._window_count
        ):  # one more than the windows: the oldest may still overlap them
            self._total -= self._samples.popleft()[2]
        self._newest = [now_ms, now_ms, amount]
        self._ends_ms = now_ms + self._window_ms
        self._samples.append(self._newest)


class TokenBucket:
    """Tokens that return at a rate, up to `burst` windows' worth (KIP-599); an amount may be taken while the
    count is not negative.
    """

    __slots__ = ("_refilled_ms", "_span_s", "_tokens")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._span_s = window_count * window_ms / 1000
        self._tokens: float | None = None  # full
        self._refilled_ms = 0

    def record(self, amount: int, per_second: float, now_ms: int) -> None:
        """Take `amount`, even if fewer tokens are left."""
        self._refill(per_second, now_ms)
        assert self._tokens is not None
        self._tokens -= amount

    def give_back(self, amount: int, per_second: float) -> None:
        """Return tokens that were not used."""
        if self._tokens is not None:
            self._tokens = min(per_second * self._span_s, self._tokens + amount)

    def delay_ms(self, per_second: float, now_ms: int) -> int:
        """The time until the count is no longer negative; 0 if it is not."""
        self._refill(per_second, now_ms)
        assert self._tokens is not None
        return _whole_ms(-self._tokens / per_second * 1000) if self._tokens < 0 else 0

    def _refill(self, per_second: float, now_ms: int) -> None:
        burst = per_second * self._span_s
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + (now_ms - self._refilled_ms) / 1000 * per_second)
        self._refilled_ms = now_ms


RATE_MAX: Final = (1 << 31) - 1
"""A rate of this many per second, or more, is unlimited."""
_MAPPED: Final = "::ffff:"
"""The prefix of an IPv4 address on an IPv6 listener."""
_ADDRESSES_MAX: Final = 10_000
"""The maximum number of addresses in the table; the longest idle ones are dropped and begin anew."""


class Throttled(msgspec.Struct, frozen=True):
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


def _whole_ms(delay_ms: float) -> int:
    """Rounded as in Java, and bounded by the wire format."""
    return floor(min(delay_ms, INT32_MAX) + 0.5)
