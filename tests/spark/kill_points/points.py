"""Points: places in the life of a micro-batch where a worker asks the test for an action, and waits for the
answer.

    worker  ask(address, point)  ──►  {"name": "decide", "topic": …, "batch": 1, "partition": -1, "pid": 4711}
    test    runs the rule for that point, once; without one the answer is "go"
    worker  ◄──  "go"      continue
                 "raise"   raise PointRaised
                 "exit"    end this process at once; also if the test process is gone

In tasks:       begun (before the first row is read), written (all is acknowledged, the message is not
                returned)
On the driver:  commit, fence, last_decision, check, decide, first_end (one of several transactions is
                committed), end_all, condemn (where a lost attempt is open), sweep, committed (before Spark's
                own log of commits); abort, aborted
"""

import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Self

PATIENCE_S = 240.0
GO, RAISE, EXIT = "go", "raise", "exit"


class PointRaised(RuntimeError):
    """The action that a test requested."""


class Point(NamedTuple):
    """A place that a worker has come to; `partition` is -1 on the driver."""

    name: str
    topic: str
    batch: int
    partition: int = -1
    attempt: int = 0
    pid: int = 0


Answer = str | Callable[[Point], str]


def ask(address: str, point: Point) -> None:
    """In a worker: do as the test says; returns, raises PointRaised or ends the process."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(json.dumps(point._replace(pid=os.getpid())).encode() + b"\n")
            answer = connection.makefile().readline().strip()
    except OSError:
        answer = ""
    if answer == RAISE:
        raise PointRaised(f"at {point.name} of batch {point.batch}")
    if answer != GO:
        os._exit(1)


class _Rule(NamedTuple):
    name: str
    topic: str
    batch: int | None
    partition: int | None
    answer: Answer

    def fits(self, point: Point) -> bool:
        return (
            (self.name, self.topic) == (point.name, point.topic)
            and self.batch in (None, point.batch)
            and self.partition in (None, point.partition)
        )


class Points:
    """Receives the points of all workers, and answers by the rules; a rule is used once."""

    def __init__(self) -> None:
        self.passed: list[Point] = []
        self._rules: list[_Rule] = []
        self._failures: list[BaseException] = []
        self._changed = threading.Condition()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline()
                if line:
                    answer = outer._answered(Point(*json.loads(line)))
                    with suppress(OSError):  # of a worker that was killed while it waited
                        self.wfile.write(answer.encode() + b"\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def on(
        self, name: str, topic: str, answer: Answer, *, batch: int | None = None, partition: int | None = None
    ) -> None:
        """The first time that a worker comes to this point it does what `answer` says, which is called in
        a thread of its own.
        """
        with self._changed:
            self._rules.append(_Rule(name, topic, batch, partition, answer))

    def hold(
        self, name: str, topic: str, *, batch: int | None = None, partition: int | None = None
    ) -> "Held":
        """A worker that comes to this point waits there until it is released."""
        held = Held()
        self.on(name, topic, held.wait, batch=batch, partition=partition)
        return held

    def names(self, topic: str, batch: int) -> list[str]:
        """The points of one batch that were passed, in order."""
        return [point.name for point in self.passed if (point.topic, point.batch) == (topic, batch)]

    def check(self) -> None:
        """Every rule was used, and none failed."""
        with self._changed:
            assert not self._failures, self._failures
            assert not self._rules, (
                f"never came to {[rule[:4] for rule in self._rules]}; passed {self.passed}"
            )

    def forget(self) -> None:
        """Nothing is passed and nothing is to happen: for the next test."""
        with self._changed:
            self.passed, self._rules, self._failures = [], [], []

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answered(self, point: Point) -> str:
        with self._changed:
            self.passed.append(point)
            rule = next((rule for rule in self._rules if rule.fits(point)), None)
            if rule is not None:
                self._rules.remove(rule)
        if rule is None:
            return GO
        try:
            return rule.answer if isinstance(rule.answer, str) else rule.answer(point)
        except BaseException as failure:
            self._failures.append(failure)
            return EXIT

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Held:
    """A worker that waits at a point, from `reached` until `release`."""

    def __init__(self) -> None:
        self._reached, self._released = threading.Event(), threading.Event()
        self._answer = GO
        self.point: Point | None = None

    def wait(self, point: Point) -> str:
        self.point = point
        self._reached.set()
        assert self._released.wait(PATIENCE_S), f"nobody released {point}"
        return self._answer

    def reached(self) -> Point:
        """Wait until a worker is there."""
        assert self._reached.wait(PATIENCE_S), "nobody came to the point"
        assert self.point is not None
        return self.point

    def release(self, answer: str = GO) -> None:
        self._answer = answer
        self._released.set()
