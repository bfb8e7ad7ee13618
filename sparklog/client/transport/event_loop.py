"""The shell around the client's machines in an event loop, in place of the threads of `producer/sender.py`
and `membership/group_thread.py`: no thread, no copy of the network.

The selector of a `Network` has a descriptor of its own, readable when one of its sockets is ready. The loop
watches that descriptor and keeps one timer, and calls `turn`, which never waits and returns the time of its
next work. So the machines, `Network` and `Sending` are the same as under the blocking shells.

    socket ready ──► selector readable ─┐
    deadline ────────────────► timer ───┼──► turn() ──► waiting tasks look at their conditions
    a call of the user ────► call_soon ─┘

Works with every loop that has `add_reader`: asyncio's on Linux and macOS, and uvloop.
"""

import asyncio
import socket
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self

from sparklog.client.clock import now_us
from sparklog.client.failures import ClientClosed, not_pickled
from sparklog.client.transport.network import Network, Resolve, Resolved
from sparklog.model import Micros


class AsyncClient:
    """A client of an event loop: `async with` starts and stops it, and no pickle takes it along."""

    async def start(self) -> None:
        """Begin in the running loop."""
        raise NotImplementedError

    async def stop(self) -> None:
        """End, and close the connections; a second call has no effect."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __reduce__(self) -> NoReturn:
        raise not_pickled(type(self).__name__)


class Driver:
    """Runs the turns of one client in the running loop. Invariants: at most one timer and one `call_soon` are
    pending; after `close` no turn runs, and every waiting task has been woken.
    """

    def __init__(self, network: Network, turn: Callable[[], Micros]) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        self.crash: BaseException | None = None
        self._network = network
        self._turn = turn
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = Micros(0)
        self._soon: asyncio.Handle | None = None
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._descriptor = network.fileno()
        network.resolve = resolver(self.loop, self.soon)
        self.loop.add_reader(self._descriptor, self.run)

    def soon(self) -> None:
        """Run a turn in the next iteration of the loop."""
        if self._soon is None and not self.is_closed:
            self._soon = self.loop.call_soon(self.run)

    def not_soon(self) -> None:
        """Leave out the turn in the next iteration: its work is done."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def at(self, moment: Micros) -> None:
        """Run a turn at that time, or sooner."""
        if self.is_closed or (self._timer is not None and self._timer_at <= moment):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = moment
        self._timer = self.loop.call_later(max(0, moment - now_us()) / 1e6, self._ring)

    def run(self) -> None:
        """Run a turn now. An exception, a bug of the client, ends the driver, and every wait raises it."""
        self.not_soon()
        if self.is_closed:
            return
        try:
            due = self._turn()
        except BaseException as error:
            self.crash = error
            self.close()
            raise
        self.at(due)
        self.changed()

    def changed(self) -> None:
        """Let the waiting tasks look at their conditions."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, is_over: Callable[[], bool], deadline: Micros) -> bool:
        """Wait until a condition holds; False if it does not by the deadline. Raises ClientClosed after a
        close. A cancelled wait has no effect.
        """
        while not is_over():
            self.check()
            left = deadline - now_us()
            if left <= 0:
                return False
            future = self.loop.create_future()
            self._waiting[future] = None
            timer = self.loop.call_later(min(left / 1e6, 3600.0), _wake, future)
            try:
                await future
            finally:
                timer.cancel()
                self._waiting.pop(future, None)
        return True

    def check(self) -> None:
        """Raise ClientClosed after a close."""
        if self.crash is not None:
            raise ClientClosed(f"the client broke: {self.crash!r}") from self.crash
        if self.is_closed:
            raise ClientClosed("the client is closed")

    def close(self) -> None:
        """End the turns; the network is closed by the caller afterwards."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if not self.loop.is_closed():
            self.loop.remove_reader(self._descriptor)
            self.changed()

    def _ring(self) -> None:
        self._timer = None
        self.run()


def resolver(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> Resolve:
    """Looks up names in the loop's shared pool, since a name server may be slow; `wake` is called after."""
    lookups: set[asyncio.Task[None]] = set()  # the loop keeps only weak references to tasks

    def resolve(host: str, port: int, done: Callable[[Resolved], None]) -> None:
        async def look_up() -> None:
            try:
                found: Resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                found = error
            except UnicodeError as error:
                found = OSError(str(error))
            done(found)
            wake()

        task = loop.create_task(look_up())
        lookups.add(task)
        task.add_done_callback(lookups.discard)

    return resolve


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
