"""The event loop: one epoll, one wake-up descriptor, and calls posted by other threads.

A turn costs one system call. Events are level-triggered: unfinished work is reported again, so a callback may
do little and return, and every socket gets its turn.

A sleeping processor wakes slowly: 40 us on the virtual machines where this was measured, more than a whole
request. While recent waits were short (a client sends its next request as soon as it has its response), the
reactor polls for a short time before it sleeps, and yields the processor to other threads. It sleeps at once
if waits are long, if each wait is ended by another descriptor (with a thousand idle clients, the last event
does not predict the next), and while a sync or a step of a TLS handshake is awaited: polling would compete
with its thread for the GIL.
"""

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from sparklog_server.histogram import Histogram

READ: Final = 1  # EPOLLIN and POLLIN
WRITE: Final = 4  # EPOLLOUT and POLLOUT
PEER_CLOSED: Final = getattr(select, "EPOLLRDHUP", 0)
"""The peer sends no more; with it the reactor tells a connection that has ended from one that is readable.
Linux alone reports it.
"""
EVENTS_PER_TURN: Final = 4096
"""The most events that a turn looks at, to find requests among connections that have ended; it serves at
most as many as the next two numbers say.
"""
SERVED_PER_TURN: Final = 256
ENDED_PER_TURN: Final = 32
"""Closing a connection takes 35 us, and one client may end thousands at once."""
RECEIVED_PER_TURN: Final = 1 << 20
"""With so many bytes received, a turn calls no other descriptor."""
SHORT_WAIT_NS: Final = 150_000
"""A wait that ended within this was short: the next one is begun awake."""
AWAKE_NS: Final = 100_000
"""How long to poll before sleeping."""
CROWDED_NS: Final = 50_000
"""A yield that took this long ran another thread."""
CROWDED_FOR_NS: Final = 10_000_000
FAMILIAR_MAX: Final = 4
"""A client and its partners: with more descriptors than that, the last event does not predict the next."""


class _Poll(Protocol):
    def register(self, descriptor: int, events: int, /) -> object: ...
    def modify(self, descriptor: int, events: int, /) -> object: ...
    def unregister(self, descriptor: int, /) -> object: ...
    def wait(self, timeout_s: float | None) -> list[tuple[int, int]]: ...
    def close(self) -> None: ...


class _Epoll:
    """epoll, for Linux."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister
        self.close = self._epoll.close
        self.wait = partial(self._epoll.poll, maxevents=EVENTS_PER_TURN)


class _PortablePoll:
    """poll, for macOS: its cost grows with the number of sockets, which on a laptop are few."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister

    def close(self) -> None:
        """No effect: poll has no descriptor."""

    def wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        return self._poll.poll(None if timeout_s is None else timeout_s * 1000)


class Reactor:
    """Calls back when a descriptor is ready. Only `post` and `wake` may be called from other threads and
    from signal handlers.
    """

    def __init__(self) -> None:
        self._poll: _Poll = _Epoll() if hasattr(select, "epoll") else _PortablePoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self._posted: deque[Callable[[], None]] = deque()
        self._alone_from_ns = 0
        self._is_sleep_due = False
        self._waited_ns = SHORT_WAIT_NS
        # Descriptors that were ready and not called yet, with the number of turns.
        self._passed_over: dict[int, int] = {}
        self.received_bytes = 0  # by the connections in this turn
        self._heard: tuple[int, ...] = ()  # descriptors that ended the last few waits, newest first
        self.turns: Histogram | None = None
        """How long the loop worked between two waits; None if that is not measured."""
        self.waited_ns = 0  # while they are measured
        self._worked_from_ns = 0  # the end of the last wait
        self._is_closed = False
        self._closing = Lock()  # not for `wake`: a signal may come while its own thread posts
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self.watch(self._wake_reader, self._woken)

    def watch(self, descriptor: int, ready: Callable[[int], None], events: int = READ) -> None:
        """Call `ready(events)` whenever the descriptor is readable, writable or broken, until `forget`."""
        self._ready[descriptor] = ready
        self._poll.register(descriptor, events)

    def change(self, descriptor: int, events: int) -> None:
        """Watch for other events; with none, only a broken connection is still reported, as neither READ
        nor WRITE.
        """
        self._poll.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor; to be called before it is closed."""
        if self._ready.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def post(self, call: Callable[[], None]) -> None:
        """Make this call on the reactor's thread in its next turn; calls are made in the order posted, and
        none after `close`.
        """
        self._posted.append(call)
        with self._closing:
            if not self._is_closed:
                self.wake()

    def sleep_next(self) -> None:
        """Sleep at once in the next wait: a thread works meanwhile, or the last wait does not predict it."""
        self._is_sleep_due = True

    def wake(self) -> None:
        """End the wait of the current turn."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._wake_writer, b"\0")

    @property
    def wake_descriptor(self) -> int:
        """A byte written here ends the wait of the current turn."""
        return self._wake_writer

    def turn(self, timeout_s: float | None) -> None:
        """Wait until a descriptor is ready, at most for the timeout (None: no limit), and call the callbacks.

        An event of a descriptor that was forgotten within the turn is dropped, even if a new connection
        reuses its number.
        """
        found = self._wait(timeout_s)
        waited, self._passed_over = self._passed_over, {}
        if waited:
            # The descriptors that have waited longest come first: the kernel reports busy ones in the same
            # order each time.
            found.sort(key=lambda one: waited.get(one[0], 0), reverse=True)
        due = [(descriptor, self._ready.get(descriptor), events) for descriptor, events in found]
        served_left, ended_left = SERVED_PER_TURN, ENDED_PER_TURN
        self.received_bytes = 0
        for descriptor, ready, events in due:
            if ready is None or self._ready.get(descriptor) is not ready:
                continue
            if events & PEER_CLOSED and ended_left:
                ended_left -= 1
            elif not events & PEER_CLOSED and served_left:
                served_left -= 1
            else:
                self._passed_over[descriptor] = waited.get(descriptor, 0) + 1
                continue
            ready(events)
            if self.received_bytes >= RECEIVED_PER_TURN:
                served_left = ended_left = 0

    def _wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        began_ns = time.monotonic_ns()
        if self.turns is not None and self._worked_from_ns:
            self.turns.add((began_ns - self._worked_from_ns) // 1000)
        if (
            self._waited_ns < SHORT_WAIT_NS
            and not self._is_sleep_due
            and began_ns >= self._alone_from_ns
            and (timeout_s is None or timeout_s > AWAKE_NS / 1e9)
        ):
            ready = self._poll.wait(0)
            asked_ns = began_ns
            while not ready and asked_ns - began_ns < AWAKE_NS:
                os.sched_yield()
                before_ns, asked_ns = asked_ns, time.monotonic_ns()
                if asked_ns - before_ns > CROWDED_NS:
                    # Other threads need the processor: a sleeping thread gets it back at its event, a
                    # yielding one later.
                    self._alone_from_ns = asked_ns + CROWDED_FOR_NS
                    asked_ns += AWAKE_NS
                ready = self._poll.wait(0)
            if ready:
                self._ended_by(ready, began_ns)
                return ready
        self._is_sleep_due = False
        ready = self._poll.wait(timeout_s)
        self._ended_by(ready, began_ns)
        return ready

    def _ended_by(self, ready: list[tuple[int, int]], began_ns: int) -> None:
        """Record the length of a wait that began then. One ended by an unfamiliar descriptor counts as long;
        one ended by a posted call does not count.
        """
        self._worked_from_ns = time.monotonic_ns()
        waited_ns = self._worked_from_ns - began_ns
        self.waited_ns += waited_ns
        if not ready:
            self._waited_ns = waited_ns
            return
        descriptor, heard = ready[0][0], self._heard
        if descriptor == self._wake_reader:
            return
        self._waited_ns = waited_ns if descriptor in heard else SHORT_WAIT_NS
        if not heard or heard[0] != descriptor:
            self._heard = (descriptor, *heard[: FAMILIAR_MAX - 1])

    def close(self) -> None:
        """Close the reactor's descriptors; `turn` must not be called again."""
        # A thread may still finish its work, and the number of a closed descriptor is soon reused.
        with self._closing:
            self._is_closed = True
            self._poll.close()
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _woken(self, _events: int) -> None:
        os.read(self._wake_reader, 4096)
        # Only calls posted so far: calls that post other calls must not delay the sockets.
        for _ in range(len(self._posted)):
            self._posted.popleft()()
