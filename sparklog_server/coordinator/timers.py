"""Deadlines of a shard: a heap with lazy deletion, where to put off a deadline costs one comparison and no
push.

A timer lies in the heap at the time for which it was last armed, which may be earlier than its deadline
and never later. When that time comes, it fires if the deadline has come too, and else goes back into the
heap for its deadline. So a member whose heartbeats come every 3 s and whose session lasts 45 s is moved in
the heap once in 45 s.
"""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from sparklog.model import Micros

S = TypeVar("S")

_SLACK = 64
"""Entries of cancelled timers may outnumber the others by this many before the heap is swept."""


class Timer(Generic[S]):
    """One deadline, None while it is off, and what it is the deadline of."""

    __slots__ = ("deadline", "entry", "lies_at", "subject")

    def __init__(self, subject: S) -> None:
        self.subject = subject
        self.deadline: Micros | None = None
        self.lies_at: Micros | None = None
        self.entry = 0


class Timers(Generic[S]):
    """The timers of one shard; every entry that counts is the one whose number its timer knows."""

    __slots__ = ("_entries", "_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[tuple[Micros, int, Timer[S]]] = []
        self._entries = 0
        self._live = 0

    def __len__(self) -> int:
        """How many timers are on."""
        return self._live

    def arm(self, timer: Timer[S], deadline: Micros) -> None:
        """Let `timer` fire at `deadline` and not before, whatever it was set to."""
        if timer.deadline is None:
            self._live += 1
        timer.deadline = deadline
        if timer.lies_at is None or deadline < timer.lies_at:
            self._push(timer, deadline)

    def cancel(self, timer: Timer[S]) -> None:
        """Switch `timer` off; nothing happens if it is."""
        if timer.deadline is not None:
            timer.deadline = None
            self._live -= 1
            if len(self._heap) > 2 * self._live + _SLACK:
                self._sweep()

    def deadline(self) -> Micros | None:
        """When `pop` is wanted next: no later than the earliest deadline; it may turn out that nothing is
        due.
        """
        return self._heap[0][0] if self._heap else None

    def pop(self, now: Micros) -> S | None:
        """Switch off the earliest timer that is due by `now`, and return what it is the deadline of; None
        if none is due.

        One by one, since to act on one deadline may put off another.
        """
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, entry, timer = heappop(heap)
            if entry != timer.entry:
                continue  # it was armed anew, for an earlier time
            timer.lies_at = None
            if timer.deadline is None:
                continue
            if timer.deadline > now:
                self._push(timer, timer.deadline)
                continue
            timer.deadline = None
            self._live -= 1
            return timer.subject
        return None

    def _push(self, timer: Timer[S], deadline: Micros) -> None:
        self._entries += 1
        timer.entry = self._entries
        timer.lies_at = deadline
        heappush(self._heap, (deadline, self._entries, timer))

    def _sweep(self) -> None:
        """Drop the entries of timers that are off: paid for by as many cancellations."""
        kept = []
        for entry in self._heap:
            _, number, timer = entry
            if number != timer.entry:
                continue
            if timer.deadline is None:
                timer.lies_at = None
            else:
                kept.append(entry)
        heapify(kept)
        self._heap = kept
