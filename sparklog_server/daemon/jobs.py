"""Runs jobs beside the loop: work over immutable inputs and the disk door that would take too long between two sockets."""

import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Final

from sparklog.effects import Steps
from sparklog_server.daemon.linux import lengthen_slice

THREADS: Final = 2

# A rest takes fourteen times as long as the step before it, within these bounds: at 256 KiB each, 128 MB/s at most.
REST_SHARE: Final = 14
REST_S_MIN: Final = 0.002
REST_S_MAX: Final = 0.05

Job = Callable[[], object]
Done = Callable[[object], None]


class Jobs:
    """A pool of few threads, started with the first jobs. A job's result, or the exception it raised, returns on the reactor's thread."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._queue: SimpleQueue[tuple[Job, Done]] = SimpleQueue()
        self._threads = 0

    def run(self, job: Job, done: Done) -> None:
        """Run `job` when a thread is free, then call `done` with what it returned or raised."""
        self._queue.put((job, done))
        if self._threads < THREADS:
            self._threads += 1
            Thread(target=self._serve, name=f"job {self._threads}", daemon=True).start()

    def _serve(self) -> None:
        lengthen_slice()
        while True:
            job, done = self._queue.get()
            result: object
            try:
                result = job()
            except Exception as error:
                result = error
            self._post(partial(done, result))


def take_calmly(steps: Steps[object], hears_others: Callable[[], bool]) -> object:
    """Take all steps, and rest after each but the last as long as others are heard; returns the result. Blocks."""
    try:
        next(steps)
        while True:
            is_calm = hears_others()
            began_s = time.monotonic()
            steps.send(is_calm)
            if is_calm:
                time.sleep(min(max(REST_SHARE * (time.monotonic() - began_s), REST_S_MIN), REST_S_MAX))
    except StopIteration as end:
        return end.value
