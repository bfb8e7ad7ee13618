"""Promises of delivery: futures of the standard library over the batches of a producer."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from sparklog.client.producer.accumulator import Gathering
from sparklog.client.producer.intake import Run
from sparklog.client.producer.outbound_batch import Done
from sparklog.client.producer.records import RecordMetadata, WrittenRange, error_of, metadata_of, ranges_of
from sparklog.errors import SparklogError
from sparklog.kernels import gather


class Deliverer(Protocol):
    """The producer as a promise uses it."""

    def _wait_for(self, batch: Gathering, timeout: float | None) -> Done:
        """Wait (seconds) until a batch is done; raises RequestTimeout."""

    def _call_when_done(self, batch: Gathering, callback: Callable[[], object]) -> bool:
        """Whether the callback will be called; if not, the batch is done already."""


class Delivery(gather.Place, Future[RecordMetadata]):
    """The promise of one record's delivery: a `concurrent.futures.Future` that can also be awaited. It cannot
    be cancelled: `cancel` returns False, and a task that awaits it may end before it.
    """

    # A million promises a second: no lock, condition or list for each, until a `wait` asks for them.
    __slots__ = ()

    _owner: Deliverer
    _batch: Gathering

    def __repr__(self) -> str:
        done = self._batch.done
        state = "pending" if done is None else error_of(done, self._index) or self.metadata()
        return f"<Delivery {self._batch.topic_partition}: {state}>"

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        import asyncio  # most producers need none

        return asyncio.wrap_future(self).__await__()

    def cancel(self) -> bool:
        """False: a record that was added is sent."""
        return False

    def cancelled(self) -> bool:
        """False, as `cancel`."""
        return False

    def running(self) -> bool:
        """Whether the record is neither acknowledged nor given up."""
        return not self.done()

    @property
    def run(self) -> Run:
        """The place of the record in its batch."""
        return Run(self._batch, self._index, 1)

    def done(self) -> bool:
        """Whether the record is acknowledged or given up."""
        return self._batch.done is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait (seconds) for the acknowledgement; raises the delivery error, or RequestTimeout if that is
        not known yet.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        metadata = self.metadata()
        assert metadata is not None
        return metadata

    def exception(self, timeout: float | None = None) -> SparklogError | None:
        """Wait (seconds) and return the delivery error, None for success; raises RequestTimeout if that is
        not known yet.
        """
        done = self._owner._wait_for(self._batch, timeout)
        return error_of(done, self._index)

    def metadata(self) -> RecordMetadata | None:
        """The place of the record; None while it is not known, or if the record failed."""
        return metadata_of(self._batch, self._index, self._timestamp_ms)

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Call the function once the record is done, at once if it is already; see `Producer` for
        the thread.
        """
        if not self._owner._call_when_done(self._batch, lambda: callback(self)):
            callback(self)

    # -- for `concurrent.futures.wait` and `as_completed`, which use these names -----------------------------

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return _WAITERS

    @property
    def _state(self) -> str:  # type: ignore[override]
        return "FINISHED" if self.done() else "RUNNING"

    @property
    def _waiters(self) -> "_Waiters":  # type: ignore[override]
        waiters: _Waiters | None = self.__dict__.get("waiters")
        if waiters is None:
            waiters = self.__dict__["waiters"] = _Waiters(self)
        return waiters


_WAITERS: Final = threading.Condition()
"""Guards the waiters of every Delivery: a thread that waits for several holds it several times."""


class _Waiter(Protocol):
    """What `concurrent.futures` is told of a future that is done."""

    def add_result(self, future: Delivery) -> None: ...

    def add_exception(self, future: Delivery) -> None: ...


class _Waiters:
    """The waiters of one Delivery; `_WAITERS` is held."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._waiters: list[_Waiter] = []
        self._is_registered = False

    def append(self, waiter: _Waiter) -> None:
        self._waiters.append(waiter)
        if not self._is_registered:
            self._is_registered = True
            self._delivery.add_done_callback(self._tell_all)
        elif self._delivery.done():
            self._tell(waiter)

    def remove(self, waiter: _Waiter) -> None:
        self._waiters.remove(waiter)

    def _tell_all(self, _: Delivery) -> None:
        with _WAITERS:
            for waiter in self._waiters:
                self._tell(waiter)

    def _tell(self, waiter: _Waiter) -> None:
        if self._delivery.exception() is None:
            waiter.add_result(self._delivery)
        else:
            waiter.add_exception(self._delivery)


class Deliveries:
    """The promise of the delivery of many records, those of one call of `send_many` or `send_arrow`."""

    __slots__ = ("_producer", "_runs")

    def __init__(self, producer: "Deliverer", runs: Sequence[Run]) -> None:
        self._producer = producer
        self._runs = runs

    def __len__(self) -> int:
        """The number of records."""
        return sum(run.record_count for run in self._runs)

    def done(self) -> bool:
        """Whether each record is acknowledged or given up."""
        return all(run.batch.done is not None for run in self._runs)

    def result(self, timeout: float | None = None) -> list[WrittenRange]:
        """Wait (seconds) for every acknowledgement; raises the first delivery error, or RequestTimeout."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return [written for run in self._runs for written in ranges_of(run)]

    def exception(self, timeout: float | None = None) -> SparklogError | None:
        """Wait (seconds) for every record, and return the first delivery error; raises RequestTimeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        found: SparklogError | None = None
        for run in self._runs:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done = self._producer._wait_for(run.batch, left)
            found = found or error_of(done, run.first, run.record_count)
        return found
