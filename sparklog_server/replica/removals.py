"""Removal of files from the disks of this node: one step at a time, since a sync waits for each.

due ── step (job) ── next step (job) ── … ── gone
"""

from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count

from sparklog.model import Instant, Micros
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.disk.removal import Removal


class Removals:
    """The files that wait for their removal. Invariant: at most one step is in progress."""

    def __init__(self, continuations: Continuations, *, trace: Callable[..., None]) -> None:
        self._continuations = continuations
        self._trace = trace
        self._order = count()  # the removals that are due at one time
        self._new: list[Removal] = []
        self._waiting: list[tuple[Micros, int, Removal]] = []
        self._is_at_work = False  # a step is in progress
        self._is_stopped = False

    def add(self, removal: Removal, due_us: Micros | None = None) -> None:
        """Remove from `due_us` on, or from the next turn on."""
        if self._is_stopped:
            return
        if due_us is None:
            self._new.append(removal)
        else:
            heappush(self._waiting, (due_us, next(self._order), removal))

    def hurry(self, now: Instant) -> None:
        """A disk is full: waiting removals are due now. Slices of their files stay readable through their
        open files.
        """
        now_us = now.mono_us
        self._waiting = [(min(due_us, now_us), order, removal) for due_us, order, removal in self._waiting]
        heapify(self._waiting)

    def stop(self) -> None:
        """Begin no further step: the remaining files are removed when the log directory is opened again."""
        self._is_stopped = True
        self._new.clear()
        self._waiting.clear()

    @property
    def is_quiet(self) -> bool:
        """Whether no step is under way."""
        return not self._is_at_work

    def deadline(self) -> Micros | None:
        """The next time for `begin_due`."""
        if self._new:
            return Micros(0)
        return self._waiting[0][0] if self._waiting and not self._is_at_work else None

    def begin_due(self, now: Instant) -> None:
        """Begin the next step if it is time."""
        new, self._new = self._new, []
        for removal in new:
            self.add(removal, now.mono_us)
        due_us = self.deadline()
        if due_us is None or due_us > now.mono_us:
            return
        due_us, _, removal = heappop(self._waiting)
        self._is_at_work = True
        self._continuations.run(removal, partial(self._stepped, due_us), is_background=True)

    def _stepped(self, due_us: Micros, rest: Removal | StorageError | None, now: Instant) -> None:
        self._is_at_work = False
        if isinstance(rest, StorageError):
            self._trace("removal-failed", reason=str(rest))
        elif rest is not None:
            self.add(rest, due_us)
