"""Jobs of requests, which run outside the event loop, and the memory of requests that they hold.

    handler ─► run, run_in_steps ─► Parked.MUTING ··· the job ends ─┬─► finished(result) ─► answered or parked
                                                                    └─► no memory ─► the session is closed

A frame is received in a buffer that later frames reuse. A job, and a request that waits with bytes of its
frame, therefore hold copies; `RequestMemory` counts them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from sparklog.effects import Steps
from sparklog.model import Instant
from sparklog.wire.schema import Message
from sparklog_server.broker.memory import RequestMemory
from sparklog_server.broker.session import Call, Encoded, Parked, Session
from sparklog_server.continuations import Continuations
from sparklog_server.disk.door import StorageError
from sparklog_server.replica.directory import Trace

Finish = Callable[[], Message | Encoded | Parked]
"""Continues a request whose job has ended."""
_R = TypeVar("_R")


class RequestJobs:
    """The jobs of requests; `running` counts those that have not ended."""

    def __init__(
        self,
        continuations: Continuations,
        memory: RequestMemory,
        receive_buffers: Sequence[bytearray],
        *,
        finished: Callable[[Call, Finish, Instant], None],
        disconnect: Callable[[Session, str], None],
        trace: Trace,
    ) -> None:
        self.running = 0
        self._continuations = continuations
        self._memory = memory
        self._receive_buffers = receive_buffers
        self._finished = finished
        self._disconnect = disconnect
        self._trace = trace

    def run(
        self,
        call: Call,
        job: Callable[[], _R],
        finished: Callable[[_R | StorageError, Instant], Message | Encoded | Parked],
    ) -> None:
        """Run `job` in another thread, then call `finished` with its result or StorageError within a turn;
        the call must mute its session. If the job runs out of memory, the broker closes the session.
        """
        then, out_of_memory = self._await(call, finished, (), None)
        self._continuations.run(job, then, session=call.session.id, out_of_memory=out_of_memory)

    def run_in_steps(
        self,
        call: Call,
        job: Callable[[], Steps[_R]],
        finished: Callable[[_R | StorageError, Instant], Message | Encoded | Parked],
        *,
        copies: Sequence[bytearray | memoryview] = (),
        memory_bytes: int = 0,
        without_memory: _R | None = None,
    ) -> None:
        """As `run`, for a job that works in steps.

        `copies` are all the bytes of the request that the job holds, none of them in a receive buffer.
        `memory_bytes` is the most that the job allocates in addition. `without_memory` is the result if
        memory runs out; None closes the session.
        """
        then, out_of_memory = self._await(call, finished, copies, without_memory)
        self._continuations.run_in_steps(
            job, then, session=call.session.id, memory_bytes=memory_bytes, out_of_memory=out_of_memory
        )

    def _await(
        self,
        call: Call,
        finished: Callable[[_R | StorageError, Instant], Message | Encoded | Parked],
        copies: Sequence[bytearray | memoryview],
        without_memory: _R | None,
    ) -> tuple[Callable[[_R | StorageError, Instant], None], Callable[[Instant], None]]:
        copied_bytes = self.hold(copies)
        self.running += 1

        def then(result: _R | StorageError, now: Instant) -> None:
            self.let_go(copied_bytes)
            self.running -= 1
            self._finished(call, partial(finished, result, now), now)

        def out_of_memory(now: Instant) -> None:
            self._trace("job-out-of-memory", peer=call.session.peer_address, api_key=call.api_key)
            if without_memory is not None:
                then(without_memory, now)
                return
            self.let_go(copied_bytes)
            self.running -= 1
            self._disconnect(call.session, "a job of its request ran out of memory")

        return then, out_of_memory

    def resume(self, call: Call, finish: Finish, now: Instant) -> None:
        """Continue a request that has waited without a job of its own."""
        self._finished(call, finish, now)

    def kept(self, parts: Sequence[bytearray | memoryview]) -> Sequence[bytearray | memoryview]:
        """Parts of a request in a form that a job may hold: copied, unless they are copies already, or fill
        nearly all of a buffer in which no other request is received.
        """
        first = parts[0]
        if isinstance(first, bytearray):
            return parts
        if self._is_received_in(first) or 10 * sum(map(len, parts)) < 9 * memoryview(first.obj).nbytes:
            return [bytearray(part) for part in parts]
        return parts

    def hold(self, copies: Sequence[bytearray | memoryview]) -> int:
        """Count the bytes that a waiting request keeps of its frame; returns their number."""
        assert not any(map(self._is_received_in, copies)), "the next frame overwrites the receive buffer"
        size = sum(map(len, copies))
        self._memory.copied_bytes += size
        return size

    def let_go(self, size: int) -> None:
        """Subtract the bytes that `hold` has counted."""
        self._memory.copied_bytes -= size

    def _is_received_in(self, part: bytearray | memoryview) -> bool:
        """Whether these bytes lie in a buffer that later frames are received in."""
        content = part.obj if isinstance(part, memoryview) else part
        return any(content is buffer for buffer in self._receive_buffers)
