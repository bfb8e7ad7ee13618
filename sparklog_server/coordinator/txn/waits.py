"""The soft state of the transactions of a shard: timeouts, missing markers and pending requests.

Ongoing    its timeout on the monotonic clock, checked every `abort_interval_ms`
Prepare*   the partitions without a marker, retried with an exponential back-off
           requests for the next transaction, held until this one is complete
"""

from collections.abc import Iterable
from typing import NamedTuple

from sparklog.model import Instant, Micros, TopicPartition
from sparklog_server.coordinator.command import Command, Token
from sparklog_server.coordinator.timers import Timer, Timers

from .events import End

_RETRY_MIN_MS = 50
_RETRY_MAX_MS = 10_000
_HOLD_MS = 1_000
"""How long a request is held: the back-off of a client is longer than the markers take."""
_PENDING_PER_ID_MAX = 4


class PendingRequest(NamedTuple):
    """A request that is held until the transaction before it is complete."""

    transactional_id: str
    command: Command
    token: Token


class Completing:
    """An ending transaction: `missing` has the partitions without a marker, `attempts` counts the retries."""

    __slots__ = ("attempts", "end", "hold_timer", "missing", "pending", "retry_timer")

    def __init__(self, transactional_id: str, partitions: Iterable[TopicPartition]) -> None:
        self.missing = dict.fromkeys(sorted(partitions))
        self.end = End()
        self.attempts = 0
        self.pending: list[PendingRequest] = []
        self.retry_timer = Timer(transactional_id)
        self.hold_timer = Timer(transactional_id)


class Completions:
    """The ending transactions of a shard, by id."""

    def __init__(self) -> None:
        self._by_id: dict[str, Completing] = {}
        self._holding: dict[str, Completing] = {}  # those with pending requests
        self._retries: Timers[str] = Timers()
        self._holds: Timers[str] = Timers()
        self._released: list[PendingRequest] = []

    def begin(self, transactional_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Begin to complete a transaction: its markers are due."""
        self._by_id[transactional_id] = Completing(transactional_id, partitions)

    def of(self, transactional_id: str) -> Completing | None:
        """The ending transaction of an id, or None."""
        return self._by_id.get(transactional_id)

    def end(self, transactional_id: str) -> None:
        """Every partition has its marker: release the pending requests for the next turn."""
        completing = self._by_id.pop(transactional_id)
        completing.end.is_over = True
        self._retries.cancel(completing.retry_timer)
        self._holds.cancel(completing.hold_timer)
        self._holding.pop(transactional_id, None)
        self._released += completing.pending

    def try_again(self, completing: Completing, now: Instant) -> None:
        """Retry the failed markers after a back-off."""
        pause_ms = min(_RETRY_MIN_MS << min(completing.attempts, 16), _RETRY_MAX_MS)
        completing.attempts += 1
        self._retries.arm(completing.retry_timer, Micros(now.mono_us + pause_ms * 1000))

    def hold(self, completing: Completing, pending: PendingRequest, now: Instant) -> bool:
        """Hold a request until the transaction is complete; False if too many are held."""
        if len(completing.pending) >= _PENDING_PER_ID_MAX:
            return False
        completing.pending.append(pending)
        self._holding[pending.transactional_id] = completing
        if completing.hold_timer.deadline is None:
            self._holds.arm(completing.hold_timer, Micros(now.mono_us + _HOLD_MS * 1000))
        return True

    def due_again(self, now: Instant) -> tuple[str, Completing] | None:
        """The next transaction with markers to retry."""
        transactional_id = self._retries.pop(now.mono_us)
        return None if transactional_id is None else (transactional_id, self._by_id[transactional_id])

    def take_released(self, count: int) -> list[PendingRequest]:
        """Up to `count` released requests, one for each id, because each changes the transaction."""
        taken: dict[str, PendingRequest] = {}
        left = []
        for pending in self._released:
            if pending.transactional_id in taken or len(taken) == count:
                left.append(pending)
            else:
                taken[pending.transactional_id] = pending
        self._released = left
        return list(taken.values())

    def take_overdue(self, now: Instant) -> list[PendingRequest]:
        """The requests that have been held for too long."""
        overdue: list[PendingRequest] = []
        while (transactional_id := self._holds.pop(now.mono_us)) is not None:
            completing = self._holding.pop(transactional_id, None)
            if completing is not None:
                overdue += completing.pending
                completing.pending = []
        return overdue

    def abandoned(self, token: Token) -> None:
        """Drop the pending request of `token`."""
        self._released = [pending for pending in self._released if pending.token is not token]
        for completing in self._holding.values():
            completing.pending = [pending for pending in completing.pending if pending.token is not token]

    def withdraw(self) -> None:
        """Let no marker be written whose writing has not begun."""
        for completing in self._by_id.values():
            completing.end.is_over = True

    def waiting(self) -> list[Token]:
        """The tokens of all pending requests; their order has no meaning."""
        pending = [*self._released]
        for completing in self._holding.values():
            pending += completing.pending
        return [one.token for one in pending]

    def deadline(self) -> Micros | None:
        """The next time at which a retry or a pending request is due."""
        if self._released:
            return Micros(0)
        retry, hold = self._retries.deadline(), self._holds.deadline()
        return hold if retry is None else retry if hold is None else min(retry, hold)


class Open(NamedTuple):
    """The timeout of an open transaction, and the time at which the resolver is no longer consulted."""

    timer: Timer[str]
    give_up_us: int


class Timeouts:
    """The timeouts of the open transactions of a shard, checked every `interval_ms` from `begun` on."""

    def __init__(self, interval_ms: int, begun: Instant) -> None:
        self._interval_us = interval_ms * 1000
        self._begun_us = begun.mono_us
        self._open: dict[str, Open] = {}
        self._timers: Timers[str] = Timers()

    def begin(
        self, transactional_id: str, *, elapsed_ms: int, timeout_ms: int, longest_ms: int, now: Instant
    ) -> None:
        """Start the timeout of a transaction that has been open for `elapsed_ms`."""
        begun_us = now.mono_us - elapsed_ms * 1000
        opened = Open(Timer(transactional_id), begun_us + longest_ms * 1000)
        self._open[transactional_id] = opened
        self._timers.arm(opened.timer, Micros(begun_us + timeout_ms * 1000))

    def end(self, transactional_id: str) -> None:
        """Stop the timeout of a transaction, if it runs."""
        opened = self._open.pop(transactional_id, None)
        if opened is not None:
            self._timers.cancel(opened.timer)

    def has(self, transactional_id: str) -> bool:
        """Whether the timeout of a transaction runs."""
        return transactional_id in self._open

    def next(self, now: Instant) -> str | None:
        """The next id whose transaction has passed its timeout; to be called only after `deadline`."""
        return self._timers.pop(now.mono_us)

    def ask_again(self, transactional_id: str, now: Instant) -> None:
        """Check a transaction again at the next interval: its outcome is not known yet."""
        self._timers.arm(self._open[transactional_id].timer, Micros(now.mono_us + 1))

    def is_given_up(self, transactional_id: str, now: Instant) -> bool:
        """Whether a transaction has been open for the longest time allowed."""
        return now.mono_us >= self._open[transactional_id].give_up_us

    def deadline(self) -> Micros | None:
        """The next time for `next`: the first check after the earliest timeout."""
        earliest = self._timers.deadline()
        if earliest is None:
            return None
        looks = max(-(-(earliest - self._begun_us) // self._interval_us), 1)
        return Micros(self._begun_us + looks * self._interval_us)
