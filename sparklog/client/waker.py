"""Ends the wait of a thread at the sockets of a client, from another thread."""

import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager


class Waker:
    """A pair of sockets, of which the selector watches one; its key has no data."""

    __slots__ = ("_in", "_out", "_selector")

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._in, self._out = socket.socketpair()
        self._in.setblocking(False)
        self._out.setblocking(False)
        selector.register(self._in, selectors.EVENT_READ, None)

    def wake(self) -> None:
        """End the wait, or the next one."""
        try:
            self._out.send(b"\0")
        except OSError:
            return  # full of wake-ups already, or closed

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        try:
            while self._in.recv(4096):
                pass
        except BlockingIOError:
            return

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Leave wake-ups for later."""
        self._selector.unregister(self._in)
        try:
            yield
        finally:
            self._selector.register(self._in, selectors.EVENT_READ, None)

    def close(self) -> None:
        """Close both sockets; the selector is closed before."""
        self._in.close()
        self._out.close()
