"""Runs jobs beside the loop: work over immutable inputs and the disk door that would take too long between two sockets."""

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Final

THREADS: Final = 2

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
        while True:
            job, done = self._queue.get()
            result: object
            try:
                result = job()
            except Exception as error:
                result = error
            self._post(partial(done, result))
