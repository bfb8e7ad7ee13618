"""Deadlines of a shard: a heap with lazy deletion. To postpone a deadline costs one comparison and no push.

The heap entry of a timer may be earlier than its deadline, never later. At the time of the entry the timer
fires if its deadline has come, else it is pushed again for its deadline. A member with a heartbeat every 3 s
and a session of 45 s is pushed once in 45 s.
"""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from sparklog.model import Micros

S = TypeVar("S")

_SLACK = 64
"""The heap is swept when it has this many entries more than twice the armed timers."""


class Timer(Generic[S]):
    """A subject and its deadline, None while the timer is off."""

    __slots__ = ("deadline", "entry", "lies_at", "subject")

    def __init__(self, subject: S) -> None:
        self.subject = subject
        self.deadline: Micros | None = None
        self.lies_at: Micros | None = None
        self.entry = 0


class Timers(Generic[S]):
    """The timers of one shard. An entry of the heap is valid if its number is the `entry` of its timer."""

    __slots__ = ("_entries", "_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[tuple[Micros, int, Timer[S]]] = []
        self._entries = 0
        self._live = 0

    def __len__(self) -> int:
        """The number of armed timers."""
        return self._live

    def arm(self, timer: Timer[S], deadline: Micros) -> None:
        """Set the deadline of `timer`; it replaces the one before."""
        if timer.deadline is None:
            self._live += 1
        timer.deadline = deadline
        if timer.lies_at is None or deadline < timer.lies_at:
            self._push(timer, deadline)

    def cancel(self, timer: Timer[S]) -> None:
        """Switch `timer` off, if it is armed."""
        if timer.deadline is not None:
            timer.deadline = None
            self._live -= 1
            if len(self._heap) > 2 * self._live + _SLACK:
                self._sweep()

    def deadline(self) -> Micros | None:
        """The next time for `pop`, no later than the earliest deadline; `pop` may find no timer due."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now: Micros) -> S | None:
        """Switch off the earliest timer that is due by `now`, and return its subject; None if none is due.

        Returns one at a time, because its handling may postpone another.
        """
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, entry, timer = heappop(heap)
            if entry != timer.entry:
                continue  # the timer was armed again for an earlier time
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
        """Drop the entries of switched-off timers; as many cancellations pay for the sweep."""
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
