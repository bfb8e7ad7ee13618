"""Counts the hooks that a query calls, and strikes at the one that is named."""

import os
import signal
import socketserver
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Literal, NamedTuple, Self


class Strike(NamedTuple):
    """What is struck, and when: before or after the hook is called for the `nth` time (from 1) since the
    strike was named.
    """

    target: Literal["driver", "worker", "hook", "broker"]
    hook: str
    nth: int
    moment: Literal["before", "after"]

    def __str__(self) -> str:
        return f"{self.target} {self.moment} {self.hook} {self.nth}"


class Referee:
    """Answers the watched source from a thread of its own; strikes once for each strike that is named."""

    def __init__(self, restart_broker: Callable[[Callable[[], None]], None]) -> None:
        """`restart_broker` kills the broker, calls its argument, and starts the broker again."""
        self.driver_pid = 0
        self.has_struck = threading.Event()
        self._restart_broker = restart_broker
        self._strike: Strike | None = None
        self._seen: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        referee = self

        class Question(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                hook, moment = self.rfile.readline().decode().split()
                referee.asked(hook, moment, self.answer)

            def answer(self, word: str) -> None:
                self.wfile.write(f"{word}\n".encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Question)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def address(self) -> str:
        """`host:port`."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def name(self, strike: Strike) -> None:
        """From now on, wait for this moment."""
        with self._lock:
            self._strike = strike
            self._seen.clear()
            self.has_struck.clear()

    def asked(self, hook: str, moment: str, answer: Callable[[str], None]) -> None:
        """A hook is called, or has been."""
        with self._lock:
            self._seen[hook, moment] += 1
            strike = self._strike
            if (
                strike is None
                or (hook, moment) != (strike.hook, strike.moment)
                or self._seen[hook, moment] != strike.nth
            ):
                strike = None
            else:
                self._strike = None
        if strike is None:
            answer("go")
            return
        match strike.target:
            case "driver":
                os.kill(self.driver_pid, signal.SIGKILL)
                self.has_struck.set()
                answer("die")
            case "worker":
                self.has_struck.set()
                answer("die")
            case "hook":
                self.has_struck.set()
                answer("fail")
            case "broker":
                self._restart_broker(lambda: answer("go"))
                self.has_struck.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
