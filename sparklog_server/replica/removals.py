"""What is to leave the disks of this node, and when: one step at a time, with rests, since the syncs of
others wait for each.

due ── step (job) ── rest of thirty times as long ── step … gone
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from sparklog.model import Instant, Micros
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.log.removal import Removal, go_on

_REST_SHARE: Final = 30
_REST_US_MAX: Final = 300_000
# Who writes faster than this removes must not fill the disk: what is so late goes without rests.
_LATE_US: Final = 60_000_000


class Removals:
    """Invariant: one step at most is under way."""

    def __init__(self, continuations: Continuations, *, trace: Callable[..., None]) -> None:
        self._continuations = continuations
        self._trace = trace
        self._order = count()  # of removals that are due at one time
        self._new: list[Removal] = []
        self._waiting: list[tuple[Micros, int, Removal]] = []
        self._step: tuple[Micros, Micros] | None = None  # when the step under way was due, when it began
        self._rests_until_us = Micros(0)
        self._is_stopped = False

    def add(self, removal: Removal, due_us: Micros | None = None) -> None:
        """Have it done from `due_us` on, or from the next turn."""
        if self._is_stopped:
            return
        if due_us is None:
            self._new.append(removal)
        else:
            heappush(self._waiting, (due_us, next(self._order), removal))

    def hurry(self, now: Instant) -> None:
        """A disk is full: what waits goes now, and without rests. Slices of it stay readable through their
        open files.
        """
        late_us = Micros(now.mono_us - _LATE_US - 1)
        self._waiting = [(min(due_us, late_us), order, removal) for due_us, order, removal in self._waiting]
        heapify(self._waiting)

    def stop(self) -> None:
        """Begin no step more: what is left goes when the log directory is opened again."""
        self._is_stopped = True
        self._new.clear()
        self._waiting.clear()

    @property
    def is_quiet(self) -> bool:
        """Whether no step is under way."""
        return self._step is None

    def deadline(self) -> Micros | None:
        """When `begin_due` has something to do."""
        if self._new:
            return Micros(0)
        return (
            max(self._waiting[0][0], self._rests_until_us) if self._waiting and self._step is None else None
        )

    def begin_due(self, now: Instant) -> None:
        """Begin the next step if it is time."""
        new, self._new = self._new, []
        for removal in new:
            self.add(removal, now.mono_us)
        due_us = self.deadline()
        if due_us is None or due_us > now.mono_us:
            return
        due_us, _, removal = heappop(self._waiting)
        self._step = due_us, now.mono_us
        self._continuations.run(removal, self._stepped)

    def _stepped(self, result: object, now: Instant) -> None:
        assert self._step is not None
        due_us, began_us = self._step
        self._step = None
        if isinstance(result, StorageError):
            self._trace("removal-failed", reason=str(result))
        rest = go_on(result)
        if rest is not None:
            self.add(rest, due_us)
        is_late = now.mono_us - due_us > _LATE_US
        self._rests_until_us = Micros(
            now.mono_us + (0 if is_late else min(_REST_SHARE * (now.mono_us - began_us), _REST_US_MAX))
        )
