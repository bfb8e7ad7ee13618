"""Runs jobs outside the event loop: work over immutable inputs and the disk that would delay other sessions
if it ran within a turn.

    run ─► waiting, by rank ─► on a thread: one slice ─► result or error ─► back on the reactor's thread
               ▲                                  │
               └──────── has more steps ──────────┘

The rank of a job is the time at which it starts to wait, plus a penalty for the processor time that its
session has lately used in jobs (its logarithm: one half-life later the penalty is one less). A session that
uses little therefore runs next, however many jobs of busy sessions wait, and no job waits forever. A job in
steps is interrupted after a slice, and jobs beyond their first slice leave one thread free for others. A
session has one job at a time, because it is muted meanwhile, so it never occupies all threads.

A job with `memory_bytes` starts when that much memory is free, and holds it until its result was handled.
Large jobs together may use three quarters of the memory, so that small ones do not wait for them.
"""

import time
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from math import log2
from threading import Condition, Thread
from typing import Final, cast

from sparklog.effects import Steps
from sparklog.errors import without_frames
from sparklog.model import SessionId
from sparklog_server.daemon.linux import lower_priority
from sparklog_server.disk.door import StorageError

THREADS: Final = 2
SLICE_S: Final = 0.01
"""The processor time that a job in steps takes before a waiting job runs."""
HALF_LIFE_S: Final = 1.0
SMALL_BYTES: Final = 4 << 20

OWN_TRIES: Final = 10
OWN_REST_S: Final = 0.5

_USE_MIN_S: Final = 1e-6
_SESSIONS_SWEPT_FROM: Final = 1024

Job = Callable[[], object]
Done = Callable[[object], None]


class _Work:
    """A job, its progress, and the receiver of its result."""

    __slots__ = ("done", "in_steps", "job", "memory_bytes", "session", "steps", "tries")

    def __init__(
        self, job: Job, done: Done, *, in_steps: bool, session: SessionId | None, memory_bytes: int
    ) -> None:
        self.job = job
        self.done = done
        self.in_steps = in_steps
        self.session = session
        self.memory_bytes = memory_bytes
        self.steps: Steps[object] | None = None
        self.tries = 1


_Heap = list[tuple[float, int, _Work]]


class Jobs:
    """A pool of few threads, started with the first jobs. A job's result, or the exception it raised,
    returns on the reactor's thread.

    Invariant: `_reserved` and `_reserved_by_large` are the memory of the jobs that have started and whose
    results were not handled yet.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        *,
        memory_max: int = 0,
        is_background: bool = False,
    ) -> None:
        self._post = post
        self._memory_max = memory_max
        self._is_background = is_background
        self._changed = Condition()
        self._begun: _Heap = []  # jobs that were interrupted
        self._ready: _Heap = []
        self._small: _Heap = []
        self._large: _Heap = []
        self._going_on = 0  # threads on jobs that were interrupted
        self._reserved = 0
        self._reserved_by_large = 0
        self._used: dict[SessionId, tuple[float, float]] = {}  # processor seconds, and when they were counted
        self._sequence = 0
        self._threads = 0
        self.running = 0
        self.done = 0  # jobs that have ended

    def run(
        self,
        job: Job,
        done: Done,
        *,
        in_steps: bool = False,
        session: SessionId | None = None,
        memory_bytes: int = 0,
    ) -> None:
        """Run `job` when a thread and its memory are free, then call `done` with its result or error."""
        assert memory_bytes <= self._room_for(memory_bytes), "a job that could never start"
        with self._changed:
            self._push(_Work(job, done, in_steps=in_steps, session=session, memory_bytes=memory_bytes))
            self._changed.notify()
        if self._threads < THREADS:
            self._threads += 1
            Thread(target=self._serve, name=f"job {self._threads}", daemon=True).start()

    @property
    def waiting(self) -> int:
        """The jobs that wait for a thread or for memory."""
        return len(self._begun) + len(self._ready) + len(self._small) + len(self._large)

    # -- the next job

    def _push(self, work: _Work) -> None:
        now_s = time.monotonic()
        heap = self._ready if work.steps is None else self._begun
        if work.memory_bytes and work.steps is None:
            heap = self._small if work.memory_bytes <= SMALL_BYTES else self._large
        self._sequence += 1
        heappush(
            heap,
            (
                now_s / HALF_LIFE_S + log2(max(self._use_s(work.session, now_s), _USE_MIN_S)),
                self._sequence,
                work,
            ),
        )

    def _pop(self) -> _Work | None:
        """The first job that may run; its memory is held from now on."""
        heaps = [
            heap
            for heap in (self._begun, self._ready, self._small, self._large)
            if heap and self._fits(heap[0][2])
        ]
        if not heaps:
            return None
        work = heappop(min(heaps, key=_first))[2]
        if work.steps is not None:
            self._going_on += 1
        elif work.memory_bytes:
            self._reserved += work.memory_bytes
            if work.memory_bytes > SMALL_BYTES:
                self._reserved_by_large += work.memory_bytes
        return work

    def _fits(self, work: _Work) -> bool:
        size = work.memory_bytes
        if work.steps is not None:
            return self._going_on < THREADS - 1
        if not size:
            return True
        reserved = self._reserved_by_large if size > SMALL_BYTES else 0
        return self._reserved + size <= self._memory_max and reserved + size <= self._room_for(size)

    def _room_for(self, size: int) -> int:
        return self._memory_max if size <= SMALL_BYTES else self._memory_max * 3 // 4

    def _use_s(self, session: SessionId | None, now_s: float) -> float:
        """Processor seconds that the jobs of a session took, each counting half after every half-life."""
        used = self._used.get(session) if session is not None else None
        return 0.0 if used is None else float(used[0] * 0.5 ** ((now_s - used[1]) / HALF_LIFE_S))

    def _charge(self, session: SessionId | None, seconds: float) -> None:
        if session is None:
            return
        now_s = time.monotonic()
        if session not in self._used and len(self._used) >= _SESSIONS_SWEPT_FROM:
            self._used = {
                one: used for one, used in self._used.items() if self._use_s(one, now_s) > _USE_MIN_S
            }
        self._used[session] = (self._use_s(session, now_s) + seconds, now_s)

    # -- on the threads

    def _serve(self) -> None:
        if self._is_background:
            lower_priority()
        while True:
            # a separate call: the frame of a waiting thread must not reference the job
            self._serve_one()

    def _serve_one(self) -> None:
        with self._changed:
            work = self._pop()
            while work is None:
                self._changed.wait()
                work = self._pop()
            self.running += 1
        is_going_on = work.steps is not None
        begun_s = time.thread_time()
        result: object
        try:
            result, is_done = self._work(work, begun_s)
        except MemoryError as error:
            # A request fails. The broker retries its own jobs: a job changes nothing before it is complete.
            result, is_done = without_frames(error), work.session is not None or work.tries == OWN_TRIES
            work.tries += 1
            work.steps = None
            if not is_done:
                time.sleep(OWN_REST_S)
        except Exception as error:
            result, is_done = _as_result(error), True
        with self._changed:
            self._charge(work.session, time.thread_time() - begun_s)
            self.running -= 1
            self.done += is_done
            if is_going_on:
                self._going_on -= 1
                self._changed.notify()
            if not is_done:
                self._push(work)
        if is_done:
            work.steps = None
            self._post(partial(self._finish, work, result))

    def _work(self, work: _Work, begun_s: float) -> tuple[object, bool]:
        """Run one slice; returns the result and whether the job is done."""
        if not work.in_steps:
            return work.job(), True
        steps = work.steps
        try:
            if steps is None:
                steps = work.steps = cast(Steps[object], work.job())
                next(steps)
            while True:
                next(steps)
                if time.thread_time() - begun_s >= SLICE_S:
                    return None, False
        except StopIteration as end:
            return end.value, True

    def _finish(self, work: _Work, result: object) -> None:
        """On the reactor's thread: report the result, then release the memory."""
        work.done(result)
        if work.memory_bytes:
            with self._changed:
                self._reserved -= work.memory_bytes
                if work.memory_bytes > SMALL_BYTES:
                    self._reserved_by_large -= work.memory_bytes
                self._changed.notify()


def _first(heap: _Heap) -> tuple[float, int]:
    return heap[0][:2]


def _as_result(error: Exception) -> Exception:
    """The error without its frames. A bug, which ends the process, keeps its traceback in a note."""
    if not isinstance(error, StorageError):
        import traceback

        error.add_note("".join(traceback.format_exception(error)))
    return without_frames(error)
