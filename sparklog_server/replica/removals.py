"""Removal of files from the disks of this node: one step at a time, since a sync waits for each.

due ── step (job) ── next step (job) ── … ── gone
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from sparklog.effects import Run
from sparklog.model import Instant, Micros, Ticket
from sparklog_server.log.removal import Removal, go_on


class Removals:
    """Invariant: at most one step is under way."""

    def __init__(self, *, tickets: Callable[[], Ticket], trace: Callable[..., None]) -> None:
        self._tickets = tickets
        self._trace = trace
        self._new: list[Removal] = []
        self._waiting: list[tuple[Micros, Ticket, Removal]] = []
        self._step: tuple[Ticket, Micros] | None = None  # its ticket, and when it was due
        self._is_stopped = False

    def add(self, removal: Removal, due_us: Micros | None = None) -> None:
        """Remove from `due_us` on, or from the next turn on."""
        if self._is_stopped:
            return
        if due_us is None:
            self._new.append(removal)
        else:
            heappush(self._waiting, (due_us, self._tickets(), removal))

    def hurry(self, now: Instant) -> None:
        """A disk is full: waiting removals are due now. Slices of their files stay readable through their
        open files.
        """
        now_us = now.mono_us
        self._waiting = [(min(due_us, now_us), ticket, removal) for due_us, ticket, removal in self._waiting]
        heapify(self._waiting)

    def stop(self) -> None:
        """Begin no further step: the remaining files are removed when the log directory is opened again."""
        self._is_stopped = True
        self._new.clear()
        self._waiting.clear()

    @property
    def is_quiet(self) -> bool:
        """Whether no step is under way."""
        return self._step is None

    def deadline(self) -> Micros | None:
        """When `due_jobs` has something to do."""
        if self._new:
            return Micros(0)
        return self._waiting[0][0] if self._waiting and self._step is None else None

    def due_jobs(self, now: Instant) -> list[Run]:
        """The next step if it is time."""
        new, self._new = self._new, []
        for removal in new:
            self.add(removal, now.mono_us)
        due_us = self.deadline()
        if due_us is None or due_us > now.mono_us:
            return []
        due_us, ticket, removal = heappop(self._waiting)
        self._step = ticket, due_us
        return [Run(removal, ticket, is_background=True)]

    def finished(self, ticket: Ticket, result: object, now: Instant) -> list[Run] | None:
        """The result of a step; None if the ticket belongs to another."""
        if self._step is None or self._step[0] != ticket:
            return None
        _, due_us = self._step
        self._step = None
        if isinstance(result, Exception):
            self._trace("removal-failed", reason=str(result))
        rest = go_on(result)
        if rest is not None:
            self.add(rest, due_us)
        return []
