"""Jobs beside the loop: their order, the memory they hold together, and the result of one that
fails.
"""

import gc
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from threading import Event, get_native_id
from time import thread_time
from typing import Self

import pytest

from sparklog.effects import Steps
from sparklog.errors import without_frames
from sparklog.model import SessionId
from sparklog_server.daemon.jobs import SLICE_S, SMALL_BYTES, THREADS, Jobs
from sparklog_server.disk.door import StorageError

MIB = 1 << 20
PATIENCE_S = 30


class Loop:
    """Collects the calls that jobs post, and runs them on request."""

    def __init__(self, memory_max: int = 64 * MIB) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.jobs = Jobs(self.posted.put, memory_max=memory_max)
        self.results: list[object] = []
        self.gates: list[Event] = []

    def run(
        self,
        job: Callable[[], object],
        *,
        session: int | None = None,
        in_steps: bool = False,
        memory_bytes: int = 0,
    ) -> None:
        key = None if session is None else SessionId(session)
        self.jobs.run(job, self.results.append, session=key, in_steps=in_steps, memory_bytes=memory_bytes)

    def occupy(self, session: int | None = None) -> Event:
        """Have a job that lasts until the event is set, and that has begun."""
        begun, gate = Event(), Event()
        self.gates.append(gate)
        self.run(partial(_wait, begun, gate), session=session)
        assert begun.wait(PATIENCE_S)
        return gate

    def take(self, count: int) -> list[object]:
        """Run posted calls until there are so many results."""
        while len(self.results) < count:
            self.posted.get(timeout=PATIENCE_S)()
        return self.results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for gate in self.gates:
            gate.set()


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as loop:
        yield loop


def _wait(begun: Event, gate: Event) -> str:
    begun.set()
    gate.wait(PATIENCE_S)
    return "waited"


class Buffer(bytearray):
    """A buffer that can be watched."""


def _spin(seconds: float) -> None:
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def _in_slices(name: str, order: list[str], slices: int) -> Steps[str]:
    for _ in range(slices):
        yield
        order.append(name)
        _spin(2 * SLICE_S)
    return name


def test_a_session_that_used_little_goes_before_the_waiting_jobs_of_busy_ones(loop: Loop) -> None:
    for number in range(4):
        loop.run(partial(_spin, 0.02), session=1 + number % 2)
    loop.take(4)
    gates = [loop.occupy() for _ in range(THREADS)]
    order: list[str] = []
    for _ in range(3):
        for session in (1, 2):
            loop.run(partial(order.append, "busy"), session=session)
    loop.run(partial(order.append, "idle"), session=3)
    for gate in gates:
        gate.set()
    loop.take(4 + THREADS + 7)
    assert order.index("idle") <= THREADS


def test_a_job_in_steps_lets_others_run_after_a_slice(loop: Loop) -> None:
    loop.occupy()  # all threads but one
    order: list[str] = []
    gate = loop.occupy()
    loop.run(partial(_in_slices, "long", order, 5), session=1, in_steps=True)
    loop.run(partial(_in_slices, "other", order, 1), session=2, in_steps=True)
    gate.set()
    loop.take(3)
    assert order.index("other") <= 2
    assert order.count("long") == 5


def test_jobs_start_only_while_their_memory_fits_and_small_ones_pass_large_ones() -> None:
    with Loop(memory_max=20 * MIB) as loop:
        begun: list[str] = []
        large = 12 * MIB
        loop.run(partial(begun.append, "large"), memory_bytes=large)
        loop.run(partial(begun.append, "second large"), memory_bytes=large)
        loop.run(partial(begun.append, "small"), memory_bytes=SMALL_BYTES)
        finish_first, finish_small = loop.posted.get(timeout=PATIENCE_S), loop.posted.get(timeout=PATIENCE_S)
        assert sorted(begun) == ["large", "small"]
        assert loop.posted.empty()  # the results were not handled yet, so their memory is still held
        finish_first()
        finish_small()
        loop.take(3)
        assert begun[-1] == "second large"


def test_what_a_failed_job_held_is_gone_with_it(loop: Loop) -> None:
    def fail(buffer: Buffer) -> None:
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise StorageError("f", "read", "broken") from error

    buffer = Buffer(100)
    watched = weakref.ref(buffer)
    gc.disable()
    try:
        loop.run(partial(fail, buffer))
        del buffer
        (error,) = loop.take(1)
        assert isinstance(error, StorageError)
        assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)
        loop.run(int)  # the thread holds nothing of its last job once it has taken another
        loop.take(2)
        assert watched() is None
    finally:
        gc.enable()


def test_an_error_of_our_own_tells_where_it_was_raised_though_it_holds_no_frame(loop: Loop) -> None:
    def fail() -> None:
        raise LookupError("not there")

    loop.run(fail)
    (error,) = loop.take(1)
    assert isinstance(error, LookupError)
    assert error.__traceback__ is None
    assert "in fail" in error.__notes__[0]


def test_memory_that_runs_out_fails_the_job_of_a_session(loop: Loop) -> None:
    def fail() -> None:
        raise MemoryError

    loop.run(fail, session=1)
    loop.run(lambda: "next", session=1)
    first, second = loop.take(2)
    assert isinstance(first, MemoryError)
    assert second == "next"


def test_a_job_that_the_broker_needs_is_tried_again_when_memory_runs_out(loop: Loop) -> None:
    tries: list[int] = []

    def work() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise MemoryError
        return "done"

    loop.run(work)
    assert loop.take(1) == ["done"]


def test_an_exception_without_frames_keeps_neither_cause_nor_context() -> None:
    try:
        try:
            raise KeyError(1)
        except KeyError:
            raise ValueError(2) from None
    except ValueError as error:
        kept = without_frames(error)
    assert (kept.__traceback__, kept.__cause__, kept.__context__) == (None, None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux alone")
def test_background_jobs_run_at_a_lower_priority_than_the_loop(loop: Loop) -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, get_native_id())

    own = priority()
    Jobs(loop.posted.put, is_background=True).run(priority, loop.results.append)
    background = loop.take(1)[0]
    assert isinstance(background, int)
    assert background > own == priority()
