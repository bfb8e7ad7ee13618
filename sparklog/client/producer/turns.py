"""The choice of the thread of a producer that uses its network, and the wake-ups of sleeping threads: a
machine without threads.

    worker    uses the network and the outbound batches; one thread at a time, never while it sleeps
    watcher   receives the replies: it works, sleeps at the sockets, and works again; one thread at a time

    send, batch full or linger_ms=0 ──► works once: sends without waiting for replies
    result, flush, commit, ...      ──► watches until its condition holds; a second waiting thread waits at
                                        the condition variable, and watches when the first has left
    the background thread           ──► watches when no other thread has worked for ATTENDED_US

The threads that fill batches or wait for them do the I/O themselves, since a hand-over to another thread
costs more than the request (docs/decisions/0015). Each method that may block is a generator: its caller
holds the producer's lock, performs the yielded step without the lock, and resumes the generator with the
lock held. All state is read and written under that lock, so a thread decides to sleep and another thread
decides to wake it in an order that both see. These rules lose no wake-up:

 1. Only the watcher sleeps at the sockets, and it sets `sleeps_until` before the lock is released.
 2. Work that becomes due before `sleeps_until` wakes the watcher.
 3. Work for a thread that is awake sets `is_wanted`; neither a worker stops nor a watcher sleeps while it
    is set.
 4. A watcher that leaves notifies the waiting threads, one of which watches next.
"""

from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import Final, Protocol, TypeVar

from sparklog.model import Micros

ATTENDED_US: Final = 2_000
"""The time for which the background thread stays off the network after another thread has worked: a producer
in use sends its next batch sooner than that.
"""

NO_THREAD: Final = 0
AWAKE: Final = Micros(0)

T = TypeVar("T")


class Step(Enum):
    """A step that the caller of the machine performs without the lock; it sends back the time of a SHIP or
    TURN.
    """

    SHIP = auto()
    """Send what is ready; leave replies to the watcher."""
    TURN = auto()
    """Send what is ready, and take in replies."""
    CALL = auto()
    """Run the callbacks of batches that are done."""
    SLEEP = auto()
    """Sleep at the sockets until the given time."""
    WAIT = auto()
    """Wait at the condition variable until the given time, without limit at `WITHOUT_LIMIT`."""
    REST = auto()
    """Sleep until the given time; nothing ends a rest early."""


Action = tuple[Step, Micros]
Steps = Generator[Action, Micros, T]

WITHOUT_LIMIT: Final = Micros((1 << 63) - 1)

# Reading an enum member through its class costs as much as two calls.
_SHIP: Final[Action] = (Step.SHIP, AWAKE)
_TURN: Final[Action] = (Step.TURN, AWAKE)
_CALL: Final[Action] = (Step.CALL, AWAKE)
_WAIT: Final[Action] = (Step.WAIT, WITHOUT_LIMIT)


class Work(Protocol):
    """The producer's batches and network, as this machine sees them; called under the lock."""

    @property
    def is_stuck(self) -> bool:
        """Whether the last SHIP sent nothing, or left a batch behind: a TURN must process a reply, connect,
        or request a producer id.
        """

    @property
    def has_callbacks(self) -> bool:
        """Whether a CALL has callbacks to run."""

    def lingers_until(self, now: Micros) -> Micros | None:
        """The time at which the next open batch has lingered."""

    def due(self, now: Micros, *, is_in_background: bool = False) -> Micros:
        """The time at which there is work without an event, apart from work that was due at `now`, the time
        of a turn.
        """

    def wake(self) -> None:
        """End the SLEEP step of the thread that waits at the sockets."""

    def notify(self) -> None:
        """End the WAIT step of each waiting thread."""


class Turns:
    """The schedule of one producer's threads. Invariants: `worker` is set only while a SHIP or TURN runs;
    `sleeps_until` is `AWAKE` unless the watcher sleeps and has not been woken.
    """

    __slots__ = (
        "_attended_until",
        "_background",
        "_claims",
        "_clock",
        "_is_wanted",
        "_sends_full_batches",
        "_sleeps_until",
        "_watcher",
        "_work",
        "_worker",
        "is_closed",
    )

    def __init__(self, work: Work, clock: Callable[[], Micros], *, sends_full_batches: bool) -> None:
        self._work = work
        self._clock = clock
        self.is_closed = False
        self._sends_full_batches = sends_full_batches
        self._background = NO_THREAD
        self._worker = NO_THREAD
        self._watcher = NO_THREAD
        self._sleeps_until = AWAKE
        self._is_wanted = False
        self._attended_until = Micros(0)
        self._claims = 0  # threads that wait for `_worker` to become free

    # -- facts -----------------------------------------------------------------------------------------------

    def due_at(self, moment: Micros) -> None:
        """Note a new batch that has lingered at `moment`."""
        if moment < self._sleeps_until:
            self._disturb()

    def wanted(self) -> None:
        """Note work that no deadline announces: a topic to look up, a flush, a transaction's end."""
        self._is_wanted = True
        self._disturb()

    def published(self, thread: int) -> None:
        """Note that `thread` has finished batches or operations, or received the metadata of topics."""
        if self._watcher not in (thread, self._background):
            self._disturb()  # the watcher may wait for them
        self._work.notify()

    def closed(self) -> None:
        """End the work of every thread; those that wait return."""
        self.is_closed = True
        self._disturb()
        self._work.notify()

    # -- the threads -----------------------------------------------------------------------------------------

    def send(self, me: int) -> Steps[None]:
        """Send the ready batches, unless another thread is already working."""
        if self.is_closed:
            return
        if self._worker != NO_THREAD or self._claims:
            self._is_wanted = True
            return
        if self._sends_full_batches:
            self._attended_until = Micros(self._clock() + ATTENDED_US)
        now = yield from self._works(me, _SHIP)
        # Without a thread that waits for replies they are read only when needed: several are then read at
        # once.
        if self._work.is_stuck or self._is_wanted:
            if self._watcher in (NO_THREAD, self._background):
                now = yield from self._works(me, _TURN)
            else:
                self.wanted()
        # No wake-up is needed if the sleep of the background thread ends by `_attended_until`: it then finds
        # the work.
        by_itself = self._attended_until if self._watcher == self._background else AWAKE
        if self._sleeps_until > by_itself:
            self.due_at(self._work.due(now))

    def wait(self, me: int, is_over: Callable[[], bool], deadline: Micros) -> Steps[bool]:
        """Work until a condition holds, or wait for the thread that works; False if it does not hold by the
        deadline, or at a close. A callback of the watcher may wait: the thread continues to watch afterwards.
        """
        was_watcher = self._watcher == me
        try:
            while not is_over():
                if self.is_closed or self._clock() >= deadline:
                    return False
                if self._watcher not in (NO_THREAD, me):
                    if self._watcher == self._background:
                        self._attended_until = Micros(self._clock() + ATTENDED_US)
                        self._disturb()  # the background thread leaves the network to this thread
                    yield Step.WAIT, deadline
                    continue
                self._watcher = me
                if self._worker != NO_THREAD:
                    yield from self._waits_for_worker(deadline)
                    continue
                now = yield from self._works(me, _TURN)
                if is_over():
                    break
                if self._work.has_callbacks:
                    yield _CALL
                yield from self._sleeps(now, deadline)
            return True
        finally:
            if self._watcher == me and not was_watcher:
                self._attended_until = Micros(self._clock() + ATTENDED_US)
                self._leave()

    def alone(self, me: int) -> Steps[None]:
        """Return when no other thread uses the network, or sleeps at it after a close."""
        while self._worker != NO_THREAD or (self.is_closed and self._watcher not in (NO_THREAD, me)):
            yield from self._waits_for_worker(WITHOUT_LIMIT)

    def background(self, me: int) -> Steps[None]:
        """The background thread: do the work that no other thread does, until a close."""
        self._background = me
        lingered: Micros | None = None
        while not self.is_closed:
            now = self._clock()
            is_attended = now < self._attended_until and (lingered is None or now < lingered)
            if is_attended or self._watcher != NO_THREAD:
                lingered = self._work.lingers_until(now)
                until = Micros(now + ATTENDED_US)
                yield Step.REST, until if lingered is None else min(until, lingered)
                continue
            lingered = None
            self._watcher = me
            try:
                while self._worker != NO_THREAD:
                    yield from self._waits_for_worker(WITHOUT_LIMIT)
                yield from self._watches_in_background(me)
            finally:
                self._leave()

    # -- inside ----------------------------------------------------------------------------------------------

    def _watches_in_background(self, me: int) -> Steps[None]:
        while True:
            now = yield from self._works(me, _TURN)
            if self._work.has_callbacks:
                yield _CALL
            if self._is_left_to_others():
                return
            yield from self._sleeps(now, WITHOUT_LIMIT, is_in_background=True)
            if self._is_left_to_others():
                return

    def _is_left_to_others(self) -> bool:
        """Whether the background thread stops watching."""
        return self.is_closed or self._worker != NO_THREAD or self._clock() < self._attended_until

    def _works(self, me: int, action: Action) -> Steps[Micros]:
        """Work until no more is wanted; returns the time of the last turn."""
        assert self._worker == NO_THREAD
        self._worker = me
        try:
            while True:
                if action is _TURN:
                    self._is_wanted = False
                now = yield action
                if action is _SHIP or not self._is_wanted or self.is_closed:
                    return now
        finally:
            self._worker = NO_THREAD
            if self._claims:
                self._work.notify()

    def _sleeps(self, now: Micros, deadline: Micros, *, is_in_background: bool = False) -> Steps[None]:
        """Sleep at the sockets, unless there is work."""
        if self._is_wanted or self.is_closed or self._worker != NO_THREAD:
            return
        until = min(self._work.due(now, is_in_background=is_in_background), deadline)
        self._sleeps_until = until
        try:
            yield Step.SLEEP, until
        finally:
            self._sleeps_until = AWAKE

    def _waits_for_worker(self, deadline: Micros) -> Steps[None]:
        self._claims += 1
        try:
            yield Step.WAIT, deadline
        finally:
            self._claims -= 1

    def _leave(self) -> None:
        self._watcher = NO_THREAD
        self._work.notify()

    def _disturb(self) -> None:
        """Wake the watcher, once."""
        if self._sleeps_until != AWAKE:
            self._sleeps_until = AWAKE
            self._work.wake()
