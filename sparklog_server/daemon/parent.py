"""The parent of an embedded broker: it has ended when its end of this process's standard input closes, or
when the parent pid changes.

The pipe reports the end at once. The pid is checked too, because another child of the parent may hold the
pipe open.
"""

import os
from collections.abc import Callable
from typing import Final

from sparklog_server.daemon.reactor import Reactor

_STDIN: Final = 0
REFUSED: Final = "refused "
"""Begins what a node that cannot start prints to its supervisor in place of its ready line."""


def print_refusal(reason: str) -> None:
    """Tell the supervisor that this node cannot start, with the reason and the remedy; it logs them."""
    print(REFUSED + " ".join(reason.split("\n")), flush=True)


class Parent:
    """Calls `gone` once, from the reactor's thread."""

    CHECKED_EVERY_S: Final = 1.0

    def __init__(self, pid: int, reactor: Reactor, gone: Callable[[], None]) -> None:
        self._pid = pid
        self._reactor = reactor
        self._gone = gone
        reactor.watch(_STDIN, self._readable)

    def check(self) -> None:
        """Check the pid; to be called every `CHECKED_EVERY_S`."""
        if os.getppid() != self._pid:
            self._leave()

    def _readable(self, _events: int) -> None:
        if not os.read(_STDIN, 4096):
            self._leave()

    def _leave(self) -> None:
        self._reactor.forget(_STDIN)
        self._gone()
