"""The audit log: which decisions about access become lines, and how many.

a decision ─► counted by principal and resource ─┬─► the first in the interval ─► a line
                                                 └─► the next ones ─► counted in one line at its end
"""

from typing import Final, NamedTuple

import msgspec

from sparklog.model import Instant, Micros

TRACKED_MAX: Final = 10_000
"""The number of pairs of principal and resource within one interval; decisions about any more are counted in
one line.
"""

_ENDED_AT_ONCE: Final = 500
"""The windows that one `flush` ends."""

EVENT: Final = "audit"

Line = dict[str, object]
"""The event and the fields of a line."""


class Decision(NamedTuple):
    """A decision, with the names that the line has for operation and resource."""

    principal: str
    host: str
    operation: str
    resource_type: str
    resource_name: str
    is_allowed: bool


class _Window(msgspec.Struct):
    """The decisions about one principal and resource since `begun_us`, except for the first."""

    begun_us: Micros
    count: int = 0
    newest: Decision | None = None


class Audit:
    """Decisions of a turn are taken by `decided`; `flush`, at the end of the turn, returns their lines.

    Invariants: a principal and a resource have at most one line in an interval, and one more for what came
    after it; windows are in order of their begin; `deadline_us` is None while no decision waits for a line.
    """

    def __init__(self, *, interval_ms: int, logs_allowed: bool) -> None:
        self.logs_allowed: Final = logs_allowed
        self.has_decisions = False
        self.deadline_us: Micros | None = None
        self._interval_us = interval_ms * 1000
        self._decided: dict[Decision, int] = {}
        self._windows: dict[tuple[str, str, str, bool], _Window] = {}
        self._overflow = _Window(Micros(0))
        self._lines: list[Line] = []
        self._waiting_count = 0  # of decisions that a line at the end of a window will count

    def decided(self, decision: Decision) -> None:
        """Take a decision of this turn."""
        self.has_decisions = True
        self._decided[decision] = self._decided.get(decision, 0) + 1

    def flush(self, now: Instant) -> list[Line]:
        """The lines that are due, each once."""
        self._end_windows(now)
        decided, self._decided = self._decided, {}
        self.has_decisions = False
        for decision, count in decided.items():
            key = (
                decision.principal,
                decision.resource_type,
                decision.resource_name,
                decision.is_allowed,
            )
            window = self._windows.get(key)
            if window is None and len(self._windows) >= TRACKED_MAX:
                window = self._overflow
                if not window.count:
                    window.begun_us = now.mono_us
            if window is None:
                self._windows[key] = _Window(now.mono_us)
                self._line(decision, count)
            else:
                window.count += count
                window.newest = decision
                self._waiting_count += count
        self.deadline_us = self._deadline()
        lines, self._lines = self._lines, []
        return lines

    def _end_windows(self, now: Instant) -> None:
        begun_until_us = now.mono_us - self._interval_us
        ended: list[tuple[str, str, str, bool]] = []  # found in one pass: a dict looks for its first key anew
        for key, window in self._windows.items():  # the oldest first
            if window.begun_us > begun_until_us or len(ended) == _ENDED_AT_ONCE:
                break
            ended.append(key)
        for key in ended:
            window = self._windows.pop(key)
            if window.newest is not None:
                self._waiting_count -= window.count
                self._line(window.newest, window.count)
        overflow = self._overflow
        if overflow.count and overflow.begun_us + self._interval_us <= now.mono_us:
            self._waiting_count -= overflow.count
            self._lines.append({"event": EVENT, "decisions_without_a_line": overflow.count})
            self._overflow = _Window(now.mono_us)

    def _deadline(self) -> Micros | None:
        """The end of the oldest window, while decisions wait for a line in any."""
        if not self._waiting_count:
            return None
        oldest = next(iter(self._windows.values()), self._overflow)
        return Micros(oldest.begun_us + self._interval_us)

    def _line(self, decision: Decision, count: int) -> None:
        self._lines.append(
            {
                "event": EVENT,
                "decision": "allowed" if decision.is_allowed else "denied",
                "principal": decision.principal,
                "host": decision.host,
                "operation": decision.operation,
                "resource_type": decision.resource_type,
                "resource_name": decision.resource_name,
                "count": count,
            }
        )
