"""The timeouts of parked requests, as the timer of Kafka's DelayedOperationPurgatory.

    park ─► the heap ─┬─► answered before its time: dropped by `deadline`, or by a sweep
                      └─► expired: the broker's tick answers it

Most requests are answered long before their time. Their timers are swept when the heap has doubled.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from sparklog.model import Instant, Micros
from sparklog_server.broker.session import Waiting

OWN_DISK_WAIT_MS: Final = 30_000
"""The minimum wait of a request that waits only for this broker's disk (Kafka's default request.timeout.ms).
The timeout of a request bounds the wait for other replicas: in Kafka a partition with one replica
completes with any timeout.
"""
_SWEPT_FROM: Final = 1024


class RequestTimers:
    """Parked requests in the order of their timeouts; `next_us` is the earliest timeout, which may be that of
    a request answered meanwhile.
    """

    __slots__ = ("_heap", "_sequence", "_swept_at", "next_us")

    def __init__(self) -> None:
        self.next_us: Micros | None = None
        self._heap: list[tuple[Micros, int, Waiting]] = []
        self._sequence = 0
        self._swept_at = _SWEPT_FROM

    def __len__(self) -> int:
        """The timers, some of which may be those of answered requests."""
        return len(self._heap)

    def park(self, waiting: Waiting, timeout_ms: int, now: Instant) -> None:
        """Answer the request with `waiting.expired` after `timeout_ms`, unless it is answered before."""
        waiting.call.waiting = waiting
        self._sequence += 1
        if len(self._heap) >= self._swept_at:
            self._sweep()
        heappush(self._heap, (Micros(now.mono_us + max(timeout_ms, 0) * 1000), self._sequence, waiting))
        self.next_us = self._heap[0][0]

    def expired(self, now: Instant) -> Iterator[Waiting]:
        """Each request whose timeout has passed and that still waits for an answer; a request may be parked
        while this is iterated.
        """
        while self.next_us is not None and self.next_us <= now.mono_us:
            waiting = self._pop()
            if _is_awaited(waiting):
                yield waiting

    def deadline(self) -> Micros | None:
        """The earliest timeout of a request that still waits for an answer."""
        heap = self._heap
        while heap:
            call = heap[0][2].call
            if call.answer is None and not call.session.is_closing:  # `_is_awaited`, without a call for each
                break
            heappop(heap)
        self.next_us = heap[0][0] if heap else None
        return self.next_us

    def _pop(self) -> Waiting:
        waiting = heappop(self._heap)[2]
        self.next_us = self._heap[0][0] if self._heap else None
        return waiting

    def _sweep(self) -> None:
        self._heap = [timer for timer in self._heap if _is_awaited(timer[2])]
        heapify(self._heap)
        self._swept_at = max(_SWEPT_FROM, 2 * len(self._heap))


def _is_awaited(waiting: Waiting) -> bool:
    return waiting.call.answer is None and not waiting.call.session.is_closing
