"""The time of the next request of a transaction."""

from typing import Final

from sparklog.client.cluster import Entropy, backoff_us
from sparklog.client.membership import Coordinator
from sparklog.client.settings import ClientSettings
from sparklog.errors import ErrorCode
from sparklog.model import Micros

CONCURRENT_BACKOFF_MS: Final = 20
"""Kafka's first back-off while the coordinator still completes the previous transaction (KAFKA-5482)."""
UNREACHABLE_US_MAX: Final = 1_000_000
"""How long a coordinator may be unreachable before another broker is asked for the coordinator."""


class Pace:
    """Back-offs between requests, and the time since which the coordinator has been unreachable."""

    __slots__ = ("_entropy", "_settings", "attempts", "not_before", "unreachable_since")

    def __init__(self, settings: ClientSettings, entropy: Entropy) -> None:
        self._settings = settings
        self._entropy = entropy
        self.attempts = 0
        self.not_before = Micros(0)
        self.unreachable_since: Micros | None = None

    @property
    def deadline(self) -> Micros:
        """The time at which the next request may be sent, or another coordinator is looked up."""
        if self.unreachable_since is None:
            return self.not_before
        return Micros(self.unreachable_since + UNREACHABLE_US_MAX)

    def begin(self) -> None:
        """A new operation begins without a back-off."""
        self.attempts, self.not_before = 0, Micros(0)

    def retry(self, code: ErrorCode, now: Micros) -> None:
        """Back off after an error."""
        first, most = self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            # The coordinator completes a transaction within milliseconds.
            first, most = min(first, CONCURRENT_BACKOFF_MS), first
        wait = backoff_us(first, max(first, most), self.attempts, self._entropy)
        self.attempts += 1
        self.not_before = Micros(now + wait)

    def may_reach(self, home: Coordinator, now: Micros, *, is_ready: bool) -> bool:
        """Whether a request may be sent to the coordinator; one that stays unreachable is given up."""
        if is_ready:
            self.unreachable_since = None
        elif self.unreachable_since is None:
            self.unreachable_since = now
        elif now - self.unreachable_since >= UNREACHABLE_US_MAX:
            self.unreachable_since = None
            home.lost(now)
        return is_ready
